"""The exporter's own families: what it read, and what it does for its directory."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from ..directory.compaction import Compactor
from ..directory.follower import Follower
from ..directory.maintenance import Maintenance
from ..directory.ownership import STATES, Ownership
from ..directory.reading import IGNORED
from ..directory.shipper import WAYS, Shipper
from ..exposition.fold_metrics import by_label, counter, gauge


def reading_families(follower: Follower) -> Iterator[Metric]:
    """What the live exporter sees of its directory."""
    fold = follower.fold
    yield counter("mx_exporter_read_bytes_total", "Bytes read from segments.", follower.bytes_read)
    yield gauge(
        "mx_exporter_unread_bytes",
        "Bytes that the latest drain left unread for want of time.",
        follower.bytes_unread,
    )
    yield by_label(
        "mx_exporter_segments",
        "Segments in the directory: open ones have a writer, or something left to read.",
        "state",
        {
            "open": len(follower.segments) - follower.finished,
            "finished": follower.finished,
        },
        GaugeMetricFamily,
    )
    yield gauge(
        "mx_exporter_directory_bytes",
        "Size of our files in the directory.",
        follower.directory_bytes,
    )
    yield by_label(
        "mx_exporter_writers",
        "Processes that log (alive) or logged (gone).",
        "state",
        {"alive": follower.writers_alive, "gone": fold.state.gone},
        GaugeMetricFamily,
    )
    yield by_label(
        "mx_exporter_files_ignored",
        "Files with a segment's name that are not read, by reason.",
        "reason",
        {**dict.fromkeys(IGNORED, 0), **follower.ignored},
        GaugeMetricFamily,
    )
    yield counter(
        "mx_exporter_files_rewritten_total",
        "Segments seen to have shrunk or to have been replaced; they should only grow.",
        follower.rewritten,
    )


def maintenance_families(maintenance: Maintenance, follower: Follower) -> Iterator[Metric]:
    """What an exporter does for its directory besides reading it."""
    yield from keeping_families(maintenance.ownership, maintenance.compactor, follower)
    if maintenance.shipper is not None:
        yield from shipping_families(maintenance.shipper)


def keeping_families(
    ownership: Ownership, retention: Compactor, follower: Follower
) -> Iterator[Metric]:
    """Who owns the directory, and what became of its finished segments."""
    yield by_label(
        "mx_exporter_owner_state",
        "What this exporter is to the directory: 1 for the state it is in. "
        "Only an owner compacts it.",
        "state",
        {name: int(name == ownership.state) for name in STATES},
        GaugeMetricFamily,
    )
    yield counter(
        "mx_exporter_compactions_total",
        "Snapshots written for segments that were then removed.",
        retention.compactions,
    )
    yield counter(
        "mx_exporter_segments_removed_total",
        "Segments removed after a snapshot stood for them.",
        retention.removed,
    )
    yield counter(
        "mx_exporter_unshipped_segments_total",
        "Segments removed before they were shipped, so that the writers had room.",
        retention.unshipped,
    )
    yield gauge(
        "mx_exporter_retention_trouble",
        "1 while the directory cannot be compacted; the log says why.",
        int(bool(retention.trouble)),
    )
    yield gauge(
        "mx_exporter_snapshot_trouble",
        "1 while the snapshot cannot be used: what it stands for is missing from the metrics.",
        int(bool(follower.snapshot_trouble)),
    )


def shipping_families(shipper: Shipper) -> Iterator[Metric]:
    """What left the pod by the tee and the archive."""
    if shipper.tees:
        yield counter(
            "mx_exporter_lines_teed_total", "Event lines written to standard output.", shipper.lines
        )
    if shipper.archives:
        yield counter(
            "mx_exporter_segments_archived_total",
            "Segments put in the archive directory.",
            shipper.archived,
        )
    yield by_label(
        "mx_exporter_shipping_failures_total",
        "Tries to ship that failed, by where to.",
        "to",
        {**dict.fromkeys(WAYS, 0), **shipper.failures},
    )
    yield gauge(
        "mx_exporter_segments_pending",
        "Finished segments that were not shipped whole yet.",
        shipper.pending,
    )
