"""Whether one set of loads took longer than another, and how sure that is.

Quantiles are exact. The interval of a difference comes from a bootstrap: what is drawn again and
again are starts of pods, not loads, since the ranks of one start are not independent of each other.
The draws are seeded, so that the same loads give the same interval.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .measured import Measured
from .quantiles import quantile
from .starts import group_starts

#: Draws of a bootstrap.
_DRAWS = 600

#: Starts that are drawn at a time, at most. Of more, an interval of so many is made narrower by the
#: root of the ratio, which bounds the time that a comparison takes.
_DRAWN = 300

#: How likely an interval is to hold the true difference.
LEVEL = 0.95

#: Fewest starts of which an interval is given: of fewer than six values no interval of this level
#: holds the median, whatever they are.
LEAST_STARTS = 6

QUANTILES = (0.5, 0.95)

#: Quantiles of the t distribution for 0.975, by degrees of freedom from 5 on; beyond: `_NORMAL`.
_T = (
    2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
    2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip
_NORMAL = 1.96

SLOWER, FASTER, SAME, TOO_FEW = "slower", "faster", "no difference shown", "too few to say"


class Series(NamedTuple):
    """One figure of each load that has it, by start."""

    by_start: tuple[tuple[float, ...], ...]

    @property
    def values(self) -> list[float]:
        """All of them."""
        return [value for start in self.by_start for value in start]


class Difference(NamedTuple):
    """How a quantile differs between two series."""

    q: float
    before: float | None
    after: float | None
    #: Loads, or attempts, on either side.
    counts: tuple[int, int]
    #: Bounds of the difference; None: there are too few to give any.
    interval: tuple[float, float] | None

    @property
    def change(self) -> float | None:
        """The difference."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def ratio(self) -> float | None:
        """The difference as a share of what it was before."""
        return self.change / self.before if self.change is not None and self.before else None

    @property
    def verdict(self) -> str:
        """What can be said of it."""
        if self.interval is None:
            return TOO_FEW
        low, high = self.interval
        return SLOWER if low > 0 else FASTER if high < 0 else SAME


class Figure(NamedTuple):
    """What is compared: a figure of each load that ended well."""

    name: str
    #: What it is a part of: 0 of nothing, 1 of the load, 2 of an attempt.
    depth: int
    of: Callable[[Measured], Sequence[float]]


def figures(*sides: Sequence[Measured]) -> list[Figure]:
    """The figures that loads have: the load, its phases, the phases of attempts that ended well."""
    found = [Figure("load", 0, lambda m: () if m.seconds is None else (m.seconds,))]
    phases = _names(sides, lambda m: m.phases)
    found += [Figure(name, 1, _phase(name)) for name in phases]
    found += [
        Figure(name, 2, _attempt_phase(name)) for name in _names(sides, lambda m: m.attempt_phases)
    ]
    return found


def _names(
    sides: Sequence[Sequence[Measured]], of: Callable[[Measured], Iterable[str]]
) -> list[str]:
    """In the order in which they are met."""
    return list(dict.fromkeys(name for side in sides for load in side for name in of(load)))


def _phase(name: str) -> Callable[[Measured], Sequence[float]]:
    return lambda m: (m.phases[name],) if name in m.phases else ()


def _attempt_phase(name: str) -> Callable[[Measured], Sequence[float]]:
    return lambda m: m.attempt_phases.get(name, ())


def series(loads: Sequence[Measured], figure: Figure) -> Series:
    """A figure of the loads that ended well; a start without any is left out."""
    starts = []
    for start in group_starts([load.began for load in loads]):
        values = tuple(
            value
            for at in start
            if loads[at].outcome == "success"
            for value in figure.of(loads[at])
        )
        if values:
            starts.append(values)
    return Series(tuple(starts))


def difference(
    before: Series, after: Series, q: float, *, seed: int = 0, least: int = LEAST_STARTS
) -> Difference:
    """How a quantile differs.

    :param seed: of the draws.
    :param least: fewest starts on either side of which an interval is given.
    """
    mine, theirs = before.values, after.values
    interval = None
    if min(len(before.by_start), len(after.by_start)) >= max(least, LEAST_STARTS) and min(
        len(mine), len(theirs)
    ) >= least_values(q):
        interval = _interval(before, after, q, random.Random(f"{seed} {q}"))
    return Difference(q, quantile(mine, q), quantile(theirs, q), (len(mine), len(theirs)), interval)


def least_values(q: float) -> int:
    """Fewest values of which a quantile has an interval at all: with fewer, all of them may lie
    on one side of it more often than the level allows."""
    return math.ceil(math.log((1 - LEVEL) / 2) / math.log(max(q, 1 - q)))


def _interval(before: Series, after: Series, q: float, dice: random.Random) -> tuple[float, float]:
    changes = sorted(_drawn(after, q, dice) - _drawn(before, q, dice) for _ in range(_DRAWS))
    centre = (quantile(after.values, q) or 0.0) - (quantile(before.values, q) or 0.0)
    low = quantile(changes, (1 - LEVEL) / 2) or 0.0
    high = quantile(changes, (1 + LEVEL) / 2) or 0.0
    fewest = min(len(before.by_start), len(after.by_start))
    width = _width(fewest)
    # Equal values may leave no room on one side: the interval always holds the difference itself.
    low, high = min(low, centre), max(high, centre)
    return centre - (centre - low) * width, centre + (high - centre) * width


def _width(starts: int) -> float:
    """How much wider than the draws an interval is: few starts vary less among themselves than
    those that they stand for; many were not drawn all at once."""
    if starts > _DRAWN:
        return math.sqrt(_DRAWN / starts)
    at = starts - 1 - 5
    t = _T[at] if 0 <= at < len(_T) else _NORMAL
    return t / _NORMAL * math.sqrt(starts / (starts - 1))


def _drawn(given: Series, q: float, dice: random.Random) -> float:
    drawn = dice.choices(given.by_start, k=min(len(given.by_start), _DRAWN))
    return quantile([value for start in drawn for value in start], q) or 0.0
