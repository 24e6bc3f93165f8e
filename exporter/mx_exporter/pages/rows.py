"""Loads as rows of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from ..loads.model import Load
from ..loads.parts import parts
from ..loads.quantiles import median
from ..loads.why import why
from .bars import Bar, bar

#: A phase lasts too long from so many times its median on, once so many of it ended.
STUCK_TIMES, STUCK_FROM = 3.0, 3


class Row(NamedTuple):
    """A load in a table."""

    place: str
    rank: int | None
    load_id: str | None
    link: str
    began: str
    seconds: float | None
    outcome: str
    bar: Bar
    why: str


class Running(NamedTuple):
    """A load in progress."""

    place: str
    rank: int | None
    load_id: str | None
    link: str
    #: Seconds since it began, and since its phase did.
    age: float
    phase: str
    phase_seconds: float | None
    #: Of the phase, of loads that passed it.
    median: float | None
    stuck: bool
    bar: Bar
    why: str


def link(load: Load) -> str:
    """Where the load's own page is; empty for one without an id."""
    return "" if load.load_id is None else f"/loads/{quote(load.load_id, safe='')}"


def row(load: Load, scale: float) -> Row:
    """A load that is over, or of which nothing more is known."""
    return Row(
        place=load.process.place,
        rank=load.rank,
        load_id=load.load_id,
        link=link(load),
        began=load.began,
        seconds=load.seconds,
        outcome=load.outcome,
        bar=bar(parts(load), scale),
        why=why(load),
    )


def phase_seconds(loads: Sequence[Load]) -> dict[str, list[float]]:
    """How long each phase took, over loads."""
    found: dict[str, list[float]] = {}
    for load in loads:
        for span in load.phases:
            if span.seconds is not None:
                found.setdefault(span.name, []).append(span.seconds)
    return {name: sorted(values) for name, values in found.items()}


def running(load: Load, usual: Mapping[str, Sequence[float]], scale: float) -> Running:
    """A load in progress.

    :param usual: what `phase_seconds` found.
    """
    phase, age = load.open_phase, load.elapsed
    inside = None if phase is None else max(0.0, age - phase.at)
    values = usual.get(phase.name, ()) if phase else ()
    usually = median(values)
    stuck = (
        inside is not None
        and usually is not None
        and len(values) >= STUCK_FROM
        and inside > max(STUCK_TIMES * usually, values[-1])
    )
    return Running(
        place=load.process.place,
        rank=load.rank,
        load_id=load.load_id,
        link=link(load),
        age=age,
        phase=phase.name if phase else "between phases",
        phase_seconds=inside,
        median=usually,
        stuck=stuck,
        bar=bar(parts(load), scale),
        why=why(load),
    )
