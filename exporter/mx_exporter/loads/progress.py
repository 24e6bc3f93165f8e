"""How far loads in progress are, beside what is usual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .model import Load
from .quantiles import median

#: A phase lasts too long from so many times its median on, once so many of it ended.
STUCK_TIMES, STUCK_FROM = 3.0, 3


class Progress(NamedTuple):
    """Where a load is."""

    #: The phase that is open; None between two.
    phase: str | None
    #: Seconds since it began.
    seconds: float | None
    #: Of that phase, of loads that passed it.
    median: float | None
    #: It lasts longer than three times that, and than any before did.
    stuck: bool


def phase_seconds(loads: Iterable[Load]) -> dict[str, list[float]]:
    """How long each phase took, over loads."""
    found: dict[str, list[float]] = {}
    for load in loads:
        for span in load.phases:
            if span.seconds is not None:
                found.setdefault(span.name, []).append(span.seconds)
    return found


def progress(load: Load, usual: Mapping[str, Sequence[float]]) -> Progress:
    """How far a load in progress is.

    :param usual: what `phase_seconds` found of others.
    """
    phase = load.open_phase
    if phase is None:
        return Progress(None, None, None, stuck=False)
    inside, values = max(0.0, load.elapsed - phase.at), usual.get(phase.name, ())
    middle = median(values)
    stuck = (
        middle is not None
        and len(values) >= STUCK_FROM
        and inside > max(STUCK_TIMES * middle, *values)
    )
    return Progress(phase.name, inside, middle, stuck)
