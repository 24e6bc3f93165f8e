"""When a segment is finished, and when a process is gone: what passes by itself settles nothing.

A writer holds the lock of its newest segment for as long as it lives. A segment whose writer was
seen with a lock is finished as soon as the lock is free. Any other may be a copy that somebody is
still making, without a lock; it is finished once two looks, some time apart, saw it unchanged.

A process is gone once none of the segments that hold its lines was open for a while. A lock that is
free says less: somebody may have closed the descriptors of a process that lives, or removed its
segment, and it makes another one at its next event. A lock that is held again shows that it lives.

An exporter that starts must show on its first page what the exporter before it had settled: without
that, counters would fall. So its first drain waits for the second look at a segment, except at
segments whose last write was long ago; and it takes a process for gone at once when its last write
was as long ago as the grace, since the exporter before may have done so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from .segments import Segment

#: Seconds between the two looks at a segment, in a live exporter.
SETTLE_SECONDS = 1.0

#: Seconds without an open segment after which a process is gone, in a live exporter.
GRACE_SECONDS = 10.0

#: Seconds since the last write to a segment, by the system's clock, after which the first drain
#: waits for no second look at it. Clocks of two machines may well differ by less.
LONG_AGO_SECONDS = 10.0

NEVER = float("inf")


class Settling:
    """Tells the finished segments of a drain, and the processes that are gone.

    :param seconds: how far apart two looks at a segment must be; 0: one is enough.
    :param grace: seconds after which a process without an open segment is gone.
    :param clock: monotonic, in seconds.
    :param wait: waits for so many seconds; by default until `settle_at_once` is called.

    :ivar due: seconds after the latest drain when another may finish a segment that waits for its
        second look; `NEVER` when none does.
    :ivar departs: the same for a process that may be gone then.
    """

    def __init__(
        self,
        seconds: float,
        grace: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._seconds = seconds
        self._grace = grace
        self._clock = clock
        self._at_once = threading.Event()
        self._wait = wait or self._at_once.wait
        #: Processes of which a segment was held in the drain in hand.
        self.alive: set[str] = set()
        #: Process -> when it was first seen without an open segment.
        self._left: dict[str, float] = {}
        #: Process -> last write to one of its segments, in seconds since the epoch.
        self._written: dict[str, float] = {}
        #: Processes that were gone already, in a state that is not used any more.
        self._known: set[str] = set()
        self._first = False
        self.due = self.departs = NEVER

    def begin_drain(self, *, first: bool) -> None:
        """Forget what held for the drain before.

        :param first: the follower has not drained before.
        """
        self.alive = set()
        self._first = first
        if not first:
            self._written = {}
        self.due = self.departs = NEVER

    def settle_at_once(self) -> None:
        """From now on, wait for nothing. Any thread may call this."""
        self._at_once.set()

    def wait(self) -> None:
        """Wait until a second look is due."""
        self._wait(self.due)

    def note_held(self, segment: Segment, *, uses_locks: bool) -> None:
        """Note that somebody holds a segment: the processes whose lines are in it live."""
        segment.was_locked = segment.was_locked or uses_locks
        self.alive.update(segment.procs)

    def is_settled(self, segment: Segment, *, uses_locks: bool) -> bool:
        """Whether a segment that nobody holds, and that was read whole, is finished.

        To be asked after all segments were looked at: a process that holds another segment writes
        on in that one.

        :param uses_locks: the writer's file system has locks.
        """
        seen = uses_locks and (segment.was_locked or not self.alive.isdisjoint(segment.procs))
        old = self._first and time.time() - segment.mtime >= LONG_AGO_SECONDS
        left = self._seconds - segment.unchanged_for
        if seen or old or left <= 0 or not self._seconds or self._at_once.is_set():
            return True
        self.due = min(self.due, left)
        return False

    def note_end(self, segment: Segment) -> None:
        """Note that a segment is finished."""
        self.note_written(dict.fromkeys(segment.procs, segment.mtime))

    def note_written(self, times: Mapping[str, float]) -> None:
        """Note when processes wrote, in seconds since the epoch."""
        if self._first:
            for proc, time_ in times.items():
                self._written[proc] = max(time_, self._written.get(proc, time_))

    def note_gone(self, procs: Iterable[str]) -> None:
        """Note who was gone already: what is read of them anew brings nobody back to life."""
        self._known.update(procs)

    def departed(self, procs: set[str]) -> set[str]:
        """Who is gone, at the end of a drain.

        :param procs: all processes that were not gone so far and have no open segment.
        """
        now = self._clock()
        gone = self._known - self.alive
        left = {proc: self._left.get(proc, now) for proc in procs - gone}
        self._left, self._known = {}, set()
        for proc, since in left.items():
            wait = since + self._grace - now
            if wait <= 0 or self._at_once.is_set() or self._was_written_long_ago(proc):
                gone.add(proc)
            else:
                self._left[proc] = since
                self.departs = min(self.departs, wait)
        return gone

    def _was_written_long_ago(self, proc: str) -> bool:
        # Of a process without any segment nothing else can be found out by waiting.
        return self._first and time.time() - self._written.get(proc, -NEVER) >= self._grace
