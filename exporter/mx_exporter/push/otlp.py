"""OTLP over HTTP: what families show now, as OpenTelemetry has metrics.

Counters are cumulative sums, without the ``_total`` of their names, which whatever writes them for
Prometheus adds again; histograms keep their boundaries. Labels are attributes. What is told of the
pod is the resource, by OpenTelemetry's semantic conventions.
"""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from mx_log.schema import VERSION

from ..errors import MxError
from ..exposition.samples import FamilySamples, Histogram, Point, seconds
from .post import Poster, Target

logger = logging.getLogger(__name__)

_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}

#: The statuses after which OTLP has a request sent again.
_AGAIN = frozenset({429, 502, 503, 504})

_CUMULATIVE = otlp.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def metrics_address(url: str) -> str:
    """Where metrics are posted to, of the address of a receiver: that of its root means
    ``/v1/metrics`` below it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path="/v1/metrics")) if parts.path in ("", "/") else url


def send_families(
    families: Iterable[FamilySamples],
    resource: Mapping[str, str],
    to: Target,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Send what families show now.

    :param resource: attributes of what they are of.
    :raises MxError: they were refused, all or some, or it failed again and again.
    """
    body = request(families, resource, time.time_ns()).SerializeToString()
    answer = Poster(to, _HEADERS, _AGAIN.__contains__, pause).send(gzip.compress(body, 6))
    try:
        said = ExportMetricsServiceResponse.FromString(answer).partial_success
    except Exception:  # noqa: BLE001 - it was taken, and its answer is none of OTLP
        return
    if said.rejected_data_points:
        raise MxError(
            f"{to.shown}: it refused {said.rejected_data_points} data points: {said.error_message}"
        )
    if said.error_message:
        logger.warning("%s: %s", to.shown, said.error_message)


def request(
    families: Iterable[FamilySamples], resource: Mapping[str, str], now: int
) -> ExportMetricsServiceRequest:
    """The message.

    :param now: nanoseconds since 1970.
    """
    scope = otlp.ScopeMetrics(
        scope=InstrumentationScope(name="mx-metrics", version=VERSION),
        metrics=[_metric(family, now) for family in families],
    )
    of = otlp.ResourceMetrics(
        resource=Resource(attributes=_attributes(resource.items())), scope_metrics=[scope]
    )
    return ExportMetricsServiceRequest(resource_metrics=[of])


def _metric(family: FamilySamples, now: int) -> otlp.Metric:
    metric = otlp.Metric(name=family.name, description=family.help)
    points = _points(family, now)
    if family.type == "counter":
        metric.name = family.name.removesuffix("_total")
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = _CUMULATIVE
        metric.sum.data_points.extend(points)
    elif family.type == "histogram":
        metric.histogram.aggregation_temporality = _CUMULATIVE
        metric.histogram.data_points.extend(_distributions(family, now))
    else:
        metric.gauge.data_points.extend(points)
    return metric


def _points(family: FamilySamples, now: int) -> Iterator[otlp.NumberDataPoint]:
    for series in family.series:
        if isinstance(series, Point):
            yield otlp.NumberDataPoint(
                attributes=_labels(family, series.labels),
                start_time_unix_nano=_nanoseconds(series.created),
                time_unix_nano=now,
                as_double=series.value,
            )


def _distributions(family: FamilySamples, now: int) -> Iterator[otlp.HistogramDataPoint]:
    for series in family.series:
        if isinstance(series, Histogram):
            yield otlp.HistogramDataPoint(
                attributes=_labels(family, series.labels),
                start_time_unix_nano=_nanoseconds(series.created),
                time_unix_nano=now,
                count=series.count,
                # Of observations that may be negative OTLP wants none, since it may fall.
                sum=series.sum if series.sum >= 0 else None,
                explicit_bounds=series.bounds,
                bucket_counts=[here - below for below, here in pairwise([0, *series.counts])],
                exemplars=_exemplars(series),
            )


def _exemplars(series: Histogram) -> list[otlp.Exemplar]:
    return [
        otlp.Exemplar(
            time_unix_nano=_nanoseconds(timestamp),
            as_double=value,
            filtered_attributes=_attributes(
                (name, said)
                for name, said in (
                    ("load_id", load_id or ""),
                    ("rank", "" if rank is None else str(rank)),
                )
                if said
            ),
        )
        for timestamp, _, _, value, rank, load_id in filter(None, series.exemplars)
    ]


def _labels(family: FamilySamples, values: Sequence[str]) -> list[KeyValue]:
    return _attributes(zip(family.label_names, values, strict=True))


def _attributes(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [
        KeyValue(key=key, value=AnyValue(string_value=value.encode("utf-8", "replace").decode()))
        for key, value in pairs
    ]


def _nanoseconds(timestamp: str | None) -> int:
    """An event's time since 1970; 0, which means that it is not known, where there is none."""
    return 0 if timestamp is None else round(seconds(timestamp) * 1e6) * 1000
