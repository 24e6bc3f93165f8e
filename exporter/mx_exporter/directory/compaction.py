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
import time
from collections.abc import Callable, Mapping

from mx_log.files import SNAPSHOT_NAME, parse_segment_name
from mx_log.locks import open_directory, open_regular, probe

from ..core.snapshot_codec import Snapshot, dump
from ..core.snapshot_seal import BadSnapshot
from ..core.state import State
from ..errors import MxError
from . import snapshot
from .follower import Follower
from .retention import MAX_SEGMENTS, MIN_AGE, Retention
from .segments import Segment, read_blocks

_log = logging.getLogger(__name__)

#: Seconds before a compaction that failed is tried again.
RETRY_SECONDS = 5.0


class Unread(MxError):
    """The snapshot that is to be compacted onto could not be read. ``str()`` says why."""


def _always(_: Segment) -> bool:
    return True


def _as_saved() -> None:
    return None


class Compactor:
    """Compacts an owned directory when its retention says so.

    :param retain_bytes: see `Retention`, as for the other bounds.
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
        self._retention = Retention(
            retain_bytes, max_bytes, min_age=min_age, max_segments=max_segments, clock=clock
        )
        self._clock = clock
        self._not_before = 0.0
        self._logged_trouble = ""
        #: Compactions done, and files they removed.
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

        Only the owner of the directory may call this, from the thread that drains. Never raises
        for what the directory does; it is tried again later.

        :param released: whether a segment may go, since it was shipped. Others go only where the
            writers have run out of room for a while, and are counted.
        :param shipped: gives the positions to write to the snapshot (`Snapshot.shipped` of
            `snapshot_codec`); None: those that it has.
        """
        if self._clock() < self._not_before or follower.identity is None:
            return
        try:
            dir_fd = open_directory(follower.directory)
            try:
                self._sweep(dir_fd, follower)
                chosen = self._retention.due(dir_fd, follower, released)
                # Only onto the snapshot that the page shows: one that was put in its place since is
                # taken up by the next drain.
                if chosen and follower.knows(snapshot.identity(dir_fd)):
                    forced = [str(s.name) for s in chosen if not released(s)]
                    self._compact(dir_fd, follower, chosen, shipped())
                    self._count_unshipped(forced)
            finally:
                os.close(dir_fd)
        except (OSError, BadSnapshot, Unread) as error:
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
                identity = snapshot.save_shipped(follower.fold.catalog, dir_fd, shipped)
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
        if follower.snapshot_is_bad:
            name = snapshot.move_bad(dir_fd)
            _log.error("moved the snapshot that cannot be used to %s", name)
            follower.mark_snapshot_moved()
        elif follower.snapshot_trouble:
            # What it stands for would be lost, though it may be read in a moment.
            raise Unread(f"{SNAPSHOT_NAME} {follower.snapshot_trouble}")
        catalog = follower.fold.catalog
        try:
            found = snapshot.read(catalog, dir_fd)
        except BadSnapshot as error:  # damaged since it was taken up, as a disk does it
            follower.mark_snapshot_bad(error)
            raise
        base = found[0] if found else Snapshot(State(catalog))
        fold = follower.fold.fresh(base.state)
        covered, written = dict(base.segments), dict(base.written)
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
            for proc in again.procs:
                written[proc] = max(segment.mtime, written.get(proc, 0.0))
        names = {str(segment.name) for segment in chosen}
        # Who is gone, the snapshot says as the page does: it settles nothing by itself.
        gone = follower.fold.state.books.gone()
        fold.settle(gone)
        kept = {
            name: position
            for name, position in (base.shipped if shipped is None else shipped).items()
            if name not in names
        }
        written = {proc: at for proc, at in written.items() if proc not in gone}
        identity = snapshot.write(dir_fd, dump(catalog, fold.state, covered, kept, written))
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
