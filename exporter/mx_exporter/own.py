"""The exporter's own families: what it read, what came of it, what it could not use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .exposition import seconds
from .families import BY_NAME
from .fold import Fold
from .follow import IGNORED, Follower
from .ownership import STATES, Ownership
from .parse import REASONS
from .retention import Retention
from .shipping import WAYS, Shipper
from .state import State
from .steps import REFUSALS


def state_families(state: State) -> Iterator[Metric]:
    """The books and counts that every fold keeps, live or not."""
    yield _by("mx_exporter_events_folded_total", "Events folded, by event.", "event", state.events)
    yield _by(
        "mx_exporter_lines_rejected_total",
        "Lines that give no event, by reason.",
        "reason",
        {**dict.fromkeys(REASONS, 0), **state.rejected},
    )
    yield _by(
        "mx_exporter_observations_refused_total",
        "Events whose observation was refused, by reason.",
        "reason",
        {**dict.fromkeys(REFUSALS, 0), **state.refused},
    )
    yield _counter(
        "mx_exporter_events_skipped_total", "Events that no family knows.", state.skipped
    )
    yield _counter(
        "mx_exporter_duplicates_total",
        "Lines skipped because their process and number were met before.",
        state.duplicates,
    )
    yield _counter(
        "mx_exporter_events_logged_total",
        "Events that the ranks are known to have logged, by their numbers: "
        "folded, refused, skipped and lost together.",
        state.logged,
    )
    # Not a counter: a file that arrives late brings lost events back.
    yield _gauge(
        "mx_exporter_events_lost",
        "Events that were logged, by their numbers, and never met.",
        state.lost,
    )
    if state.last_event:
        yield _gauge(
            "mx_exporter_last_event_timestamp_seconds",
            "Time of the latest event, in seconds since the epoch.",
            seconds(state.last_event),
        )


def reading_families(follower: Follower) -> Iterator[Metric]:
    """What the live exporter sees of its directory."""
    fold = follower.fold
    yield _counter("mx_exporter_read_bytes_total", "Bytes read from segments.", follower.bytes_read)
    yield _gauge(
        "mx_exporter_unread_bytes",
        "Bytes that the latest drain left unread for want of time.",
        follower.bytes_unread,
    )
    yield _by(
        "mx_exporter_segments",
        "Segments in the directory: open ones have a writer, or something left to read.",
        "state",
        {
            "open": len(follower.segments) - follower.finished,
            "finished": follower.finished,
        },
        GaugeMetricFamily,
    )
    yield _gauge(
        "mx_exporter_directory_bytes",
        "Size of our files in the directory.",
        follower.directory_bytes,
    )
    yield _by(
        "mx_exporter_writers",
        "Processes that log (alive) or logged (gone).",
        "state",
        {"alive": follower.writers_alive, "gone": fold.state.gone},
        GaugeMetricFamily,
    )
    yield _by(
        "mx_exporter_files_ignored",
        "Files with a segment's name that are not read, by reason.",
        "reason",
        {**dict.fromkeys(IGNORED, 0), **follower.ignored},
        GaugeMetricFamily,
    )
    yield _counter(
        "mx_exporter_files_rewritten_total",
        "Segments seen to have shrunk or to have been replaced; they should only grow.",
        follower.rewritten,
    )


def capped_families(fold: Fold, *, source_id_label: bool) -> Iterator[Metric]:
    """Which families hold no more series because of the series cap, and what that cost."""
    capped = fold.capped(opt_in=source_id_label)
    yield _by(
        "mx_exporter_series_capped",
        "1 where a family refused a new label set because of the series cap.",
        "family",
        {name: int(name in capped) for name in BY_NAME},
        GaugeMetricFamily,
    )
    yield _by(
        "mx_exporter_series_refused_total",
        "Observations that found no series because of the series cap, by family.",
        "family",
        {name: capped.get(name, 0) for name in BY_NAME},
    )


def keeping_families(
    ownership: Ownership, retention: Retention, follower: Follower
) -> Iterator[Metric]:
    """Who owns the directory, and what became of its finished segments."""
    yield _by(
        "mx_exporter_owner_state",
        "What this exporter is to the directory: 1 for the state it is in. "
        "Only an owner compacts it.",
        "state",
        {name: int(name == ownership.state) for name in STATES},
        GaugeMetricFamily,
    )
    yield _counter(
        "mx_exporter_compactions_total",
        "Snapshots written for segments that were then removed.",
        retention.compactions,
    )
    yield _counter(
        "mx_exporter_segments_removed_total",
        "Segments removed after a snapshot stood for them.",
        retention.removed,
    )
    yield _counter(
        "mx_exporter_unshipped_segments_total",
        "Segments removed before they were shipped, so that the writers had room.",
        retention.unshipped,
    )
    yield _gauge(
        "mx_exporter_retention_trouble",
        "1 while the directory cannot be compacted; the log says why.",
        int(bool(retention.trouble)),
    )
    yield _gauge(
        "mx_exporter_snapshot_trouble",
        "1 while the snapshot cannot be used: what it stands for is missing from the metrics.",
        int(bool(follower.snapshot_trouble)),
    )


def shipping_families(shipper: Shipper) -> Iterator[Metric]:
    """What left the pod by the tee and the archive."""
    if shipper.tees:
        yield _counter(
            "mx_exporter_lines_teed_total", "Event lines written to standard output.", shipper.lines
        )
    if shipper.archives:
        yield _counter(
            "mx_exporter_segments_archived_total",
            "Segments put in the archive directory.",
            shipper.archived,
        )
    yield _by(
        "mx_exporter_shipping_failures_total",
        "Tries to ship that failed, by where to.",
        "to",
        {**dict.fromkeys(WAYS, 0), **shipper.failures},
    )
    yield _gauge(
        "mx_exporter_segments_pending",
        "Finished segments that were not shipped whole yet.",
        shipper.pending,
    )


def _by(
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


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
