"""Samples: what a page says, before it is written in any format.

A family comes with its series in the order of their label values, so that the same state always
gives the same samples. Timestamps stay as the log has them, RFC 3339 in UTC; whoever shows one as
a number takes `seconds`.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..core.catalog import ABANDONED, HISTOGRAM, IN_PROGRESS, Catalog, Family
from ..core.exact_sum import to_float
from ..core.load_tracker import Loads
from ..core.series import Exemplar, Observed, Summed
from ..core.state import State


@dataclass(frozen=True, slots=True)
class Point:
    """One series of a counter or a gauge.

    :ivar labels: label values, in the order of the family's label names.
    :ivar created: timestamp of the first event that a counter stands for; None: not known.
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
    :ivar created: timestamp of the first observation.
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
    :ivar series: points, or histograms where that is the type.
    """

    name: str
    type: str
    help: str
    label_names: tuple[str, ...]
    series: Sequence[Point | Histogram]


def derived_families(
    catalog: Catalog, state: State, *, source_id_label: bool = False
) -> Iterator[FamilySamples]:
    """The families of a state in the catalogue's order, those without a series left out.

    :param source_id_label: show the labels that are shown only when asked for.
    """
    for family in catalog.families:
        series = _series_of(family, state, opt_in=source_id_label)
        if series:
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


def _series_of(family: Family, state: State, *, opt_in: bool) -> list[Any]:
    if family.measure == IN_PROGRESS:
        return [Point(labels, n) for labels, n in sorted(state.loads.in_progress().items())]
    if family.measure == ABANDONED:
        return _abandoned(state.loads)
    tables = state.detail if opt_in and family.has_opt_in else state.series
    # No two of them have the same labels, so the series are never compared.
    table: list[tuple[tuple[str, ...], Any]] = sorted(tables[family.name].items())
    if family.measure == HISTOGRAM:
        return [_histogram(labels, observed) for labels, observed in table]
    if family.type == "counter":
        return [Point(labels, _value(series), series.created) for labels, series in table]
    return [Point(labels, _value(series)) for labels, series in table]


def _abandoned(loads: Loads) -> list[Point]:
    labels_met = sorted(loads.series.keys() | loads.abandoned.keys())
    return [
        Point(labels, loads.abandoned.get(labels, 0), loads.series.get(labels))
        for labels in labels_met
    ]


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


def _value(series: Any) -> float:
    if isinstance(series, Summed):
        return to_float(series.total.units())
    value: float = series.value
    return value
