"""The stream of one process: its ``proc``, its ``seq``, and the segments it writes.

Every event is one ``write(2)`` of one line. One reentrant lock stands around the allocation of
``seq``, the write and the bookkeeping: reentrant, because a signal handler may call a recorder in
the middle of another, where a plain lock would hang. What such a call may find half done is noted
at the places that care for it.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from fcntl import fcntl
from time import time_ns
from typing import Any, TypeVar

from mx_log.files import SegmentName
from mx_log.schema import DROP_REASONS, FORMAT, MAX_LINE_BYTES, VERSION
from mx_log.values import well_formed
from mx_log.volume import limit_on

from ..context.client_release import client_version
from ..context.rank import find_rank, from_torch
from ..settings import SEGMENTS_PER_LIMIT, Settings
from . import warn_once
from .directory import opened, weigh
from .encode import encode
from .forks import here
from .segment import GET_MARK, MARK, Segment, is_there

_Returned = TypeVar("_Returned")

#: Seconds between two looks at a full directory, and between two tries to open a segment.
RETRY_SECONDS = 1.0

#: Past the limit there is room, for this part of it, for new writers that have nothing but drops to
#: tell of.
LAST_WORDS_PER_LIMIT = 32

#: In a full directory drops are told of each time they are more by a quarter: a rank that ends
#: there leaves few untold, and 70 lines tell of a million.
UNTOLD_PART = 4

#: Bytes that these lines may fill of their segment.
TELLING_BYTES = 16 * 1024

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_SECOND = 1_000_000_000

# A line. What all lines of a second share goes in once a second, and what is an event's own then.
_LINE = b'{"event":%%b,"timestamp":"%b%%06dZ","level":"info","proc":"%b","seq":%%d,%b,%%b}\n'

# What may differ between a line that was measured and the same line with another seq.
_SLACK = 32


class Stream:
    """Where the events of this process go. Making one touches no file."""

    __slots__ = (
        "_abandoned",
        "_blocked",
        "_complaints",
        "_constant",
        "_detail",
        "_dropped",
        "_fd",
        "_free",
        "_full",
        "_in_child",
        "_limit",
        "_line",
        "_lock",
        "_logged",
        "_next_segment",
        "_next_seq",
        "_next_try",
        "_noted",
        "_opening",
        "_overdue",
        "_pending",
        "_said_rank",
        "_second",
        "_segment",
        "_segment_bytes",
        "_size",
        "_told",
        "_unclean",
        "_unsettled",
        "_who",
        "here",
        "proc",
        "rank",
        "settings",
    )

    def __init__(
        self,
        settings: Settings,
        rank: int | None,
        in_child: Callable[[bytes, bytes, bytes], None],
    ) -> None:
        """``rank`` is what the engine said; None looks it up. ``in_child`` gets the events of
        children whose fork Python was not told of."""
        self.settings = settings
        self.here = here()  # [0] is 0 in a forked child
        self._in_child = in_child
        self.proc = os.urandom(6).hex()
        self.rank: int | None = None
        self._said_rank = rank
        self._lock = threading.RLock()
        self._abandoned = False

        self._next_seq = 0
        self._free: list[int] = []  # numbers of events whose write failed: they go first
        # By reason, events that were dropped: those that the log does not tell of yet, and those
        # that it does. All reasons are there: what counts one makes no call, in which a signal
        # handler's event could be counted.
        self._dropped = dict.fromkeys(DROP_REASONS, 0)
        self._told = dict.fromkeys(DROP_REASONS, 0)
        self._pending: list[tuple[bytes, bytes, bytes]] = []
        self._complaints: list[tuple[str, str]] = []
        self._noted: set[str] = set()
        self._detail = ""  # what the operating system said last

        self._segment: Segment | None = None
        self._next_segment = 0
        self._who: dict[str, Any] | None = None
        self._fd = -1
        self._size = 0
        self._segment_bytes = settings.segment_bytes  # less on a small volume
        self._limit = -1  # a line may be written while the size stays within; -1: look first
        self._unclean: int | None = None  # seq of a write that is not known to be complete
        self._logged: bytes | None = None  # of an event that was logged, though `_put` raised
        self._unsettled = False  # there is something for _settle
        self._opening = False
        self._overdue = False  # the segment should have been followed by another
        self._full = False  # the directory is at its limit
        self._blocked: str | None = None  # why events are dropped until the next try
        self._next_try = 0.0

        self._second = 0  # when the present second began, in nanoseconds
        self._line = b""  # of the present second
        self._constant = b""
        self.look_up_rank(rank)

    # ----------------------------------------------------------------------------------
    # Called from outside

    def open(self) -> None:
        """Open the first segment, if there is none: its header says that this process lives."""
        self._locked(self._open_first)
        self._settle()

    def emit(self, event: bytes, own: bytes, level: bytes) -> None:
        """Log one event, or count it as dropped. Never raises an Exception.

        ``event`` is its name as JSON, ``own`` its own fields, none of a reserved name, as the
        inside of a JSON object, and ``level`` a plain word.
        """
        try:
            if not self.here[0]:
                # In the middle of an event of the parent's, or after a fork of a C library.
                return None if self._abandoned else self._in_child(event, own, level)
            # What ``with`` does here takes three times as long. Acquired within the ``try``: right
            # after it a signal handler may raise. Looked up no earlier: one may fork before, and
            # nobody would let go of the parent's in the child.
            lock = self._lock
            try:
                if not lock.acquire(False):
                    lock = self._wait()
                reason = self._put(event, own, level)
                if reason is not None:
                    self._count_drop(reason)
            finally:
                try:  # noqa: SIM105 - it would be a call
                    lock.release()
                except RuntimeError:  # a signal handler raised while another thread had it
                    pass
        except Exception:
            warn_once.uncounted += ("unencodable",)
        if self._unsettled or warn_once.uncounted:
            try:  # noqa: SIM105 - it would be a call
                self._settle()
            except Exception:  # the next event tries again
                pass

    def drop(self, reason: str) -> None:
        """Count an event that could not be turned into a line. Never raises an Exception.

        ``reason`` is one of ``DROP_REASONS``.
        """
        try:
            self._locked(self._count_drop, reason)
        except Exception:
            warn_once.uncounted += (reason,)
        try:  # noqa: SIM105 - it would be a call
            self._settle()
        except Exception:  # the next event tries again
            pass

    def look_up_rank(self, said: int | None = None) -> None:
        """Take the rank the engine said, once it said one, else look again."""
        if said is not None:
            self._said_rank = said
        self._take_rank(self._said_rank if self._said_rank is not None else find_rank()[0])

    def identify(self, identity: Mapping[str, str]) -> None:
        """Have headers say who logs. Where one is written already, a further segment follows."""
        settings = self.settings._replace(identity={**self.settings.identity, **identity})
        if settings != self.settings:
            self.settings, self._who = settings, None
            if self._segment is not None:
                self._overdue = True
                self._second = 0  # the next line looks for what is overdue

    def ask_torch(self) -> None:
        """Take the rank of torch.distributed, unless the engine said one."""
        rank = from_torch()
        if rank is not None and self._said_rank is None:
            self._take_rank(rank)

    def _take_rank(self, rank: int | None) -> None:
        if rank != self.rank or not self._constant:
            constant = encode({"rank": rank, "scheme": self.settings.scheme})[1:-2]
            self._constant = constant.replace(b"%", b"%%")
            self.rank = rank
            self._second = 0  # the next line is made of it

    def abandon(self) -> None:
        """In a forked child: the segment is the parent's. It is closed here and never unlocked."""
        self._abandoned = True
        self._fd = self._limit = -1
        self._lock = threading.RLock()  # whoever held it is not in this process
        if self._segment is not None:
            self._segment.close()

    def _locked(self, action: Callable[..., _Returned], *given: str) -> _Returned:
        """Call ``action`` under the lock, which is taken as `emit` takes it."""
        lock = self._lock
        try:
            if not lock.acquire(False):
                lock = self._wait()
            return action(*given)
        finally:
            try:  # noqa: SIM105 - it would be a call
                lock.release()
            except RuntimeError:  # a signal handler raised while another thread had it
                pass

    def _wait(self) -> threading.RLock:
        """Acquire the lock that another thread has, and return it.

        A signal handler may fork meanwhile: in the child nobody lets go of the parent's lock.
        """
        while True:
            lock = self._lock
            if lock.acquire(timeout=RETRY_SECONDS):
                return lock

    # ----------------------------------------------------------------------------------
    # Under the lock

    def _open_first(self) -> None:
        if self._fd < 0:
            reason = self._make_room(0)
            if reason is not None:
                self._note(reason)

    def _put(self, event: bytes, own: bytes, level: bytes) -> str | None:
        """Write one line. Returns None, or the reason why it was not written."""
        free = self._free
        while True:
            nanos = time_ns() - self._second
            if not 0 <= nanos < _SECOND:
                nanos = self._turn()
            pattern = self._line
            if level != b"info":
                pattern = pattern.replace(b'"info"', b'"%b"' % level, 1)
            if not own:
                pattern = pattern.replace(b",%b}", b"%b}")
            seq = free[0] if free else self._next_seq
            line = pattern % (event, nanos // 1000, seq, own)
            size = len(line)
            if size > MAX_LINE_BYTES:
                return "too_long"
            if self._size + size > self._limit:
                if self._opening and self._fd < 0:
                    # A signal handler's event while the first segment is being opened.
                    self._pending.append((event, own, level))
                    self._unsettled = True
                    return None
                reason = self._make_room(size)
                if reason is not None:
                    return reason
                continue
            segment = self._segment
            try:  # the usual answer of `Segment.is_ours`, without its call
                ours = fcntl(self._fd, GET_MARK) == MARK
            except (OSError, ValueError):
                ours = False
            if segment is None or not (ours or segment.is_ours()):
                # Somebody closed our descriptor: there are libraries that close all of them. It
                # may be a file or a socket of the engine's by now.
                self._let_go(segment, close=False)
                continue
            # A call in the middle of another's write cannot know whether that one is torn: it
            # starts with a newline, as the next write after a torn one does. Readers skip an empty
            # line.
            if self._unclean is not None:
                line = b"\n" + line
                size += 1
            # The number is drawn if it is still the one that the line has. From the comparison to
            # the drawing, and on to the write, stands neither a call nor a jump that is taken:
            # there a signal handler could log, and take the same.
            drawn = False
            try:
                if free:
                    if segment is self._segment and seq == free[0]:
                        del free[0]
                        drawn = True
                elif segment is self._segment and seq == self._next_seq:
                    self._next_seq = seq + 1
                    drawn = True
                if drawn:
                    self._unclean = seq
                    written = os.write(self._fd, line)
                    break
            except OSError as error:
                free += [seq]  # no call: it must not fail close to the recursion limit
                return self._reason(error, "io_error")
            except RecursionError:
                if drawn:
                    free += [seq]
                raise
            except BaseException:
                if drawn and self._settle_write(segment, seq, size):
                    self._logged = own
                raise

        if segment is self._segment:  # else a call in the middle of this one went on to another
            self._size += written
        if written != size:
            free.append(seq)
            return "no_space"
        if self._unclean == seq:  # else a call in the middle of this one left a torn line
            self._unclean = None
        return None

    def _settle_write(self, segment: Segment, seq: int, size: int) -> bool:
        """A signal handler raised as the write of ``size`` bytes returned what nobody knows now.

        The file tells it. Where the handler's own events went on to another, it was whole.
        Returns whether it was.
        """
        written = size
        if segment is self._segment:
            written = segment.length() - self._size
            self._size += max(0, written)
        if written < size:
            self._free.append(seq)
            return False
        if self._unclean == seq:
            self._unclean = None
        return True

    def _turn(self) -> int:
        """Once a second: what its lines share, and whether all is as it was left.

        Returns the nanoseconds of the second.
        """
        second, nanos = divmod(time_ns(), _SECOND)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second)).encode()
        proc = self.proc.encode()
        # No call stands between these: neither an event of a signal handler nor another rank comes
        # between.
        self._line = _LINE % (stamp, proc, self._constant)
        self._second = second * _SECOND
        segment = self._segment
        if segment is not None:
            state = segment.state()
            if state != "ok":
                self._let_go(segment, close=state == "removed")
            elif self._overdue:
                self._limit = -1
        return nanos

    def _let_go(self, segment: Segment | None, close: bool) -> None:
        """Forget a segment that nobody can read any more, unless a signal handler's event did."""
        if segment is not self._segment:
            return
        self._segment = None
        self._fd = self._limit = -1
        self._full = self._overdue = False
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
        warn_once.need_room()
        self._blocked = None
        self._opening = True
        try:
            self._open_segment(need)
            if self._full or self._fd < 0:
                self._blocked = "limit"
        except OSError as error:
            self._blocked = self._reason(error, "unavailable")
            if self._fd >= 0 and not self._full:
                # Better a segment that is too long than lost events, within reason.
                self._overdue = True
                self._limit = 2 * self._segment_bytes
                if self._size + need <= self._limit:
                    self._note(self._blocked, "a segment could not be followed by another")
                    self._blocked = None
        finally:
            self._opening = False
        if self._abandoned:  # a signal handler forked in the middle, and this is the child
            self.abandon()
            return "unavailable"
        if self._blocked is not None:
            self._limit = -1
            self._next_try = time.monotonic() + RETRY_SECONDS
        return self._blocked

    def _open_segment(self, need: int) -> None:
        """Go on in a new segment, or in the present one when only room was missing.

        In a full directory the new one is for `_tell` alone.
        """
        with opened(self.settings) as folder:
            most = limit_on(folder, self.settings.max_bytes)
            largest = max(1, most // SEGMENTS_PER_LIMIT)
            self._segment_bytes = min(self.settings.segment_bytes, largest)
            size = weigh(folder)
            full = size >= most
            if full:
                self._detail = f"{most} bytes"
                crowded = size >= most + most // LAST_WORDS_PER_LIMIT
                if self._full or (self._segment is None and crowded):
                    return
            if not self._full:
                segment = self._new_segment(folder)
                # The new one is held before the old one is let go: a living process holds a lock
                # on its newest segment at every moment, and that is how others know it lives.
                old, self._segment = self._segment, segment
                self._size, self._unclean, self._fd = segment.size, None, segment.fd
                if old is not None:
                    old.close()
            self._full = full
            self._overdue = False
            self._limit = max(self._segment_bytes, self._size + need + _SLACK)

    def _new_segment(self, folder: int) -> Segment:
        n = self._next_segment
        who = self._who = self._who or _who_we_are(self.settings)
        event = b'"segment_continued"' if n else b'"process_started"'
        name = SegmentName(self.proc, n)
        seq: int | None = None

        def header(locked: bool) -> bytes:
            nonlocal seq
            fields = {"segment": n, **who, **({} if locked else {"locked": False})}
            own = encode(fields)[1:-2]
            micros = self._turn() // 1000
            # Drawn without a call, as in `_put`.
            if self._free:
                seq = self._free[0]
                del self._free[0]
            else:
                seq = self._next_seq
                self._next_seq = seq + 1
            return self._line % (event, micros, seq, own)

        try:
            segment = Segment(folder, name, header, lambda: self._abandoned)
        except BaseException:
            if is_there(folder, name):  # a signal handler raised after it got its name
                self._next_segment = n + 1
            elif seq is not None:
                self._free.append(seq)
            raise
        self._next_segment = n + 1
        return segment

    # ----------------------------------------------------------------------------------
    # Counting what was dropped

    def _count_drop(self, reason: str) -> None:
        self._note(reason, "events are dropped")
        self._dropped[reason] += 1
        self._unsettled = True

    def _note(self, reason: str, what: str = "the log could not be opened") -> None:
        """Have it said, once for each reason, when the lock is released."""
        if reason not in self._noted and not self._abandoned:
            self._noted.add(reason)
            detail = self._detail or self.settings.directory
            self._complaints.append((reason, f"{what}: {DROP_REASONS[reason]}: {detail}"))
            self._unsettled = True

    def _settle(self) -> None:
        """Log what signal handlers left and what was dropped, as far as there is room; complain."""
        warn_once.need_room(2 * warn_once.FRAMES)  # it may open a segment
        if not self._locked(self._write_unsettled):
            return
        if self._lock._is_owned():  # type: ignore[attr-defined]
            # A signal handler's event in the middle of another, which says it when it is done.
            self._unsettled = self._unsettled or bool(self._complaints)
            return
        while self._complaints:
            warn_once.say(*self._complaints.pop())

    def _write_unsettled(self) -> bool:
        """False where it has to wait: in the middle of an opening."""
        if self._opening:
            return False
        self._unsettled = False
        try:
            while warn_once.uncounted:
                self._count_drop(warn_once.uncounted.pop())
            while self._pending:
                # Each is taken by what is no call: a signal handler's event would log it once more.
                event = self._pending[0]
                del self._pending[0]
                reason = self._put(*event)
                if reason is not None:
                    self._count_drop(reason)
            for reason in DROP_REASONS:
                self._tell(reason)
        except BaseException:
            self._unsettled = True  # what is left is for the next event
            raise
        return True

    def _tell(self, reason: str) -> None:
        """Log how many events were dropped, if there is room.

        In a full directory it goes where events may not: to what is left of the segment.
        """
        if not self._dropped[reason]:
            return
        if self._full and self._dropped[reason] * UNTOLD_PART <= self._told[reason]:
            self._unsettled = True
            return
        # No call stands between: a signal handler's event may be dropped, too.
        count = self._dropped[reason]
        self._dropped[reason] = 0
        own, written = None, False
        try:
            own = encode({"reason": reason, "count": count})[1:-2]
            if self._full:
                self._limit = min(self._segment_bytes, TELLING_BYTES)
            written = self._put(b'"events_dropped"', own, b"warning") is None
        finally:
            if self._full:
                self._limit = -1
            if written or (own is not None and self._logged is own):
                self._told[reason] += count
            else:
                self._dropped[reason] += count
                self._unsettled = True


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
        **settings.identity,
    }
