"""Samples to a page, in the classic text format or in OpenMetrics.

``prometheus_client`` writes both formats; no other module makes its families. Creation times and
exemplars are for OpenMetrics; the classic text carries neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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
from .samples import FamilySamples, Histogram, Point, seconds

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
    """Families in the form that ``prometheus_client`` collects from a registry, without creation
    times and exemplars. Each is made when the writer comes to it."""

    def __init__(self, families: Sequence[FamilySamples]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Make the families, at each call anew."""
        for family in self._families:
            yield _metric(family, False)


class _Given(NamedTuple):
    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics


def render(families: Iterable[FamilySamples], *, openmetrics: bool = False) -> bytes:
    """The exposition of families, in the classic text format or in OpenMetrics."""
    return page((family_text(family, openmetrics=openmetrics) for family in families), openmetrics)


def page(texts: Iterable[bytes], openmetrics: bool) -> bytes:
    """The exposition that texts of families in that format give together."""
    return b"".join([*texts, _END] if openmetrics else texts)


def family_text(family: FamilySamples, *, openmetrics: bool = False) -> bytes:
    """A family as it stands on a page."""
    return _write(_metric(family, openmetrics), openmetrics)


def series_texts(family: FamilySamples, *, openmetrics: bool = False) -> tuple[bytes, list[bytes]]:
    """The same in parts: what comes before the series, and each series."""
    head = _write(_empty(family), openmetrics)
    metric = _empty(family)
    ends = []
    for one in family.series:
        _add(metric, family, one, openmetrics)
        ends.append(len(metric.samples))
    # A sample is a line: a line's end within a label is escaped.
    lines = _write(metric, openmetrics).removeprefix(head).split(b"\n")
    begins = [0, *ends]
    return head, [
        b"\n".join([*lines[begin:end], b""]) for begin, end in zip(begins, ends, strict=False)
    ]


def page_end() -> bytes:
    """What ends a page of OpenMetrics."""
    return _END


def number_text(value: float) -> str:
    """A value as a page has it."""
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    """Labels as a line has them, in the order that is given; a page has them by name. The library
    has no way to write a line alone."""
    pairs = [f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels]
    return f"{{{','.join(pairs)}}}" if pairs else ""


@lru_cache(maxsize=64)
def boundary_texts(bounds: tuple[float, ...]) -> tuple[str, ...]:
    """Upper boundaries as the label ``le`` has them, the last bucket's included."""
    return (*map(floatToGoString, bounds), "+Inf")


def _write(metric: Metric, openmetrics: bool) -> bytes:
    write: Any = _openmetrics if openmetrics else _classic
    try:
        text: bytes = write(_Given([metric]))
    except Exception as error:
        # The writer adds the whole metric, which fills a screen.
        error.args = tuple(one for one in error.args if one is not metric)
        raise
    return text.removesuffix(_END) if openmetrics else text


def _metric(family: FamilySamples, openmetrics: bool) -> Metric:
    metric = _empty(family)
    for one in family.series:
        _add(metric, family, one, openmetrics)
    return metric


def _empty(family: FamilySamples) -> Metric:
    return _TYPES[family.type](family.name, family.help, labels=family.label_names)  # type: ignore[no-any-return]


def _add(metric: Any, family: FamilySamples, one: Point | Histogram, openmetrics: bool) -> None:
    if isinstance(one, Histogram):
        _add_histogram(metric, family, one, openmetrics)
    elif openmetrics and one.created:
        metric.add_metric(one.labels, one.value, created=seconds(one.created))
    else:
        metric.add_metric(one.labels, one.value)


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
    if openmetrics and one.created:
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
