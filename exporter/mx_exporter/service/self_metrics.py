"""The exporter's own families: what it reads, what it does for its directory, what it is."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.process_collector import ProcessCollector

from mx_log.schema import VERSION

from ..core.load_tracker import LoadLabels
from ..directory import diagnosis, ownership
from ..directory.follower import Follower
from ..directory.maintenance import Maintenance
from ..directory.reading import IGNORED
from ..directory.shipper import WAYS, Shipper
from ..exposition.renderer import Failures
from ..exposition.rows import Row, Values, row_collectors
from ..exposition.samples import Collector, FamilySamples, Point, seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """What the own families are read from.

    :ivar drain_seconds: duration of the latest drain.
    :ivar diagnose: gives the diagnosis of that drain.
    :ivar failures: what was left out of pages.
    :ivar loads_since: gives when the oldest load that runs began, by its labels (`Loads.oldest`).
    :ivar now: seconds since the epoch.
    :ivar late: pages that were made after their scrape's time-out.
    """

    follower: Follower
    maintenance: Maintenance
    drain_seconds: float
    diagnose: Callable[[], diagnosis.Diagnosis]
    failures: Failures
    late: int
    loads_since: Callable[[], Mapping[LoadLabels, str]]
    now: float

    def load_seconds(self) -> dict[tuple[str, ...], float]:
        """How long the oldest load has been running, by its labels; 0 where none runs."""
        return {
            # A clock that was set back, or another machine's, makes no load younger than new.
            labels: max(0.0, self.now - seconds(since)) if since else 0.0
            for labels, since in self.loads_since().items()
        }


def _where_shipped(
    values: Callable[[Shipper], Values | None],
) -> Callable[[Reading], Values | None]:
    """For families that show only where the log is shipped."""

    def read(reading: Reading) -> Values | None:
        shipper = reading.maintenance.shipper
        return None if shipper is None else values(shipper)

    return read


#: The families of a live exporter, beside those of the fold (`exposition.fold_metrics`).
ROWS: tuple[Row[Reading], ...] = (
    Row(
        "mx_exporter_read_bytes_total",
        "counter",
        "Bytes read from segments.",
        lambda reading: reading.follower.bytes_read,
    ),
    Row(
        "mx_exporter_unread_bytes",
        "gauge",
        "Bytes that the latest drain left unread for want of time.",
        lambda reading: reading.follower.bytes_unread,
    ),
    Row(
        "mx_exporter_segments",
        "gauge",
        "Segments in the directory: open ones have a writer, or something left to read.",
        lambda reading: {
            "open": len(reading.follower.segments) - reading.follower.finished,
            "finished": reading.follower.finished,
        },
        ("state",),
    ),
    Row(
        "mx_exporter_directory_bytes",
        "gauge",
        "Size of our files in the directory.",
        lambda reading: reading.follower.directory_bytes,
    ),
    # Nothing in the log says what the writers were given.
    Row(
        "mx_exporter_directory_limit_bytes",
        "gauge",
        "`MX_METRICS_MAX_BYTES` as the exporter has it, or half of the volume if that is less; "
        "writers that have the same drop events when our files take so much.",
        lambda reading: reading.maintenance.limit_bytes,
    ),
    Row(
        "mx_exporter_writers",
        "gauge",
        "Processes that log (alive) or logged (gone).",
        lambda reading: {
            "alive": reading.follower.writers_alive,
            "gone": reading.follower.fold.state.gone,
        },
        ("state",),
    ),
    Row(
        "mx_exporter_files_ignored",
        "gauge",
        "Files with a segment's name that are not read, by reason.",
        lambda reading: reading.follower.ignored,
        ("reason",),
        IGNORED,
    ),
    Row(
        "mx_exporter_files_rewritten_total",
        "counter",
        "Segments seen to have shrunk or to have been replaced; they should only grow.",
        lambda reading: reading.follower.rewritten,
    ),
    Row(
        "mx_exporter_owner_state",
        "gauge",
        "What this exporter is to the directory: 1 for the state it is in. "
        "Only an owner compacts it.",
        lambda reading: {reading.maintenance.ownership.state: 1},
        ("state",),
        ownership.STATES,
    ),
    Row(
        "mx_exporter_compactions_total",
        "counter",
        "Snapshots written for segments that were then removed.",
        lambda reading: reading.maintenance.compactor.compactions,
    ),
    Row(
        "mx_exporter_segments_removed_total",
        "counter",
        "Segments removed after a snapshot stood for them.",
        lambda reading: reading.maintenance.compactor.removed,
    ),
    Row(
        "mx_exporter_unshipped_segments_total",
        "counter",
        "Segments removed before they were shipped, so that the writers had room.",
        lambda reading: reading.maintenance.compactor.unshipped,
    ),
    Row(
        "mx_exporter_retention_trouble",
        "gauge",
        "1 while the directory cannot be compacted; the log says why.",
        lambda reading: int(bool(reading.maintenance.compactor.trouble)),
    ),
    Row(
        "mx_exporter_snapshot_trouble",
        "gauge",
        "1 while the snapshot cannot be used: what it stands for is missing from the metrics.",
        lambda reading: int(bool(reading.follower.snapshot_trouble)),
    ),
    Row(
        "mx_exporter_lines_teed_total",
        "counter",
        "Event lines written to standard output.",
        _where_shipped(lambda shipper: shipper.lines if shipper.tees else None),
    ),
    Row(
        "mx_exporter_segments_archived_total",
        "counter",
        "Segments put in the archive directory.",
        _where_shipped(lambda shipper: shipper.archived if shipper.archives else None),
    ),
    Row(
        "mx_exporter_shipping_failures_total",
        "counter",
        "Tries to ship that failed, by where to.",
        _where_shipped(lambda shipper: shipper.failures),
        ("to",),
        WAYS,
    ),
    Row(
        "mx_exporter_segments_pending",
        "gauge",
        "Finished segments that were not shipped whole yet.",
        _where_shipped(lambda shipper: shipper.pending),
    ),
    Row(
        "mx_exporter_oldest_load_seconds",
        "gauge",
        "Time since the start of the load that has been in progress for longest, by where it is "
        "now; 0 where none is.",
        Reading.load_seconds,
        ("engine", "model", "phase", "scheme"),
    ),
    Row(
        "mx_exporter_build_info",
        "gauge",
        "Version of the exporter; always 1.",
        lambda _: {(VERSION, platform.python_version()): 1},
        ("version", "python"),
    ),
    Row(
        "mx_exporter_last_drain_seconds",
        "gauge",
        "Duration of the latest drain of the directory.",
        lambda reading: reading.drain_seconds,
    ),
    Row(
        "mx_exporter_directory_state",
        "gauge",
        "What stands at the directory: 1 for the state it is in. Anything but segments means "
        "that there is nothing to derive metrics from.",
        lambda reading: {reading.diagnose().state: 1},
        ("state",),
        diagnosis.STATES,
        as_declared=True,
    ),
    Row(
        "mx_exporter_scrapes_late_total",
        "counter",
        "Scrapes whose page was made only after their time-out.",
        lambda reading: reading.late,
    ),
    Row(
        "mx_exporter_page_failures_total",
        "counter",
        "Times that something was left out of a page because making it failed, by family, or by "
        "part of the page for people; the log says why.",
        lambda reading: reading.failures.counts,
        ("part",),
    ),
)


def collectors(reading: Reading, process: ProcessCollector) -> Iterator[Collector]:
    """The families of the table, then those of this process."""
    yield from row_collectors(ROWS, reading)
    yield Collector("process", lambda: process_families(process))


def process_families(collector: ProcessCollector) -> Iterator[FamilySamples]:
    """CPU, memory and descriptors of this process, under the names that all exporters use."""
    for metric in collector.collect():
        counted = "_total" if metric.type == "counter" else ""
        points = [Point((), sample.value) for sample in metric.samples]
        yield FamilySamples(
            f"{metric.name}{counted}", metric.type, metric.documentation, (), points
        )
