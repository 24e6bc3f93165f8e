"""Samples to a page, in the classic text format or in OpenMetrics.

``prometheus_client`` writes both formats; no other module makes its families. Creation times and
exemplars are for OpenMetrics; the classic text carries neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest as _classic
from prometheus_client.openmetrics.exposition import generate_latest as _openmetrics
from prometheus_client.utils import floatToGoString

from ..core import series
from .samples import FamilySamples, Histogram, seconds

#: What ends a page of OpenMetrics.
_END = b"# EOF\n"

#: An exemplar's label names and values together may have this many characters (OpenMetrics).
_EXEMPLAR_MAX = 128

_TYPES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Collected:
    """Families in the form that ``prometheus_client`` collects from a registry.

    Each is made when the writer comes to it, so that only one is in memory at a time.
    """

    def __init__(self, families: Iterable[FamilySamples], *, openmetrics: bool = False) -> None:
        self._families = families
        self._openmetrics = openmetrics

    def collect(self) -> Iterator[Metric]:
        """Make the families; at each call anew, where they are a sequence."""
        for family in self._families:
            yield _metric(family, self._openmetrics)


def render(families: Iterable[FamilySamples], *, openmetrics: bool = False) -> bytes:
    """The exposition of families, in the classic text format or in OpenMetrics."""
    write: Any = _openmetrics if openmetrics else _classic
    page: bytes = write(Collected(families, openmetrics=openmetrics))
    return page


def join(*pages: bytes) -> bytes:
    """One exposition of several in the same format that have no family in common."""
    *first, last = pages
    return b"".join([*(page.removesuffix(_END) for page in first), last])


@lru_cache(maxsize=64)
def boundary_texts(bounds: tuple[float, ...]) -> tuple[str, ...]:
    """Upper boundaries as the label ``le`` has them, the last bucket's included."""
    return (*map(floatToGoString, bounds), "+Inf")


def _metric(family: FamilySamples, openmetrics: bool) -> Metric:
    metric = _TYPES[family.type](family.name, family.help, labels=family.label_names)
    for one in family.series:
        if isinstance(one, Histogram):
            _add_histogram(metric, family, one, openmetrics)
        elif openmetrics and one.created:
            metric.add_metric(one.labels, one.value, created=seconds(one.created))
        else:
            metric.add_metric(one.labels, one.value)
    return metric  # type: ignore[no-any-return]


def _add_histogram(metric: Any, family: FamilySamples, one: Histogram, openmetrics: bool) -> None:
    labels = dict(zip(family.label_names, one.labels, strict=True))
    bounds, name = boundary_texts(one.bounds), f"{family.name}_bucket"
    for bound, count, last in zip(bounds, one.counts, one.exemplars, strict=True):
        exemplar = _exemplar(last) if openmetrics else None
        metric.add_sample(name, {**labels, "le": bound}, count, exemplar=exemplar)
    # OpenMetrics reads a sum as a counter, which is never negative, and wants sum and count
    # together or neither. The last bucket still holds the count.
    if one.sum >= 0 or not openmetrics:
        metric.add_sample(f"{family.name}_count", labels, one.count)
        metric.add_sample(f"{family.name}_sum", labels, one.sum)
    if openmetrics:
        metric.add_sample(f"{family.name}_created", labels, seconds(one.created))


def _exemplar(last: series.Exemplar | None) -> Exemplar | None:
    if last is None:
        return None
    timestamp, _, _, value, rank, load_id = last
    labels = {}
    if rank is not None:
        labels["rank"] = str(rank)
    if load_id is not None:
        labels["load_id"] = load_id.replace("\0", "\ufffd")
    if sum(len(name) + len(text) for name, text in labels.items()) > _EXEMPLAR_MAX:
        del labels["load_id"]
    return Exemplar(labels, value, seconds(timestamp))
