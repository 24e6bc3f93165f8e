"""The stream of one process: its ``proc``, its ``seq``, and the segments it writes.

Every event is one ``write(2)`` of one line. One reentrant lock stands around the allocation of
``seq``, the write and the bookkeeping: reentrant, because a signal handler may call a recorder in
the middle of another, where a plain lock would hang. What such a call may find half done is noted
at the places that care for it.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import threading
import time
from collections import deque
from typing import Any

from . import trouble
from .directory import opened, weigh
from .encode import encode, well_formed
from .events import DROP_REASONS, FORMAT, MAX_LINE_BYTES, VERSION, SegmentName
from .rank import find_rank
from .segment import Segment
from .settings import Settings

#: Seconds between two looks at a full directory, and between two tries to open a segment.
RETRY_SECONDS = 1.0

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_SECOND = 1_000_000_000

# What may differ between a line that was measured and the same line with another seq.
_SLACK = 32


class Stream:
    """Where the events of this process go. Making one touches no file."""

    def __init__(self, settings: Settings, rank: int | None = None) -> None:
        """``rank`` is what the engine said; None looks it up."""
        self.settings = settings
        self.proc = os.urandom(6).hex()
        self.rank: int | None = None
        self._said_rank = rank
        self._lock = threading.RLock()
        self._abandoned = False

        self._seq = itertools.count()
        self._free: deque[int] = deque()  # numbers of events whose write failed
        self._dropped: dict[str, int] = {}
        self._pending: deque[tuple[bytes, bytes, bytes]] = deque()
        self._complaints: list[tuple[str, str]] = []
        self._noted: set[str] = set()
        self._detail = ""  # what the operating system said last

        self._segment: Segment | None = None
        self._next_segment = 0
        self._who: dict[str, Any] | None = None
        self._fd = -1
        self._size = 0
        self._limit = -1  # a line may be written while the size stays within; -1: look first
        self._writing = False
        self._torn = False
        self._opening = False
        self._overdue = False  # the segment should have been followed by another
        self._full = False  # the directory is at its limit
        self._blocked: str | None = None  # why events are dropped until the next try
        self._next_try = 0.0

        self._second = -1
        self._time = b""
        self._proc_key = b'"proc":"%b","seq":' % self.proc.encode()
        self._constant = b""
        self.look_up_rank(rank)

    # ----------------------------------------------------------------------------------
    # Called from outside

    def open(self) -> None:
        """Open the first segment, if there is none: its header says that this process lives."""
        with self._lock:
            if self._fd < 0 and not self._opening:
                reason = self._make_room(0)
                if reason is not None:
                    self._note(reason)
        self._complain()

    def write(self, event: bytes, level: bytes, fields: bytes) -> None:
        """Log one event, or count it as dropped.

        ``event`` is its name as JSON, ``level`` a plain word, ``fields`` a JSON object and a
        newline.
        """
        with self._lock:
            if self._opening and self._fd < 0:
                # A signal handler's event while the first segment is being opened.
                self._pending.append((event, level, fields))
                return
            reason = self._put(event, level, fields)
            if reason is not None:
                self._count_drop(reason)
            if self._pending and not self._opening:
                self._put_pending()
            if self._dropped and (reason is None or reason == "too_long"):
                self._report_drops()
        if self._complaints:
            self._complain()

    def drop(self, reason: str) -> None:
        """Count an event that could not be turned into a line (one of ``DROP_REASONS``)."""
        with self._lock:
            self._count_drop(reason)
            if not self._opening:
                self._report_drops()
        self._complain()

    def look_up_rank(self, said: int | None = None) -> None:
        """Take the rank the engine said, once it said one, else look again."""
        if said is not None:
            self._said_rank = said
        rank = self._said_rank if self._said_rank is not None else find_rank()[0]
        if rank != self.rank or not self._constant:
            scheme = encode({"rank": rank, "scheme": self.settings.scheme})
            self._constant = scheme[1:-2]
            self.rank = rank

    def abandon(self) -> None:
        """In a forked child: the segment is the parent's. It is closed here and never unlocked."""
        self._abandoned = True
        self._fd = self._limit = -1
        self._lock = threading.RLock()  # whoever held it is not in this process
        if self._segment is not None:
            self._segment.close()

    @property
    def said_rank(self) -> int | None:
        """The rank that the engine said, for a forked child's stream."""
        return self._said_rank

    # ----------------------------------------------------------------------------------
    # Under the lock

    def _put(self, event: bytes, level: bytes, fields: bytes) -> str | None:
        """Write one line. Returns None, or the reason why it was not written."""
        while True:
            seq, line = self._line(event, level, fields)
            size = len(line)
            if size > MAX_LINE_BYTES:
                self._free.append(seq)
                return "too_long"
            if self._size + size <= self._limit:
                break
            # The number goes to the header of the segment that is opened for this line.
            self._free.append(seq)
            reason = self._make_room(size)
            if reason is not None:
                return reason

        # A call in the middle of another's write cannot know whether that one is torn; it starts
        # with a newline, as the next write after a torn one does. Readers skip an empty line. Both
        # marks are set before they could be needed: the next bytecode may be a signal handler.
        if self._writing or self._torn:
            line = b"\n" + line
            size += 1
        self._torn = False
        self._writing = True
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self._torn = True
            self._writing = False
            self._free.append(seq)
            if error.errno == errno.EBADF and self._fd >= 0:
                # Somebody closed our descriptor: there are libraries that close all of them.
                self._let_go(close=False)
                return self._put(event, level, fields)
            return self._reason(error, "io_error")
        self._size += written
        if written != size:
            self._torn = True
            self._writing = False
            self._free.append(seq)
            return "no_space"
        self._writing = False
        return None

    def _line(self, event: bytes, level: bytes, fields: bytes) -> tuple[int, bytes]:
        now = time.time_ns()
        second = now // _SECOND
        if second != self._second:
            self._turn(second)
        seq = self._free.popleft() if self._free else next(self._seq)
        return seq, b'{"event":%b,"timestamp":"%b%06dZ","level":"%b",%b%d,%b%b%b' % (
            event,
            self._time,
            now % _SECOND // 1000,
            level,
            self._proc_key,
            seq,
            self._constant,
            b"," if len(fields) > 3 else b"",
            fields[1:],
        )

    def _turn(self, second: int) -> None:
        """Once a second: the constant part of the timestamp, and whether all is as it was left."""
        self._time = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second)).encode()
        self._second = second
        if self._segment is None or self._opening:
            return
        state = self._segment.state()
        if state != "ok":
            self._let_go(close=state == "removed")
        elif self._overdue:
            self._limit = -1

    def _let_go(self, close: bool) -> None:
        """Forget a segment that nobody can read any more."""
        segment, self._segment = self._segment, None
        self._fd = self._limit = -1
        self._full = self._overdue = self._torn = False
        if close and segment is not None:
            segment.close()

    def _reason(self, error: OSError, otherwise: str) -> str:
        self._detail = str(error)
        if error.errno in _NO_SPACE:
            return "no_space"
        self._overdue = True  # a further segment may do better
        return otherwise

    def _make_room(self, need: int) -> str | None:
        """See to it that a line of ``need`` bytes may be written.

        Returns None, or the reason why it may not.
        """
        if self._opening:
            # A signal handler's event in the middle of a rotation: the old segment takes it.
            self._limit = self._size + need
            return None
        if self._abandoned:
            return "unavailable"
        if self._blocked is not None and time.monotonic() < self._next_try:
            return self._blocked
        self._blocked = None
        self._opening = True
        try:
            self._open_segment(need)
            if self._full or self._fd < 0:
                self._blocked = "limit"
                self._detail = f"{self.settings.max_bytes} bytes"
        except OSError as error:
            self._blocked = self._reason(error, "unavailable")
            if self._fd >= 0 and not self._full:
                # Better a segment that is too long than lost events, within reason.
                self._overdue = True
                self._limit = 2 * self.settings.segment_bytes
                if self._size + need <= self._limit:
                    self._note(self._blocked, "a segment could not be followed by another")
                    self._blocked = None
        finally:
            self._opening = False
        if self._blocked is not None:
            self._limit = -1
            self._next_try = time.monotonic() + RETRY_SECONDS
        return self._blocked

    def _open_segment(self, need: int) -> None:
        """Go on in a new segment, or in the present one when only room was missing."""
        with opened(self.settings) as folder:
            full = weigh(folder) >= self.settings.max_bytes
            if full and (self._full or self._segment is None):
                return
            if full or not self._full:
                segment = self._new_segment(folder)
                # The new one is held before the old one is let go: a living process holds a lock
                # on its newest segment at every moment, and that is how others know it lives.
                old, self._segment = self._segment, segment
                self._size, self._torn, self._fd = segment.size, False, segment.fd
                if old is not None:
                    old.close()
            self._full = full
            self._overdue = False
            self._limit = max(self.settings.segment_bytes, self._size + need + _SLACK)

    def _new_segment(self, folder: int) -> Segment:
        n = self._next_segment
        who = self._who = self._who or _who_we_are(self.settings)
        name = b'"segment_continued"' if n else b'"process_started"'
        seq: int | None = None

        def header(locked: bool) -> bytes:
            nonlocal seq
            fields = {"segment": n, **who, **({} if locked else {"locked": False})}
            seq, line = self._line(name, b"info", encode(fields))
            return line

        try:
            segment = Segment(folder, SegmentName(self.proc, n), header)
        except OSError:
            if seq is not None:
                self._free.append(seq)
            raise
        self._next_segment = n + 1
        return segment

    def _put_pending(self) -> None:
        while self._pending:
            reason = self._put(*self._pending.popleft())
            if reason is not None:
                self._count_drop(reason)

    # ----------------------------------------------------------------------------------
    # Counting what was dropped

    def _count_drop(self, reason: str) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        self._note(reason, "events are dropped")

    def _note(self, reason: str, what: str = "the log could not be opened") -> None:
        """Have it said, once for each reason, when the lock is released."""
        if reason not in self._noted and not self._abandoned:
            self._noted.add(reason)
            detail = self._detail or self.settings.directory
            self._complaints.append((reason, f"{what}: {DROP_REASONS[reason]}: {detail}"))

    def _report_drops(self) -> None:
        for reason in list(self._dropped):
            # Taken before it is written: a signal handler's event would report it once more.
            count = self._dropped.pop(reason, 0)
            fields = encode({"reason": reason, "count": count})
            if count and self._put(b'"events_dropped"', b"warning", fields) is not None:
                self._dropped[reason] = self._dropped.get(reason, 0) + count
                return

    def _complain(self) -> None:
        while self._complaints:
            trouble.say(*self._complaints.pop())


@functools.cache
def client_version() -> str:
    """The installed release of ``modelexpress``, or ``unknown``."""
    try:
        from importlib.metadata import version  # costs more than all the rest of our import

        return version("modelexpress")
    except Exception:
        return "unknown"


def _who_we_are(settings: Settings) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "component": "client",
        "version": client_version(),
        "emitter_version": VERSION,
        "pid": os.getpid(),
        "hostname": well_formed(os.uname().nodename),
        "pod_name": settings.pod.name,
        "pod_uid": settings.pod.uid,
        "pod_namespace": settings.pod.namespace,
        "node_name": settings.pod.node,
    }
