"""The books: what became of each number that a process gave to its events.

A process numbers its events from 0. For each process
``logged = folded + refused + skipped + lost``, where ``logged`` is the highest number seen
plus one. A number that is met again is a duplicate and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right


class Book:
    """The numbers of one process: which were met, and what became of them."""

    __slots__ = ("end", "gaps", "gone", "locked", "refused", "skipped")

    def __init__(self) -> None:
        #: The highest number met, plus one: how many events the process is known to have logged.
        self.end = 0
        #: Numbers below it that were not met: (first, end) ranges, ascending, end exclusive.
        self.gaps: list[tuple[int, int]] = []
        self.refused = 0
        self.skipped = 0
        #: The writer is known to be gone, and what it left open was settled.
        self.gone = False
        #: The writer's segments are locked while it lives, as its headers say.
        self.locked = True

    @property
    def complete(self) -> int:
        """All numbers below this one were met."""
        return self.gaps[0][0] if self.gaps else self.end

    @property
    def lost(self) -> int:
        """How many of its numbers were never met, though higher ones were."""
        return sum(end - first for first, end in self.gaps)

    @property
    def met(self) -> int:
        """How many of its events were met."""
        return self.end - self.lost

    @property
    def folded(self) -> int:
        """How many of them became metrics."""
        return self.met - self.refused - self.skipped

    def lost_ranges(self) -> list[tuple[int, int]]:
        """The lost numbers as (first, last) ranges, both inclusive, ascending."""
        return [(first, end - 1) for first, end in self.gaps]

    def knows(self, seq: int) -> bool:
        """Whether the number was met before."""
        return seq < self.end and self._gap(seq) is None

    def enter(self, seq: int) -> None:
        """Note that a number was met, which is not known already."""
        if seq >= self.end:
            if seq > self.end:
                self.gaps.append((self.end, seq))
            self.end = seq + 1
            return
        at = self._gap(seq)
        if at is not None:
            first, end = self.gaps[at]
            parts = ((first, seq), (seq + 1, end))
            self.gaps[at : at + 1] = [part for part in parts if part[0] < part[1]]

    def _gap(self, seq: int) -> int | None:
        """Which of the gaps the number lies in."""
        at = bisect_right(self.gaps, (seq, float("inf"))) - 1
        return at if at >= 0 and seq < self.gaps[at][1] else None
