"""The books: what became of each number that a process gave to its events.

A process numbers its events from 0. For each process
``logged = folded + refused + skipped + rejected + lost``, where ``logged`` is the highest number
seen plus one. A number that is met again is a duplicate and changes nothing, but for a good line of
a number that was met in a rejected one: the good one counts.

Most processes that ever lived are gone, and nothing of them is missing. What is left to say of such
a one is a few numbers, which are kept as a tuple: the garbage collector never walks through these,
and a snapshot has them in columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

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

    @property
    def numbers(self) -> Ranges:
        """Its numbers that were met."""
        return ranges.complement(self.gaps, self.end)

    @property
    def good(self) -> Ranges:
        """Those of them that were met in a good line."""
        found = self.numbers
        for numbers in self.rejections.values():
            found = ranges.without(found, numbers)
        return found

    def holds(self, other: Book) -> bool:
        """Whether it knows all that another book of the process does."""
        return not ranges.without(other.numbers, self.numbers) and not ranges.without(
            other.good, self.good
        )

    def joined(self, other: Book) -> Book | None:
        """One book of the numbers in both; None where both met a good line of one number, so that
        what became of it was counted twice.

        The process is gone when both say so: one that was seen alive is no more for being copied.
        """
        mine, theirs = self.good, other.good
        if ranges.common(mine, theirs):
            return None
        book = Book()
        book.end = max(self.end, other.end)
        book.gaps = ranges.complement(ranges.union(self.numbers, other.numbers), book.end)
        book.refused = self.refused + other.refused
        book.skipped = self.skipped + other.skipped
        book.gone = self.gone and other.gone
        book.locked = self.locked and other.locked
        # A good line wins over rejected ones, and of two reasons the smaller one.
        taken = ranges.union(mine, theirs)
        for reason in sorted({*self.rejections, *other.rejections}):
            either = ranges.union(self.rejections.get(reason, []), other.rejections.get(reason, []))
            numbers = ranges.without(either, taken)
            if numbers:
                book.rejections[reason] = numbers
                taken = ranges.union(taken, numbers)
        return book

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


#: A book in which nothing is missing, of a process that is gone: end, refused, skipped, locked.
Closed: TypeAlias = tuple[int, int, int, bool]


class Ledger(Mapping[str, Book]):
    """The books of all processes. Picklable.

    As a mapping it is to be read; `open` gives a book to write in.
    """

    __slots__ = ("_stirred", "closed", "opened")

    def __init__(self) -> None:
        self.opened: dict[str, Book] = {}
        #: No process is in both.
        self.closed: dict[str, Closed] = {}
        #: Processes that are gone and whose books `open` gave.
        self._stirred: set[str] = set()

    def __getitem__(self, proc: str) -> Book:
        book = self.opened.get(proc)
        return _book(self.closed[proc]) if book is None else book

    def __contains__(self, proc: object) -> bool:
        return proc in self.opened or proc in self.closed

    def __iter__(self) -> Iterator[str]:
        yield from self.opened
        yield from self.closed

    def __len__(self) -> int:
        return len(self.opened) + len(self.closed)

    def gone(self) -> set[str]:
        """The processes that are gone."""
        return {*self.closed, *(proc for proc, book in self.opened.items() if book.gone)}

    def alive(self) -> set[str]:
        """The processes that are not."""
        return {proc for proc, book in self.opened.items() if not book.gone}

    def open(self, proc: str) -> Book:
        """The book of a process, to write in; a new one where there is none."""
        book = self.opened.get(proc)
        if book is None:
            closed = self.closed.pop(proc, None)
            book = self.opened[proc] = Book() if closed is None else _book(closed)
        if book.gone:
            self._stirred.add(proc)
        return book

    def close(self, proc: str) -> None:
        """Close the book of a process, if there is one and nothing is missing any more."""
        book = self.opened.get(proc)
        if book is not None and book.gone and not book.gaps and not book.rejections:
            self.closed[proc] = (book.end, book.refused, book.skipped, book.locked)
            del self.opened[proc]

    def close_again(self) -> None:
        """Close the books that `open` gave of processes that are gone."""
        while self._stirred:
            self.close(self._stirred.pop())

    def put(self, proc: str, book: Book) -> None:
        """Add the book of a process that has none here."""
        self.opened[proc] = book
        self.close(proc)

    def take(self, proc: str) -> Book | None:
        """Take the book of a process out; None where there is none."""
        closed = self.closed.pop(proc, None)
        return self.opened.pop(proc, None) if closed is None else _book(closed)

    def merge(self, other: Ledger) -> None:
        """Add the books of other processes."""
        self.opened.update(other.opened)
        self.closed.update(other.closed)


def _book(closed: Closed) -> Book:
    book = Book()
    book.end, book.refused, book.skipped, book.locked = closed
    book.gone = True
    return book
