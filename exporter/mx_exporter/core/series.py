"""Series: what has been accumulated under one set of label values.

All of them merge exactly: sums are exact integers, and whatever is "the latest" is chosen by
(timestamp, proc, seq), a total order. ``created`` is the smallest timestamp of an event that
brought the series into being.

``pack`` gives what a snapshot holds of a series, in types of JSON; ``unpack`` takes it up in a
fresh one, bit for bit. ``mark`` gives a value that is another one whenever the series shows
something else; what is in it does not change with the series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from .decode import Event
from .exact_sum import Sum

#: Where an observation stands in the total order of events: timestamp, proc, seq.
Stamp = tuple[str, str, int]

#: A bucket's last event: timestamp, proc, seq, value, rank, load_id.
Exemplar = tuple[str, str, int, float, int | None, str | None]

#: The `Stamp` of an event.
stamp: Callable[[Event], Stamp] = attrgetter("timestamp", "proc", "seq")


class Present:
    """A gauge that is always 1: that there is such a series is what it says."""

    __slots__ = ("created",)

    value = 1

    def __init__(self, created: str) -> None:
        self.created = created

    def merge(self, other: Present) -> None:
        self.created = min(self.created, other.created)

    def mark(self) -> object:
        return None

    def pack(self) -> list[Any]:
        return [self.created]

    def unpack(self, packed: list[Any]) -> None:
        (self.created,) = packed


class Counted:
    """A counter that adds whole ones."""

    __slots__ = ("created", "value")

    def __init__(self, created: str) -> None:
        self.created = created
        self.value = 0

    def merge(self, other: Counted) -> None:
        self.created = min(self.created, other.created)
        self.value += other.value

    def mark(self) -> object:
        return self.created, self.value

    def pack(self) -> list[Any]:
        return [self.created, self.value]

    def unpack(self, packed: list[Any]) -> None:
        self.created, self.value = packed


class Summed:
    """A counter that adds amounts; the total is exact."""

    __slots__ = ("created", "total")

    def __init__(self, created: str) -> None:
        self.created = created
        self.total = Sum()

    def merge(self, other: Summed) -> None:
        self.created = min(self.created, other.created)
        self.total.merge(other.total)

    def mark(self) -> object:
        return self.created, self.total.units()

    def pack(self) -> list[Any]:
        return [self.created, hex(self.total.units())]

    def unpack(self, packed: list[Any]) -> None:
        self.created, total = packed
        self.total = Sum(int(total, 16))


class Observed:
    """A histogram: ``counts`` a bucket (not cumulative, the last is above all boundaries)."""

    __slots__ = ("bounds", "counts", "created", "exemplars", "total")

    def __init__(self, created: str, bounds: tuple[float, ...]) -> None:
        self.created = created
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = Sum()
        self.exemplars: list[Exemplar | None] = [None] * (len(bounds) + 1)

    def observe(self, events: list[Event], values: list[float]) -> None:
        """Take a finite observation of each event. Events come in order of their stamps."""
        bounds, counts = self.bounds, self.counts
        newest: dict[int, int] = {}
        for at, value in enumerate(values):
            # The boundary is inclusive: a value equal to it belongs to that bucket.
            bucket = bisect_left(bounds, value)
            counts[bucket] += 1
            newest[bucket] = at
        self.total.add(values)
        for bucket, at in newest.items():
            event, known = events[at], self.exemplars[bucket]
            # (timestamp, proc, seq) differ between any two events, so nothing behind is compared.
            if known is None or event.timestamp >= known[0]:
                exemplar = (*stamp(event), float(values[at]), event.rank, event.load_id)
                if known is None or exemplar > known:
                    self.exemplars[bucket] = exemplar

    def merge(self, other: Observed) -> None:
        self.created = min(self.created, other.created)
        self.total.merge(other.total)
        for at, count in enumerate(other.counts):
            self.counts[at] += count
            theirs, mine = other.exemplars[at], self.exemplars[at]
            if theirs is not None and (mine is None or theirs > mine):
                self.exemplars[at] = theirs

    def mark(self) -> object:
        return self.created, tuple(self.counts), self.total.units(), tuple(self.exemplars)

    def pack(self) -> list[Any]:
        return [self.created, self.counts, hex(self.total.units()), self.exemplars]

    def unpack(self, packed: list[Any]) -> None:
        self.created, self.counts, total, exemplars = packed
        self.total = Sum(int(total, 16))
        self.exemplars = [last if last is None else tuple(last) for last in exemplars]


class Latest:
    """A gauge that holds the most recent value, by the total order of events."""

    __slots__ = ("created", "stamp", "value")

    def __init__(self, created: str) -> None:
        self.created = created
        self.stamp: Stamp = ("", "", -1)
        self.value = 0.0

    def set(self, value: float, stamp: Stamp) -> None:
        if stamp >= self.stamp:
            self.stamp = stamp
            self.value = value

    def merge(self, other: Latest) -> None:
        self.created = min(self.created, other.created)
        self.set(other.value, other.stamp)

    def mark(self) -> object:
        return self.stamp, self.value

    def pack(self) -> list[Any]:
        return [self.created, self.stamp, self.value]

    def unpack(self, packed: list[Any]) -> None:
        self.created, stamp, self.value = packed
        self.stamp = tuple(stamp)


Series = Present | Counted | Summed | Observed | Latest
