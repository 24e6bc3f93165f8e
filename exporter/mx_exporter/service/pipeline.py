"""From the directory to the page: what the live exporter reads, keeps and shows.

Bytes come in by :mod:`mx_exporter.directory.follower`, become state in the fold and a page by
:mod:`mx_exporter.exposition.text`. It knows no socket and no event loop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from prometheus_client.process_collector import ProcessCollector

from mx_log.words import counted

from ..config import Settings
from ..core.catalog import Catalog
from ..core.fold import Fold
from ..core.load_tracker import LoadLabels
from ..core.reducers import NEVER
from ..core.series_cap import oldest
from ..directory.diagnosis import Diagnosis, diagnose
from ..directory.follower import Follower
from ..directory.maintenance import Maintenance
from ..directory.settling import GRACE_SECONDS, SETTLE_SECONDS
from ..directory.watch import Watcher
from ..exposition import fold_metrics, text
from ..exposition.renderer import Failures, Renderer
from ..exposition.samples import Collector, derived_collectors
from ..loads.recent import RecentLoads
from ..pages.status import Seen, Standing
from . import self_metrics
from .looks import Look

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Pipeline:
    """The way from the directory to the page. Used by the scheduler's worker, one call at a time.

    :param catalog: what is derived from the events; the maintenance has the same.
    :param maintenance: of the same directory.
    :param wake: called, from any thread, when the directory changed.
    :param clock: seconds since the epoch, to tell how old a load is.
    :param grace_seconds: see `directory.settling`.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        maintenance: Maintenance,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
        *,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._settings = settings
        self._maintenance = maintenance
        # Whose fold it is may change at each drain: a snapshot that is taken up brings its own.
        self._recent = RecentLoads()
        self._follower = Follower(
            settings.directory.path,
            Fold(catalog, max_series=settings.max_series, tap=self._recent.feed),
            settle_seconds=SETTLE_SECONDS,
            grace_seconds=grace_seconds,
        )
        self._watcher = Watcher(settings.directory.path, wake)
        self._process = ProcessCollector(registry=None)
        self._failures = Failures()
        #: What is to be noted there, from whichever thread.
        self._failed_parts: deque[tuple[str, Exception]] = deque()
        #: By format, once it is asked for: of what the fold alone tells, and of ourselves.
        self._renderers: dict[bool, tuple[Renderer, Renderer]] = {}
        self._late = 0
        self._clock = clock
        #: What `_loads_since` found at the follower's so many changes.
        self._oldest: tuple[int, dict[LoadLabels, str]] = (-1, {})
        self._drain_seconds = 0.0
        self._logged_state = ""
        self._diagnosis: Diagnosis | Exception = self._diagnose()

    def drain(self, deadline: float | None) -> bool:
        """Fold what is in the directory now; stop at ``deadline`` (monotonic seconds).

        Returns whether everything was read.
        """
        started, met = time.monotonic(), 0
        if self._settings.directory.objection() is None:
            self._watcher.watch()
            self._maintenance.claim()
            self._follower.drain(deadline)
            met = len(self._follower.segments)
            self._maintenance.ship_and_compact(self._follower)
        self._drain_seconds = time.monotonic() - started
        self._diagnosis = found = self._diagnose()
        if isinstance(found, Diagnosis) and found.state != self._logged_state:
            self._logged_state = found.state
            if found.state == "segments":
                logger.info("found %s", self._found(met))
            else:
                logger.warning("nothing to show: %s", found.text)
        return self._follower.bytes_unread == 0

    def hurry(self, deadline: float) -> None:
        """Have the drain in hand stop earlier. Any thread may call this."""
        self._follower.hurry(deadline)

    def period(self) -> float:
        """Seconds after which to drain though nothing asked for it."""
        return min(self._watcher.period(), self._follower.settles_in)

    def settle_at_once(self) -> None:
        """Have the next drain finish each segment without a lock: it is the last one."""
        self._follower.settle_at_once()

    def page(self, openmetrics: bool) -> bytes:
        """The exposition: the derived families, then those about ourselves.

        What raises is left out, counted and logged; the rest is shown.
        """
        self._note_failed()
        if openmetrics not in self._renderers:
            of_fold, of_us = (Renderer(self._failures, openmetrics=openmetrics) for _ in range(2))
            self._renderers[openmetrics] = of_fold, of_us
        of_fold, of_us = self._renderers[openmetrics]
        reading = self_metrics.Reading(
            self._follower,
            self._maintenance,
            self._drain_seconds,
            self._diagnosed,
            self._failures,
            self._late,
            self._loads_since,
            self._clock(),
        )
        folded = of_fold.texts(self._folded(), self._follower.changes)
        about = of_us.texts(self_metrics.collectors(reading, self._process))
        return text.page([*folded, *about], openmetrics)

    def look(self) -> Look:
        """What pages for people are made of, as it is now; they are made elsewhere."""
        self._note_failed()
        return Look(
            Standing(_now(self._diagnosed), _now(self._seen), self._settings),
            self._recent.take(self._follower.fold.state.books),
            self._follower.snapshot_events,
            self._clock(),
            self._note_later,
        )

    def starting(self) -> Look:
        """The same before the first fold is done."""
        standing = Standing(_now(self._diagnosed), None, self._settings)
        return Look(standing, None, 0, self._clock(), self._note_later)

    def note_late(self, seconds: float) -> None:
        """A page was made only after its scrape's time-out, of so many seconds."""
        if not self._late:
            logger.error(
                "a page took longer than its scrape's time-out, %g s; later ones are counted in "
                "mx_exporter_scrapes_late_total: raise scrape_timeout, or lower --max-series",
                seconds,
            )
        self._late += 1

    def close(self) -> None:
        """Stop watching the directory, and let go of it."""
        self._watcher.stop()
        self._maintenance.close(self._follower)

    def _folded(self) -> Iterator[Collector]:
        """What depends on the fold alone, and stays the same as long as it does."""
        catalog, state = self._follower.fold.catalog, self._follower.fold.state
        with_ids, cap = self._settings.source_id_label, self._settings.max_series
        yield from derived_collectors(
            catalog,
            state,
            source_id_label=with_ids,
            created=self._settings.created_series,
            max_series=cap,
        )
        yield from fold_metrics.fold_collectors(
            catalog, state, source_id_label=with_ids, max_series=cap
        )

    def _loads_since(self) -> dict[LoadLabels, str]:
        """When the oldest loads began, of the label sets that the cap shows; no scrape walks
        through all loads again for it."""
        changes = self._follower.changes
        if self._oldest[0] != changes:
            loads = self._follower.fold.state.loads
            since = loads.oldest()
            created = {labels: loads.series.get(labels, NEVER) for labels in since}
            shown = oldest(created, self._settings.max_series, str)
            self._oldest = (changes, {labels: since[labels] for labels in shown})
        return self._oldest[1]

    def _diagnose(self) -> Diagnosis | Exception:
        """The diagnosis, or what it raises: it is shown, and no drain fails for it."""
        try:
            return diagnose(
                self._settings.directory,
                segments=len(self._follower.segments) + len(self._follower.covered),
                client_files=self._follower.foreign_db_files,
                trouble=self._follower.trouble,
            )
        except Exception as error:  # noqa: BLE001 - raised where it would be shown
            return error

    def _diagnosed(self) -> Diagnosis:
        if isinstance(self._diagnosis, Exception):
            raise self._diagnosis
        return self._diagnosis

    def _note_later(self, part: str, error: Exception) -> None:
        self._failed_parts.append((part, error))

    def _note_failed(self) -> None:
        """Count and log what was left out of pages that another thread made."""
        while self._failed_parts:
            self._failures.note(*self._failed_parts.popleft())

    def _seen(self) -> Seen:
        state, follower = self._follower.fold.state, self._follower
        return Seen(
            segments=len(follower.segments),
            writers_alive=follower.writers_alive,
            writers_gone=state.gone,
            logged=state.logged,
            folded=sum(state.events.values()),
            refused=sum(state.refused.values()),
            skipped=state.skipped,
            rejected=state.rejected_numbers,
            lost=state.lost,
            rejected_lines=sum(state.rejected.values()),
            duplicates=state.duplicates,
            unread_bytes=follower.bytes_unread,
            last_event=state.last_event,
            drain_seconds=self._drain_seconds,
            our_bytes=follower.directory_bytes,
            limit_bytes=self._maintenance.limit_bytes,
            snapshot_trouble=follower.snapshot_trouble,
            retention_trouble=self._maintenance.compactor.trouble,
            role=self._maintenance.role,
        )

    def _found(self, met: int) -> str:
        """What a drain found that met so many segments, for people."""
        left = len(self._follower.segments)
        if not met:
            return "no segment but the snapshot of earlier ones, which were compacted"
        if left == met:
            return counted(met, "segment")
        gone = met - left if left else "all"
        return f"{counted(met, 'segment')}, of which {gone} went into the snapshot"


def _now(make: Callable[[], T]) -> Callable[[], T]:
    """What ``make`` returns or raises now, for later."""
    try:
        made = make()
    except Exception as error:  # noqa: BLE001 - raised where it would be shown
        raised = error

        def again() -> T:
            raise raised

        return again
    return lambda: made
