"""The command line as it is: for the page that `generate` makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click

from mx_exporter.cli.main import cli


class Command(NamedTuple):
    """A command: how it is called, what it does, and its options with what they mean."""

    name: str
    usage: str
    text: str
    options: list[tuple[str, str]]


def commands() -> Iterator[Command]:
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, info_name=f"mx-metrics {name}")
        arguments = [
            param.make_metavar(context)
            for param in command.params
            if isinstance(param, click.Argument)
        ]
        options = [param for param in command.params if isinstance(param, click.Option)]
        yield Command(
            name,
            " ".join(["mx-metrics", name, "[OPTIONS]", *arguments]),
            inspect.cleandoc(command.help or ""),
            [(spelt(option), option.help or "") for option in options if not option.hidden],
        )


def spelt(option: click.Option) -> str:
    """An option as it is typed."""
    names = " / ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.type.name.upper()}"
