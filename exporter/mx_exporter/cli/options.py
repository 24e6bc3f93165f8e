"""Command line options, made from the settings' table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ..config import OPTIONS, read_settings
from ..errors import UsageError
from ..option_values import parse_address, parse_at_least_one

_Value = TypeVar("_Value")
_Command = TypeVar("_Command", bound=Callable[..., Any])

_DEFAULTS = read_settings({}, {})

#: Rows of the table that serve and run take.
SERVING = (
    "directory",
    "listen",
    "port",
    "web_config_file",
    "source_id_label",
    "max_series",
    "catalog",
    "retain_seconds",
    "tee",
    "archive_dir",
)


def complete(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Have a shell complete paths, of the kind ``file`` or ``dir``; it looks for them itself."""

    def items(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=kind)]

    return items


#: By what an option's value is called.
_COMPLETED = {"DIR": complete("dir"), "FILE": complete("file")}


def parsed(parse: Callable[[str], _Value]) -> Callable[..., _Value | None]:
    """Have an option that is in no row of the table read as those are."""

    def value_of(_: click.Context, param: click.Parameter, value: str | None) -> _Value | None:
        try:
            return None if value is None else parse(value.strip())
        except ValueError as error:
            raise UsageError(f"{param.opts[0]}: bad value {value!r}: {error}") from None

    return value_of


def all_parsed(parse: Callable[[str], _Value]) -> Callable[..., list[_Value]]:
    """The same for an option that may be given more than once."""
    one = parsed(parse)

    def values_of(
        context: click.Context, param: click.Parameter, given: tuple[str, ...]
    ) -> list[_Value]:
        found = [one(context, param, value) for value in given]
        return [value for value in found if value is not None]

    return values_of


def remote_write_options(command: _Command) -> _Command:
    """Give a command the options that say where samples are sent to."""
    command = click.option(
        "--bearer-token-file",
        metavar="FILE",
        shell_complete=complete("file"),
        help="File of the token for that address; a user and a password may be in the address.",
    )(command)
    return click.option(
        "--remote-write",
        callback=parsed(parse_address),
        metavar="URL",
        help="Send the samples there by remote write: http://HOST:9090/api/v1/write, say.",
    )(command)


def settings_options(*names: str) -> Callable[[_Command], _Command]:
    """Give a command the flags of the named rows of the settings' table."""

    def decorate(command: _Command) -> _Command:
        for name in reversed(names):
            row = OPTIONS[name]
            assert row.flag is not None
            sources = f"{row.variable}; " if row.variable else ""
            shown = f"{row.help} [{sources}default: {row.shown}]"
            switch = isinstance(getattr(_DEFAULTS, name), bool)
            if switch:
                flag = f"{row.flag}/--no-{row.flag[2:]}"
                command = click.option(flag, name, default=None, help=shown)(command)
            else:
                command = click.option(
                    row.flag,
                    name,
                    metavar=row.metavar,
                    help=shown,
                    shell_complete=_COMPLETED.get(row.metavar),
                )(command)
        return command

    return decorate


def output_option(text: str, *names: str, required: bool = False) -> Callable[[_Command], _Command]:
    """Give a command the option that says where its result goes.

    :param text: its help.
    :param names: of the argument; ``output`` unless given.
    """
    return click.option(
        "-o",
        "--output",
        *names,
        metavar="FILE",
        required=required,
        shell_complete=complete("file"),
        help=text,
    )


#: How many processes a command that reads logs uses.
jobs_option = click.option(
    "--jobs",
    callback=parsed(parse_at_least_one),
    metavar="N",
    help="Processes to use. [default: one a core]",
)
