"""Compaction: room for the writers, and a restart whose cost is bounded.

Finished segments, oldest first, are folded onto the snapshot; the new snapshot is put in place;
then they are removed. Whatever moment a crash picks, what is left in the directory folds to the
same metrics: before the rename the old snapshot and all segments, after it the new one, which
names the segments it stands for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping

from mx_log.files import BAD_SNAPSHOT_NAME, SNAPSHOT_NAME, SegmentName, parse_segment_name
from mx_log.locks import open_directory, open_regular, probe

from ..core.snapshot_codec import BadSnapshot, Snapshot, dump
from ..core.state import State
from . import snapshot
from .follower import Follower
from .segments import Segment, read_blocks

_log = logging.getLogger(__name__)

#: Finished segments in a directory, at most.
MAX_SEGMENTS = 256

#: Seconds that a segment stays after it was finished, for those who ship it. Waived when the
#: writers would run out of room.
MIN_AGE = 60.0

#: Seconds that who ships has in a directory without room, before segments go all the same.
GRACE_SECONDS = 2.0

#: Bytes folded by one compaction: a scrape may have to wait for it.
STEP_BYTES = 4 * 1024 * 1024

#: Seconds before a compaction that failed is tried again.
RETRY_SECONDS = 5.0


def _always(_: Segment) -> bool:
    return True


def _as_saved() -> None:
    return None


class Compactor:
    """Holds the finished segments of an owned directory within bounds.

    :param retain_bytes: finished segments may take this much; at most half of ``max_bytes``.
    :param max_bytes: limit at which the writers stop.
    :param min_age: seconds, see `MIN_AGE`.
    """

    def __init__(
        self,
        retain_bytes: int,
        max_bytes: int,
        *,
        min_age: float = MIN_AGE,
        max_segments: int = MAX_SEGMENTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._retain = min(retain_bytes, max_bytes // 2)
        self._crowded = (self._retain + max_bytes) // 2
        self._min_age = min_age
        self._max_segments = max_segments
        self._clock = clock
        self._not_before = 0.0
        self._crowded_since: float | None = None
        # When each finished segment was first seen as one. Its last write may be long before:
        # a rank that idled for an hour finishes its segment when it ends.
        self._finished: dict[str, float] = {}
        #: The follower that `_finished` was made for, and its changes at that time.
        self._seen: tuple[Follower, int] | None = None
        self._logged_trouble = ""
        #: Compactions done, and segments they removed.
        self.compactions = 0
        self.removed = 0
        #: Segments that had to go before they were released.
        self.unshipped = 0
        #: Why the latest compaction failed; empty when it did not.
        self.trouble = ""

    def compact(
        self,
        follower: Follower,
        released: Callable[[Segment], bool] = _always,
        shipped: Callable[[], Mapping[str, int] | None] = _as_saved,
    ) -> None:
        """Compact what is due.

        ``released`` says whether a segment may go: it was shipped. One that was not goes only
        where the writers have run out of room for a while, and is counted. ``shipped`` gives the
        positions to keep in the snapshot (`snapshot_codec.Snapshot.shipped`); None: those it has.

        Only the owner of the directory may call this, from the thread that drains. Never raises
        for what the directory does; it is tried again later.
        """
        if self._clock() < self._not_before or follower.identity is None:
            return
        try:
            dir_fd = open_directory(follower.directory)
            try:
                self._sweep(dir_fd, follower)
                chosen = self._due(dir_fd, follower, released)
                if chosen:
                    forced = [str(s.name) for s in chosen if not released(s)]
                    self._compact(dir_fd, follower, chosen, shipped())
                    self._count_unshipped(forced)
            finally:
                os.close(dir_fd)
        except (OSError, BadSnapshot) as error:
            self._report(follower, error)
        else:
            self.trouble = ""

    def save_positions(self, follower: Follower, shipped: Mapping[str, int]) -> bool:
        """Write the positions of shipping to the snapshot. The rules of `compact` hold.

        Returns whether they were written.
        """
        if self._clock() < self._not_before or follower.identity is None:
            return False
        try:
            dir_fd = open_directory(follower.directory)
            try:
                if not follower.is_based_on(snapshot.identity(dir_fd)):
                    return False
                identity = snapshot.amend(follower.fold.catalog, dir_fd, shipped)
            finally:
                os.close(dir_fd)
        except BadSnapshot:  # the follower has logged it
            return False
        except OSError as error:
            self._report(follower, error)
            return False
        follower.mark_compacted(set(), follower.covered, identity)
        return True

    def _report(self, follower: Follower, error: Exception) -> None:
        self._not_before = self._clock() + RETRY_SECONDS
        self.trouble = str(error)
        if self.trouble != self._logged_trouble:
            self._logged_trouble = self.trouble
            _log.error("the snapshot in %s could not be written: %s", follower.directory, error)

    def _due(
        self, dir_fd: int, follower: Follower, released: Callable[[Segment], bool]
    ) -> list[Segment]:
        if follower.directory_bytes <= self._crowded:
            self._crowded_since = None
        elif self._crowded_since is None:
            self._crowded_since = self._clock()
        now = self._clock()
        youngest = now - self._min_age
        oldest = self._oldest(follower, now)
        size, count = follower.finished_bytes, follower.finished
        if size <= self._retain and count <= self._max_segments:
            return []
        if oldest > youngest and self._crowded_since is None:
            return []
        # A quarter below the bounds, so that not every new segment costs a compaction.
        enough_bytes, enough_segments = self._retain * 3 // 4, self._max_segments * 3 // 4
        overdue = self._crowded_since is not None and now >= self._crowded_since + GRACE_SECONDS
        chosen: list[Segment] = []
        taken = 0
        held: set[str] = set()
        last = dict(follower.covered)
        for segment in _by_age(follower.segments):
            if size <= enough_bytes and count <= enough_segments:
                break
            if chosen and taken + segment.size > STEP_BYTES:
                break
            # The snapshot names the last segment of each process, and stands for all before it:
            # none of them may be unread, or stay.
            proc = segment.name.proc
            if not segment.done or _is_missed(dir_fd, segment.name, last.get(proc, -1)):
                held.add(proc)
            crowded = follower.directory_bytes - taken > self._crowded
            young = self._finished.get(str(segment.name), now) > youngest and not crowded
            waited_for = not released(segment) and not (crowded and overdue)
            if proc in held or young or waited_for:
                held.add(proc)
                continue
            chosen.append(segment)
            last[proc] = segment.name.n
            taken += segment.size
            size -= segment.size
            count -= 1
        return chosen

    def _oldest(self, follower: Follower, now: float) -> float:
        """When the first of the finished segments was seen as one."""
        if self._seen != (follower, follower.changes):
            names = [str(segment.name) for segment in follower.segments if segment.done]
            self._finished = {name: self._finished.get(name, now) for name in names}
            self._seen = (follower, follower.changes)
        return min(self._finished.values(), default=now)

    def _count_unshipped(self, forced: list[str]) -> None:
        if forced and not self.unshipped:
            _log.error(
                "compacted %s before it was shipped, so that the writers have room; others that "
                "follow are counted only",
                forced[0],
            )
        self.unshipped += len(forced)

    def _compact(
        self,
        dir_fd: int,
        follower: Follower,
        chosen: list[Segment],
        shipped: Mapping[str, int] | None,
    ) -> None:
        if follower.snapshot_trouble:
            os.rename(SNAPSHOT_NAME, BAD_SNAPSHOT_NAME, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            _log.error("moved the snapshot that cannot be used to %s", BAD_SNAPSHOT_NAME)
            follower.mark_snapshot_moved()
        catalog = follower.fold.catalog
        found = snapshot.read(catalog, dir_fd)
        base = found[0] if found else Snapshot(State(catalog))
        fold = follower.fold.fresh(base.state)
        covered = dict(base.segments)
        for segment in chosen:
            again = Segment(segment.name, segment.inode)
            fd = open_regular(str(segment.name), dir_fd)
            try:
                for block in read_blocks(fd, 0, segment.size):
                    again.feed(fold, block)
            finally:
                os.close(fd)
            if again.position < segment.size:
                follower.report_shrunk(segment.name)
            again.finish(fold)
            covered[segment.name.proc] = segment.name.n
        names = {str(segment.name) for segment in chosen}
        staying = {s.name.proc for s in follower.segments if str(s.name) not in names}
        for proc in {segment.name.proc for segment in chosen} - staying:
            fold.writer_gone(proc)
        kept = {
            name: position
            for name, position in (base.shipped if shipped is None else shipped).items()
            if name not in names
        }
        identity = snapshot.write(dir_fd, dump(catalog, fold.state, covered, kept))
        follower.mark_compacted(names, covered, identity)
        self.compactions += 1
        self._remove(dir_fd, names)

    def _sweep(self, dir_fd: int, follower: Follower) -> None:
        """Remove what a crash left: segments in a snapshot, files that were never finished."""
        self._remove(dir_fd, set(follower.leftover))
        for name in follower.temporary:
            if self._is_abandoned(dir_fd, name):
                self._remove(dir_fd, {name})
        follower.mark_swept()

    def _is_abandoned(self, dir_fd: int, name: str) -> bool:
        """Whether nobody makes a temporary file any more: it is a minute old and not locked."""
        try:
            fd = open_regular(name, dir_fd)
        except OSError:
            return False
        try:
            # Between making a file and locking it there is a moment in which our own probe
            # would take the writer's lock away.
            old = os.fstat(fd).st_mtime < self._clock() - MIN_AGE
            return old and (parse_segment_name(name[1:]) is None or probe(fd))
        finally:
            os.close(fd)

    def _remove(self, dir_fd: int, names: set[str]) -> None:
        for name in sorted(names):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=dir_fd)
                self.removed += 1


def _is_missed(dir_fd: int, name: SegmentName, last: int) -> bool:
    """Whether there is a segment between the ``last`` that is taken care of and this one.

    A listing may miss a name that is made while it runs, and show one that is made later.
    """
    if name.n <= last + 1:
        return False
    try:
        before = os.stat(str(name._replace(n=name.n - 1)), dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(before.st_mode)


def _by_age(segments: list[Segment]) -> list[Segment]:
    """Segments, oldest first, each process's in their order whatever its clock did."""
    latest: dict[str, float] = {}
    aged = []
    for segment in sorted(segments, key=lambda s: s.name):
        age = max(segment.mtime, latest.get(segment.name.proc, 0.0))
        latest[segment.name.proc] = age
        aged.append((age, segment))
    return [segment for _, segment in sorted(aged, key=lambda item: (item[0], item[1].name))]
