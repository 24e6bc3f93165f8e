"""Loads as rows of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from ..loads.model import Load
from ..loads.parts import parts
from ..loads.progress import progress
from ..loads.why import why
from .bars import Bar, bar


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


def running(load: Load, usual: Mapping[str, Sequence[float]], scale: float) -> Running:
    """A load in progress.

    :param usual: what `phase_seconds` found.
    """
    found = progress(load, usual)
    return Running(
        place=load.process.place,
        rank=load.rank,
        load_id=load.load_id,
        link=link(load),
        age=load.elapsed,
        phase=found.phase or "between phases",
        phase_seconds=found.seconds,
        median=found.median,
        stuck=found.stuck,
        bar=bar(parts(load), scale),
        why=why(load),
    )
