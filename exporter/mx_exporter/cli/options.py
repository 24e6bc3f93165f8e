"""Command line options, made from the settings' table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..config import OPTIONS, read_settings

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
    "retain_seconds",
    "tee",
    "archive_dir",
)


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
                command = click.option(row.flag, name, metavar=row.metavar, help=shown)(command)
        return command

    return decorate
