"""Samples: the content of a page, before it is written in any format.

A family comes with its series in the order of their label values, so that the same state always
gives the same samples. Timestamps stay as the log has them, RFC 3339 in UTC; `seconds` gives one
as a number.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from ..core.catalog import (
    ABANDONED,
    COUNT,
    HISTOGRAM,
    IN_PROGRESS,
    LATEST,
    PRESENCE,
    SUM,
    VALUE,
    Catalog,
    Family,
)
from ..core.exact_sum import to_float
from ..core.load_tracker import Loads
from ..core.reducers import NEVER
from ..core.series import Counted, Exemplar, Latest, Observed, Present, Summed
from ..core.series_cap import hidden, oldest
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
    :ivar created: smallest timestamp of an observed event; None where it is not to be shown.
    """

    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    counts: Sequence[int]
    exemplars: Sequence[Exemplar | None]
    sum: float
    created: str | None

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


class Collector(NamedTuple):
    """What gives families for a page. If it raises, it costs these alone (`renderer`).

    :ivar name: of its family, or of what its families have in common.
    """

    name: str
    collect: Callable[[], Iterable[FamilySamples]]


def derived_collectors(
    catalog: Catalog,
    state: State,
    *,
    source_id_label: bool = False,
    created: bool = True,
    max_series: int | None = None,
) -> Iterator[Collector]:
    """The families of a state in the catalogue's order, those without a series left out.

    :param source_id_label: show the labels that are shown only when asked for.
    :param created: with creation times.
    :param max_series: most series of a family: the oldest are shown. None: all are.
    """
    derive = partial(
        _derive, state=state, opt_in=source_id_label, created=created, max_series=max_series
    )
    for family in catalog.families:
        yield Collector(family.name, partial(derive, family))


def derived_families(
    catalog: Catalog, state: State, *, source_id_label: bool = False, max_series: int | None = None
) -> Iterator[FamilySamples]:
    """The same as families. Parameters as for `derived_collectors`."""
    for collector in derived_collectors(
        catalog, state, source_id_label=source_id_label, max_series=max_series
    ):
        yield from collector.collect()


def hidden_series(
    catalog: Catalog, state: State, *, source_id_label: bool, max_series: int | None
) -> dict[str, int]:
    """By family: how many series are not shown. Parameters as for `derived_collectors`."""
    return {
        family.name: hidden(len(_series_of(family, state, opt_in=source_id_label)), max_series)
        for family in catalog.families
    }


@lru_cache(maxsize=4096)
def seconds(timestamp: str) -> float:
    """An event's timestamp in seconds since the epoch."""
    date, _, time = timestamp.partition("T")
    year, month, day = map(int, date.split("-"))
    hour, minute, second = time[:8].split(":")
    whole = timegm((year, month, day, int(hour), int(minute), int(second)))
    return whole + int(time[9:15]) / 1e6


Labels = tuple[str, ...]


class TableSeries(Collection["Point | Histogram"]):
    """The series of a table, each made when it is come to.

    All at once, they would make the garbage collector walk through the whole state more often.

    :param table: label values -> what was accumulated under them.
    :param make: makes a series of both.
    :param mark: gives what tells whether a series is what it was: another value whenever ``make``
        would make another one.
    :param created: gives the timestamp by which the age of a series is told.
    """

    def __init__(
        self,
        table: Mapping[Labels, Any],
        make: Callable[[Labels, Any], Point | Histogram],
        mark: Callable[[Any], object],
        created: Callable[[Any], str],
    ) -> None:
        self._table = table
        self._make = make
        self._mark = mark
        self._created = created

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, one: object) -> bool:
        return any(one == each for each in self)

    def __iter__(self) -> Iterator[Point | Histogram]:
        return map(self.sample, sorted(self._table))

    def oldest(self, count: int | None) -> TableSeries:
        """So many of them, or all."""
        if count is None or len(self) <= count:
            return self
        shown = {
            labels: self._table[labels] for labels in oldest(self._table, count, self._created)
        }
        return TableSeries(shown, self._make, self._mark, self._created)

    def marks(self) -> Iterator[tuple[Labels, object]]:
        """Label values and marks, in no order."""
        return zip(self._table, map(self._mark, self._table.values()), strict=True)

    def sample(self, labels: Labels) -> Point | Histogram:
        """The series of these label values."""
        return self._make(labels, self._table[labels])

    def without_created(self) -> TableSeries:
        """The same without creation times."""

        def make(labels: Labels, value: Any) -> Point | Histogram:
            return replace(self._make(labels, value), created=None)

        return TableSeries(self._table, make, self._mark, self._created)


def _derive(
    family: Family, *, state: State, opt_in: bool, created: bool, max_series: int | None
) -> list[FamilySamples]:
    series = _series_of(family, state, opt_in=opt_in).oldest(max_series)
    if not series:
        return []
    if not created:
        series = series.without_created()
    names = family.label_names(opt_in=opt_in)
    return [FamilySamples(family.name, family.type, family.help, names, series)]


def _series_of(family: Family, state: State, *, opt_in: bool) -> TableSeries:
    if family.measure in _LOADS:
        count, make_load = _LOADS[family.measure]
        counts, created = count(state.loads), state.loads.series
        table = {at: (counts.get(at, 0), created.get(at)) for at in counts.keys() | created}
        # One that no event is known to have named is the youngest.
        return TableSeries(table, make_load, lambda load: load, lambda load: load[1] or NEVER)
    tables = state.detail if opt_in and family.has_opt_in else state.series
    make, mark = _MAKE[family.measure], methodcaller("mark")
    return TableSeries(tables[family.name], make, mark, attrgetter("created"))


def _in_progress(labels: Labels, load: tuple[int, str | None]) -> Point:
    return Point(labels, load[0])


def _abandoned(labels: Labels, load: tuple[int, str | None]) -> Point:
    return Point(labels, *load)


def _counter(labels: Labels, series: Counted) -> Point:
    return Point(labels, series.value, series.created)


def _sum(labels: Labels, series: Summed) -> Point:
    return Point(labels, to_float(series.total.units()), series.created)


def _gauge(labels: Labels, series: Present | Latest) -> Point:
    return Point(labels, series.value)


def _histogram(labels: Labels, observed: Observed) -> Histogram:
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


_LOADS: dict[str, tuple[Callable[[Loads], Mapping[Any, int]], Callable[[Labels, Any], Point]]] = {
    IN_PROGRESS: (Loads.in_progress, _in_progress),
    ABANDONED: (attrgetter("abandoned"), _abandoned),
}

_MAKE: dict[str, Callable[[Labels, Any], Point | Histogram]] = {
    COUNT: _counter,
    SUM: _sum,
    HISTOGRAM: _histogram,
    LATEST: _gauge,
    VALUE: _gauge,
    PRESENCE: _gauge,
}
