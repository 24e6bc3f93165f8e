"""Options that say which loads a command is about, alike for all commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..option_values import parse_time
from .options import parsed

if TYPE_CHECKING:
    from ..loads.selection import Selection

_TEXTS = {
    "pods": ("--pod", "NAME", "Only of this pod, by name or NAMESPACE/NAME; more than once: any."),
    "nodes": ("--node", "NAME", "Only on this node; more than once: any."),
    "models": ("--model", "ID", "Only of this model; more than once: any."),
    "engines": (
        "--engine",
        "NAME",
        "Only by this engine (vllm, ...); more than once: any.",
    ),
    "schemes": ("--scheme", "TAG", "Only with this MX_METRICS_SCHEME; more than once: any."),
}


def load_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say of what loads are, and what they say as its argument
    ``selection``."""

    @wraps(command)
    def with_selection(*args: Any, ranks: tuple[int, ...], **given: Any) -> Any:
        from ..loads.selection import Selection

        named: dict[str, Any] = {name: frozenset(given.pop(name)) for name in _TEXTS}
        selection = Selection(ranks=frozenset(ranks), **named)
        return command(*args, selection=selection, **given)

    wrapped = with_selection
    for name, (flag, metavar, text) in reversed(_TEXTS.items()):
        wrapped = click.option(flag, name, multiple=True, metavar=metavar, help=text)(wrapped)
    return click.option(
        "--rank",
        "ranks",
        multiple=True,
        type=int,
        metavar="N",
        help="Only of this rank; more than once: any.",
    )(wrapped)


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same with those that say when loads began."""
    filtered = load_filters(_with_times(command))
    for option in (
        click.option(
            "--until", callback=parsed(parse_time), metavar="TIME", help="Only what began before."
        ),
        click.option(
            "--since",
            callback=parsed(parse_time),
            metavar="TIME",
            help="Only what began then or later: 2026-01-31T12:00:00Z, a date, or 2h for two "
            "hours ago.",
        ),
    ):
        filtered = option(filtered)
    return filtered


def _with_times(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def with_times(
        *args: Any, selection: Selection, since: str | None, until: str | None, **given: Any
    ) -> Any:
        from msgspec.structs import replace

        timed = replace(selection, since=since or "", until=until or "")
        return command(*args, selection=timed, **given)

    return with_times
