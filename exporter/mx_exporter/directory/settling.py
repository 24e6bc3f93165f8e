"""When a segment is finished: nobody writes it any more, so it need not be read again.

A writer holds the lock of its newest segment for as long as it lives. A segment whose writer was
seen with a lock is finished as soon as the lock is free. Any other may be a copy that somebody is
still making, without a lock; it is finished once two looks, some time apart, saw it unchanged.

An exporter that starts must show on its first page what the exporter before it had finished:
without that, counters would fall. So its first drain waits for the second look, except at segments
whose last write was long ago.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .reading import Look
from .segments import Segment

#: Seconds between the two looks, in a live exporter.
SETTLE_SECONDS = 1.0

#: Seconds since the last write to a segment, by the system's clock, after which the first drain
#: waits for no second look at it. Clocks of two machines may well differ by less.
LONG_AGO_SECONDS = 10.0

NEVER = float("inf")


class Settling:
    """Tells the finished segments of a drain.

    :param seconds: how far apart two looks must be; 0: one is enough.
    :param wait: waits for so many seconds; by default until `settle_at_once` is called.

    :ivar due: seconds after the latest drain when another may finish a segment that waits for its
        second look; `NEVER` when none does.
    """

    def __init__(self, seconds: float, wait: Callable[[float], object] | None = None) -> None:
        self._seconds = seconds
        self._at_once = threading.Event()
        self._wait = wait or self._at_once.wait
        if not seconds:
            self.settle_at_once()
        #: Processes of which a segment was seen with a lock in the drain in hand.
        self._alive: set[str] = set()
        self._first = False
        self.due = NEVER

    def begin_drain(self, *, first: bool) -> None:
        """Forget what held for the drain before.

        :param first: the follower has not drained before.
        """
        self._alive = set()
        self._first = first
        self.due = NEVER

    def settle_at_once(self) -> None:
        """From now on, wait for no second look. Any thread may call this."""
        self._at_once.set()

    def wait(self) -> None:
        """Wait until a second look is due."""
        self._wait(self.due)

    def note_lock(self, segment: Segment, look: Look) -> None:
        """Note whether the segment, of a writer that uses locks, was locked."""
        if not look.unlocked:
            segment.was_locked = True
            self._alive.add(segment.name.proc)

    def is_settled(self, segment: Segment, *, uses_locks: bool) -> bool:
        """Whether a segment that nobody holds, and that was read whole, is finished.

        To be asked after all segments were looked at: a process that holds another segment writes
        on in that one.

        :param uses_locks: the writer's file system has locks.
        """
        seen = uses_locks and (segment.was_locked or segment.name.proc in self._alive)
        old = self._first and time.time() - segment.mtime >= LONG_AGO_SECONDS
        left = self._seconds - segment.unchanged_for
        if seen or old or left <= 0 or self._at_once.is_set():
            return True
        self.due = min(self.due, left)
        return False
