"""The books: what became of each number that a process gave to its events.

A process numbers its events from 0. For each process
``logged = folded + refused + skipped + lost``, where ``logged`` is the highest number seen
plus one. A number that is met again is a duplicate and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right


class Book:
    """The numbers of one process: which were met, and what became of them."""

    __slots__ = ("folded", "gone", "later", "locked", "next", "refused", "skipped")

    def __init__(self) -> None:
        #: All numbers below this one were met.
        self.next = 0
        #: Numbers met beyond a gap: disjoint (first, end) ranges, ascending, end exclusive.
        self.later: list[tuple[int, int]] = []
        self.folded = 0
        self.refused = 0
        self.skipped = 0
        #: The writer is known to be gone, and what it left open was settled.
        self.gone = False
        #: The writer's segments are locked while it lives, as its headers say.
        self.locked = True

    @property
    def logged(self) -> int:
        """How many events the process is known to have logged."""
        return self.later[-1][1] if self.later else self.next

    @property
    def met(self) -> int:
        """How many of its events were met."""
        return self.folded + self.refused + self.skipped

    @property
    def lost(self) -> int:
        """How many of its numbers were never met, though higher ones were."""
        return self.logged - self.met

    def lost_ranges(self) -> list[tuple[int, int]]:
        """The lost numbers as (first, last) ranges, both inclusive, ascending."""
        ranges = []
        start = self.next
        for first, end in self.later:
            ranges.append((start, first - 1))
            start = end
        return ranges

    def knows(self, seq: int) -> bool:
        """Whether the number was met before."""
        if seq < self.next:
            return True
        at = bisect_right(self.later, (seq, float("inf"))) - 1
        return at >= 0 and seq < self.later[at][1]

    def enter(self, first: int, end: int) -> None:
        """Note that the numbers from ``first`` up to ``end`` (exclusive) were met.

        None of them may be known already.
        """
        if first != self.next or self.later:
            at = bisect_right(self.later, (first, end))
            if at < len(self.later) and self.later[at][0] == end:
                end = self.later.pop(at)[1]
            if at > 0 and self.later[at - 1][1] == first:
                at -= 1
                first = self.later.pop(at)[0]
            if first != self.next:
                self.later.insert(at, (first, end))
                return
        self.next = end
