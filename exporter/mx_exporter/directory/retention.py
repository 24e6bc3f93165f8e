"""Retention: which finished segments are to go, so that the directory stays within its bounds."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from mx_log.files import SegmentName
from mx_log.volume import limit_on

from .follower import Follower
from .segments import Segment

#: Finished segments in a directory, at most.
MAX_SEGMENTS = 256

#: Seconds that a segment stays after it was finished, for those who ship it by means of their own.
#: It does not where the writers would run out of room.
MIN_AGE = 60.0

#: Seconds for shipping in a directory without room, before segments go all the same.
GRACE_SECONDS = 2.0

#: Bytes folded by one compaction: a scrape may have to wait for it.
STEP_BYTES = 4 * 1024 * 1024


class Retention:
    """The bounds of one directory.

    :param retain_bytes: finished segments may take this much; at most half of the limit.
    :param max_bytes: limit at which the writers stop, on a volume that is not too small for it.
    :param min_age: seconds, see `MIN_AGE`.
    :param max_segments: see `MAX_SEGMENTS`.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        retain_bytes: int,
        max_bytes: int,
        *,
        min_age: float,
        max_segments: int,
        clock: Callable[[], float],
    ) -> None:
        self._retain_bytes = retain_bytes
        self._max_bytes = max_bytes
        self._min_age = min_age
        self._max_segments = max_segments
        self._clock = clock
        self._crowded_since: float | None = None
        # When each finished segment was first seen as one. Its last write may be long before:
        # a rank that idled for an hour finishes its segment when it ends.
        self._finished: dict[str, float] = {}
        #: The follower that `_finished` was made for, and its changes at that time.
        self._seen: tuple[Follower, int] | None = None

    def due(
        self, dir_fd: int, follower: Follower, released: Callable[[Segment], bool]
    ) -> list[Segment]:
        """The segments to compact now, for one compaction.

        :param dir_fd: the directory that the follower reads.
        :param released: whether a segment was shipped.
        """
        limit = limit_on(dir_fd, self._max_bytes)
        retain = min(self._retain_bytes, limit // 2)
        above = (retain + limit) // 2
        if follower.directory_bytes <= above:
            self._crowded_since = None
        elif self._crowded_since is None:
            self._crowded_since = self._clock()
        now = self._clock()
        youngest = now - self._min_age
        oldest = self._oldest(follower, now)
        size, count = follower.finished_bytes, follower.finished
        if size <= retain and count <= self._max_segments:
            return []
        if oldest > youngest and self._crowded_since is None:
            return []
        # A quarter below the bounds, so that not every new segment costs a compaction.
        enough_bytes, enough_segments = retain * 3 // 4, self._max_segments * 3 // 4
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
            crowded = follower.directory_bytes - taken > above
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
