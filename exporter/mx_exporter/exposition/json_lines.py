"""Samples to JSON: one object a series, each on a line of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from .samples import FamilySamples, Histogram, seconds
from .text import boundary_texts


def json_lines(families: Iterable[FamilySamples]) -> Iterator[bytes]:
    """One JSON object a series, each on a line of its own.

    ``name`` (as in a query, so a counter's ends in ``_total``), ``type`` and ``labels``; then
    ``value`` for counters and gauges, or ``buckets`` (an object from each upper boundary, as
    text, to its cumulative count), ``sum`` and ``count`` for histograms. Counters and
    histograms have ``created`` as well: seconds since the epoch. An infinity is the text
    ``+Inf`` or ``-Inf``, since JSON has none. A negative sum and its count are left out, as in
    OpenMetrics.
    """
    for family in families:
        for series in family.series:
            one: dict[str, Any] = {
                "name": family.name,
                "type": family.type,
                "labels": dict(zip(family.label_names, series.labels, strict=True)),
            }
            if isinstance(series, Histogram):
                bounds = boundary_texts(series.bounds)
                one["buckets"] = dict(zip(bounds, series.counts, strict=True))
                if series.sum >= 0:
                    one["count"] = series.count
                    one["sum"] = _number(series.sum)
            else:
                one["value"] = _number(series.value)
            if series.created:
                one["created"] = _number(seconds(series.created))
            yield orjson.dumps(one) + b"\n"


def _number(value: float) -> float | str:
    """Whole numbers without a fraction, as a reader of counts expects them."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value
