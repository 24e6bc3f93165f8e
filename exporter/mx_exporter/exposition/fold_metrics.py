"""Families about the fold itself: the books, what was rejected and refused, the series cap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..core.builtin import BY_NAME
from ..core.decode import REASONS
from ..core.fold import Fold
from ..core.reducers import REFUSALS
from ..core.state import State
from .text import seconds


def state_families(state: State) -> Iterator[Metric]:
    """The books and counts that every fold keeps, live or not."""
    yield by_label(
        "mx_exporter_events_folded_total", "Events folded, by event.", "event", state.events
    )
    yield by_label(
        "mx_exporter_lines_rejected_total",
        "Lines that give no event, by reason.",
        "reason",
        {**dict.fromkeys(REASONS, 0), **state.rejected},
    )
    yield by_label(
        "mx_exporter_observations_refused_total",
        "Events whose observation was refused, by reason.",
        "reason",
        {**dict.fromkeys(REFUSALS, 0), **state.refused},
    )
    yield counter("mx_exporter_events_skipped_total", "Events that no family knows.", state.skipped)
    yield counter(
        "mx_exporter_duplicates_total",
        "Lines skipped because their process and number were met before.",
        state.duplicates,
    )
    yield counter(
        "mx_exporter_events_logged_total",
        "Events that the ranks are known to have logged, by their numbers: "
        "folded, refused, skipped and lost together.",
        state.logged,
    )
    # Not a counter: a file that arrives late brings lost events back.
    yield gauge(
        "mx_exporter_events_lost",
        "Events that were logged, by their numbers, and never met.",
        state.lost,
    )
    if state.last_event:
        yield gauge(
            "mx_exporter_last_event_timestamp_seconds",
            "Time of the latest event, in seconds since the epoch.",
            seconds(state.last_event),
        )


def capped_families(fold: Fold, *, source_id_label: bool) -> Iterator[Metric]:
    """Which families hold no more series because of the series cap, and what that cost."""
    capped = fold.capped(opt_in=source_id_label)
    yield by_label(
        "mx_exporter_series_capped",
        "1 where a family refused a new label set because of the series cap.",
        "family",
        {name: int(name in capped) for name in BY_NAME},
        GaugeMetricFamily,
    )
    yield by_label(
        "mx_exporter_series_refused_total",
        "Observations that found no series because of the series cap, by family.",
        "family",
        {name: capped.get(name, 0) for name in BY_NAME},
    )


def by_label(
    name: str,
    text: str,
    label: str,
    values: Mapping[str, float],
    kind: type[Metric] = CounterMetricFamily,
) -> Metric:
    family = kind(name, text, labels=[label])  # type: ignore[call-arg]
    for value in sorted(values):
        family.add_metric([value], values[value])  # type: ignore[attr-defined]
    return family


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
