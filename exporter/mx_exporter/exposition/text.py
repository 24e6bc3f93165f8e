"""State to page: families of ``prometheus_client``, and the two text formats.

Series come in the order of their label values, so that the same state always gives the same
bytes. ``_created`` and exemplars are for OpenMetrics; the classic text carries neither.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry
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

from ..core import series as kinds
from ..core.builtin import FAMILIES
from ..core.catalog import ABANDONED, HISTOGRAM, IN_PROGRESS, Family
from ..core.exact_sum import to_float
from ..core.state import SeriesByLabels, State

CLASSIC_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: What ends a page of OpenMetrics.
_END = b"# EOF\n"

#: An exemplar's label names and values together may have this many characters (OpenMetrics).
_EXEMPLAR_MAX = 128


def families(
    state: State, *, source_id_label: bool = False, openmetrics: bool = False
) -> Iterator[Metric]:
    """The families of a state, those without a series left out.

    ``source_id_label`` shows the opt-in label ``source_worker_id``; ``openmetrics`` adds
    creation times and exemplars.
    """
    for family in FAMILIES:
        table: SeriesByLabels = state.series[family.name]
        if source_id_label and family.has_opt_in:
            table = state.detail[family.name]
        metric = _metric(family, source_id_label)
        if family.measure == IN_PROGRESS:
            for running, count in sorted(state.loads.in_progress().items()):
                metric.add_metric(running, count)
        elif family.measure == ABANDONED:
            _add_abandoned(metric, state, openmetrics)
        elif family.measure == HISTOGRAM:
            for labels, series in sorted(table.items(), key=_by_labels):
                _add_histogram(metric, family, labels, series, openmetrics)
        else:
            for labels, series in sorted(table.items(), key=_by_labels):
                if family.type == "counter":
                    created = seconds(series.created) if openmetrics else None
                    metric.add_metric(labels, _value(series), created=created)
                else:
                    metric.add_metric(labels, _value(series))
        if metric.samples:
            yield metric


def render(metrics: Iterable[Metric], *, openmetrics: bool = False) -> bytes:
    """The exposition of families, in the classic text format or in OpenMetrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(list(metrics)))
    page: bytes = (_openmetrics if openmetrics else _classic)(registry)
    return page


def join(*pages: bytes) -> bytes:
    """One exposition of several in the same format that have no family in common."""
    *first, last = pages
    return b"".join([*(page.removesuffix(_END) for page in first), last])


@lru_cache(maxsize=4096)
def seconds(timestamp: str) -> float:
    """An event's timestamp in seconds since the epoch."""
    date, _, time = timestamp.partition("T")
    year, month, day = map(int, date.split("-"))
    hour, minute, second = time[:8].split(":")
    whole = timegm((year, month, day, int(hour), int(minute), int(second)))
    return whole + int(time[9:15]) / 1e6


class _Once:
    """A collector over families that were made already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _by_labels(item: tuple[tuple[str, ...], Any]) -> tuple[str, ...]:
    return item[0]


def _metric(family: Family, opt_in: bool) -> Any:
    kind = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }[family.type]
    return kind(family.name, family.help, labels=family.label_names(opt_in=opt_in))


def _value(series: kinds.Series) -> float:
    if isinstance(series, kinds.Summed):
        return to_float(series.total.units())
    assert not isinstance(series, kinds.Observed)
    return series.value


def _add_abandoned(metric: Any, state: State, openmetrics: bool) -> None:
    loads = state.loads
    for labels in sorted(loads.series.keys() | loads.abandoned.keys()):
        since = loads.series.get(labels)
        created = seconds(since) if openmetrics and since else None
        metric.add_metric(labels, loads.abandoned.get(labels, 0), created=created)


def _add_histogram(
    metric: Any, family: Family, values: tuple[str, ...], series: Any, openmetrics: bool
) -> None:
    labels = dict(zip(family.label_names(), values, strict=True))
    running = 0
    bounds = (*map(floatToGoString, family.buckets), "+Inf")
    for bound, count, last in zip(bounds, series.counts, series.exemplars, strict=True):
        running += count
        metric.add_sample(
            f"{family.name}_bucket",
            {**labels, "le": bound},
            running,
            exemplar=_exemplar(last) if openmetrics else None,
        )
    total = to_float(series.total.units())
    # OpenMetrics reads a sum as a counter, which is never negative, and wants sum and count
    # together or neither. The last bucket still holds the count.
    if total >= 0 or not openmetrics:
        metric.add_sample(f"{family.name}_count", labels, running)
        metric.add_sample(f"{family.name}_sum", labels, total)
    if openmetrics:
        metric.add_sample(f"{family.name}_created", labels, seconds(series.created))


def _exemplar(last: kinds.Exemplar | None) -> Exemplar | None:
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
