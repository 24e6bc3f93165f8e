"""Samples: the content of a page, before it is written in any format.

A family comes with its series in the order of their label values, so that the same state always
gives the same samples. Timestamps stay as the log has them, RFC 3339 in UTC; `seconds` gives one
as a number.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import Any

from ..core.catalog import (
    ABANDONED,
    COUNT,
    HISTOGRAM,
    IN_PROGRESS,
    LATEST,
    PRESENCE,
    SUM,
    Catalog,
    Family,
)
from ..core.exact_sum import to_float
from ..core.series import Counted, Exemplar, Latest, Observed, Present, Summed
from ..core.state import State


@dataclass(frozen=True, slots=True)
class Point:
    """One series of a counter or a gauge.

    :ivar labels: label values, in the order of the family's label names.
    :ivar created: a counter's smallest timestamp of an event; None for a gauge, or if not known.
    """

    labels: tuple[str, ...]
    value: float
    created: str | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """One series of a histogram.

    :ivar labels: label values, in the order of the family's label names.
    :ivar bounds: upper boundaries, inclusive; the last bucket has none.
    :ivar counts: observations up to each boundary, and all of them: one more than ``bounds``.
    :ivar exemplars: the last event of each bucket, as many as ``counts``.
    :ivar sum: of all observations; it may be negative, or an infinity.
    :ivar created: smallest timestamp of an observed event.
    """

    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    counts: Sequence[int]
    exemplars: Sequence[Exemplar | None]
    sum: float
    created: str

    @property
    def count(self) -> int:
        """How many observations there are."""
        return self.counts[-1]


@dataclass(frozen=True, slots=True)
class FamilySamples:
    """A family and its series.

    :ivar name: as in a query, so a counter's ends in ``_total``.
    :ivar type: ``counter``, ``gauge`` or ``histogram``.
    :ivar series: points, or histograms where that is the type. They may be made as they are gone
        through, and read the state at that time.
    """

    name: str
    type: str
    help: str
    label_names: tuple[str, ...]
    series: Collection[Point | Histogram]


def derived_families(
    catalog: Catalog, state: State, *, source_id_label: bool = False
) -> Iterator[FamilySamples]:
    """The families of a state in the catalogue's order, those without a series left out.

    :param source_id_label: show the labels that are shown only when asked for.
    """
    for family in catalog.families:
        series = _series_of(family, state, opt_in=source_id_label)
        if len(series):
            names = family.label_names(opt_in=source_id_label)
            yield FamilySamples(family.name, family.type, family.help, names, series)


@lru_cache(maxsize=4096)
def seconds(timestamp: str) -> float:
    """An event's timestamp in seconds since the epoch."""
    date, _, time = timestamp.partition("T")
    year, month, day = map(int, date.split("-"))
    hour, minute, second = time[:8].split(":")
    whole = timegm((year, month, day, int(hour), int(minute), int(second)))
    return whole + int(time[9:15]) / 1e6


class _Lazy(Collection["Point | Histogram"]):
    """Series that are made as they are gone through.

    All at once, they would make the garbage collector walk through the whole state more often.

    :param table: label values and what was accumulated under them.
    :param make: makes one series of both.
    """

    def __init__(
        self,
        table: Iterable[tuple[tuple[str, ...], Any]],
        make: Callable[[tuple[str, ...], Any], Point | Histogram],
    ) -> None:
        # No two have the same labels, so what comes after the labels is never compared.
        self._items = sorted(table)
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, one: object) -> bool:
        return any(one == each for each in self)

    def __iter__(self) -> Iterator[Point | Histogram]:
        return starmap(self._make, self._items)


def _series_of(family: Family, state: State, *, opt_in: bool) -> _Lazy:
    loads = state.loads
    if family.measure == IN_PROGRESS:
        return _Lazy(loads.in_progress().items(), Point)
    if family.measure == ABANDONED:
        created: dict[Any, str] = loads.series
        counts = {**dict.fromkeys(created, 0), **loads.abandoned}
        return _Lazy(counts.items(), lambda labels, n: Point(labels, n, created.get(labels)))
    tables = state.detail if opt_in and family.has_opt_in else state.series
    return _Lazy(tables[family.name].items(), _MAKE[family.measure])


def _counter(labels: tuple[str, ...], series: Counted) -> Point:
    return Point(labels, series.value, series.created)


def _sum(labels: tuple[str, ...], series: Summed) -> Point:
    return Point(labels, to_float(series.total.units()), series.created)


def _gauge(labels: tuple[str, ...], series: Present | Latest) -> Point:
    return Point(labels, series.value)


def _histogram(labels: tuple[str, ...], observed: Observed) -> Histogram:
    counts, running = [], 0
    for count in observed.counts:
        running += count
        counts.append(running)
    return Histogram(
        labels,
        observed.bounds,
        counts,
        observed.exemplars,
        to_float(observed.total.units()),
        observed.created,
    )


_MAKE: dict[str, Callable[[tuple[str, ...], Any], Point | Histogram]] = {
    COUNT: _counter,
    SUM: _sum,
    HISTOGRAM: _histogram,
    LATEST: _gauge,
    PRESENCE: _gauge,
}
