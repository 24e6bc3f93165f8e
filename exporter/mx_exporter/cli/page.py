"""The page of a command: families as text, and what is said beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from mx_log.words import counted

from .stdio import say

if TYPE_CHECKING:
    from ..core.state import State
    from ..exposition.samples import Collector

_Command = TypeVar("_Command", bound=Callable[..., object])


def page_options(command: _Command) -> _Command:
    """Give a command the options that say in which form it prints, as its argument ``output``."""
    command = click.option(
        "--json", "output", flag_value="json", help="Print one JSON object a series."
    )(command)
    return click.option(
        "--openmetrics", "output", flag_value="openmetrics", help="Print OpenMetrics."
    )(command)


def print_page(
    collectors: Iterable[Collector], output: str, put: Callable[[bytes], object]
) -> bool:
    """Print families; one that raises is said, and the others are printed all the same.

    :param output: ``text`` (the classic format), ``openmetrics`` or ``json`` (`json_lines`).
    :param put: takes the page.
    :return: whether one raised.
    """
    from ..exposition.json_lines import json_lines
    from ..exposition.text import family_text, page

    openmetrics = output == "openmetrics"
    texts: list[bytes] = []
    failed: dict[str, Exception] = {}
    for name, collect in collectors:
        try:
            for family in collect():
                if output == "json":
                    texts.append(b"".join(json_lines([family])))
                else:
                    texts.append(family_text(family, openmetrics=openmetrics))
        except Exception as error:  # noqa: BLE001 - the family is named, whatever it is
            failed[name] = error
    put(page(texts, openmetrics))
    for name, why in failed.items():
        say(f"{name} could not be printed: {type(why).__name__}: {why}")
    return bool(failed)


def say_faults(states: Iterable[State], advice: str) -> None:
    """Print on standard error what did not become metrics, if anything.

    :param advice: how to find out which and why.
    """
    states = list(states)
    faults = [
        counted(count, one, many)
        for count, one, many in (
            (sum(s.rejected.total() for s in states), "line rejected", "lines rejected"),
            (sum(s.refused.total() for s in states), "observation refused", "observations refused"),
            (sum(s.lost for s in states), "event lost", "events lost"),
        )
        if count
    ]
    if faults:
        say(f"{', '.join(faults)}; {advice}")
