"""State to JSON: one object a series, each on a line of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import orjson

from ..core.state import State
from .text import families


def json_lines(state: State, *, source_id_label: bool = False) -> Iterator[bytes]:
    """One JSON object a series, each on a line of its own.

    ``name`` (as in a query, so a counter's ends in ``_total``), ``type`` and ``labels``; then
    ``value`` for counters and gauges, or ``buckets`` (an object from each upper boundary, as
    text, to its cumulative count), ``sum`` and ``count`` for histograms. Counters and
    histograms have ``created`` as well: seconds since the epoch. An infinity is the text
    ``+Inf`` or ``-Inf``, since JSON has none.
    """
    metrics = families(state, source_id_label=source_id_label, openmetrics=True)
    for metric in metrics:
        kind = metric.type
        series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for sample in metric.samples:
            labels = dict(sample.labels)
            boundary = labels.pop("le", None) if kind == "histogram" else None
            one = series.setdefault(
                tuple(labels.items()),
                {
                    "name": f"{metric.name}_total" if kind == "counter" else metric.name,
                    "type": kind,
                    "labels": labels,
                },
            )
            part = sample.name.removeprefix(metric.name)
            if part == "_bucket":
                one.setdefault("buckets", {})[boundary] = _number(sample.value)
            elif part in ("_sum", "_count", "_created"):
                one[part[1:]] = _number(sample.value)
            else:
                one["value"] = _number(sample.value)
        for one in series.values():
            yield orjson.dumps(one) + b"\n"


def _number(value: float) -> float | str:
    """Whole numbers without a fraction, as a reader of counts expects them."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value
