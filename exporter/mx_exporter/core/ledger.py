"""The books: what became of each number that a process gave to its events.

A process numbers its events from 0. For each process
``logged = folded + refused + skipped + rejected + lost``, where ``logged`` is the highest number
seen plus one. A number that is met again is a duplicate and changes nothing, but for a good line of
a number that was met in a rejected one: the good one counts.
"""

from __future__ import annotations

from . import ranges
from .ranges import Ranges


class Book:
    """The numbers of one process: which were met, and what became of them."""

    __slots__ = ("end", "gaps", "gone", "locked", "refused", "rejections", "skipped")

    def __init__(self) -> None:
        #: The highest number met, plus one: how many events the process is known to have logged.
        self.end = 0
        #: Numbers below it that were not met.
        self.gaps: Ranges = []
        self.refused = 0
        self.skipped = 0
        #: reason -> numbers that were met in rejected lines only, if there are any.
        self.rejections: dict[str, Ranges] = {}
        #: The writer is known to be gone, and what it left open was settled.
        self.gone = False
        #: The writer's segments are locked while it lives, as its headers say.
        self.locked = True

    @property
    def complete(self) -> int:
        """An event was met of each number below this one."""
        first = min((numbers[0][0] for numbers in self.rejections.values()), default=self.end)
        return min(self.gaps[0][0], first) if self.gaps else first

    @property
    def lost(self) -> int:
        """How many of its numbers were never met, though higher ones were."""
        return ranges.count(self.gaps)

    @property
    def met(self) -> int:
        """How many of its numbers were met."""
        return self.end - self.lost

    @property
    def rejected(self) -> int:
        """How many of them were met in rejected lines only."""
        return sum(map(ranges.count, self.rejections.values()))

    @property
    def folded(self) -> int:
        """How many of them became metrics."""
        return self.met - self.rejected - self.refused - self.skipped

    def lost_ranges(self) -> list[tuple[int, int]]:
        """The lost numbers as (first, last) ranges, both inclusive, ascending."""
        return [(first, end - 1) for first, end in self.gaps]

    def knows(self, seq: int) -> bool:
        """Whether the number was met before."""
        return seq < self.end and ranges.find(self.gaps, seq) is None

    def enter(self, seq: int) -> None:
        """Note that a number was met, which is not known already."""
        if seq < self.end:
            ranges.remove(self.gaps, seq)
            return
        if seq > self.end:
            self.gaps.append((self.end, seq))
        self.end = seq + 1

    def rejection(self, seq: int) -> str | None:
        """Why the lines of a number that is known were rejected; None: one was good."""
        for reason, numbers in self.rejections.items():
            if ranges.find(numbers, seq) is not None:
                return reason
        return None

    def reject(self, seq: int, reason: str) -> None:
        """Note that a number that is known was met in a rejected line only."""
        ranges.add(self.rejections.setdefault(reason, []), seq)

    def take_back(self, seq: int, reason: str) -> None:
        """Undo `reject`."""
        numbers = self.rejections[reason]
        ranges.remove(numbers, seq)
        if not numbers:
            del self.rejections[reason]
