"""What a benchmark returns: rows of one table, and how their figures are taken.

Absolute times are noise between machines, so a figure is a ratio wherever there is something to
compare with: both sides run alternately, each round gives one ratio, and the row shows their
median with the lowest and the highest.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

AT_MOST = "at most"
AT_LEAST = "at least"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``values`` are the figures of all rounds in ``unit`` (``x`` for a ratio). ``ours`` and
    ``theirs`` say in words what the two sides took on this machine.
    """

    what: str
    against: str
    values: Sequence[float]
    unit: str
    bound: str
    target: float
    ours: str = ""
    theirs: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def reached(self) -> bool:
        """Whether the median reaches the target."""
        if self.bound == AT_MOST:
            return self.median <= self.target
        return self.median >= self.target


def seconds(run: Callable[[], object]) -> float:
    """How long one run takes, without a collection of garbage that others left."""
    gc.collect()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def alternating(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """The figures of both sides, taken in turn; who begins changes with each round."""
    mine: list[float] = []
    others: list[float] = []
    for at in range(rounds):
        for side, into in ((ours, mine), (theirs, others))[:: 1 if at % 2 else -1]:
            into.append(side())
    return mine, others


def ratios(mine: Sequence[float], others: Sequence[float]) -> list[float]:
    """Ours by theirs, round by round."""
    return [a / b for a, b in zip(mine, others, strict=True)]
