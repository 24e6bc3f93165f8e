"""Reading segments: what is new in one of them goes to a fold, within the deadline of a drain."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mx_log.files import SegmentName
from mx_log.locks import NotRegular, open_regular, probe

from ..core.fold import Fold
from .segments import Segment, read_blocks

_log = logging.getLogger(__name__)

#: Why a file with a segment's name is not read (``reason`` of ``mx_exporter_files_ignored``).
IGNORED = {
    "not_regular": "it is a directory, a symlink, a FIFO, a socket or a device",
    "unreadable": "it cannot be opened or read",
}

#: Warnings of ignored files, at most: each file is named once.
_MAX_WARNINGS = 1000


class Look(NamedTuple):
    """What one look at a segment showed."""

    #: All of the bytes that it had were read.
    whole: bool
    #: Nobody held its lock.
    unlocked: bool


class SegmentReader:
    """Reads segments of one directory, and counts what it meets.

    :param directory: for messages.
    :param clock: monotonic, in seconds.

    :ivar bytes_read: in all.
    :ivar bytes_unread: left unread in the drain in hand, because of its deadline.
    :ivar rewritten: files that were seen to have shrunk or to have been replaced. What they held
        before may not have been read.
    :ivar ignored: files left alone in the drain in hand, by reason (`IGNORED`).
    """

    def __init__(self, directory: str, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._deadline: float | None = None
        self._unlimited = False
        self._warned: set[tuple[str, str]] = set()
        self.bytes_read = 0
        self.bytes_unread = 0
        self.rewritten = 0
        self.ignored: Counter[str] = Counter()

    def limit(self, deadline: float | None) -> None:
        """Set the time (of the clock) at which to stop reading; None: never."""
        self._deadline, self._unlimited = deadline, False

    def limit_earlier(self, deadline: float) -> None:
        """Stop at an earlier time. Any thread may call this."""
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline

    def lift_limit(self) -> None:
        """Read everything, whatever was or will be said of a deadline, until the next `limit`."""
        self._unlimited = True

    def forget_counts(self) -> None:
        """Count anew what is counted of one drain."""
        self.bytes_unread = 0
        self.ignored = Counter()

    def read(self, segment: Segment, fold: Fold, dir_fd: int) -> Look | None:
        """Fold what is new in a segment, up to the size that it has now.

        Returns None when it cannot be read, or is another file by now.

        :raises FileNotFoundError: it is not there any more.
        """
        name = str(segment.name)
        before = self._clock()
        try:
            fd = open_regular(name, dir_fd)
        except FileNotFoundError:
            raise
        except NotRegular as error:
            self.ignore("not_regular", name, error.strerror or str(error))
            return None
        except OSError as error:
            self.ignore("unreadable", name, error.strerror or str(error))
            return None
        try:
            # First the lock, then the size: a writer that is gone by now adds nothing to it.
            unlocked = probe(fd)
            status = os.fstat(fd)
            if status.st_ino != segment.inode:
                return None
            if _is_rewritten(segment, fd):
                segment.start_again()
                self.report_shrunk(segment.name)
            segment.note_look(status, before, self._clock())
            self._read_on(segment, fold, fd)
        except OSError as error:
            self.ignore("unreadable", name, error.strerror or str(error))
            return None
        finally:
            os.close(fd)
        unread = segment.size - segment.position
        self.bytes_unread += unread
        return Look(whole=not unread, unlocked=unlocked)

    def _read_on(self, segment: Segment, fold: Fold, fd: int) -> None:
        blocks = read_blocks(fd, segment.position, segment.size)
        while segment.position < segment.size and not self._is_over():
            block = next(blocks, b"")
            if not block:
                segment.size = segment.position
                return
            self.bytes_read += len(block)
            segment.feed(fold, block)

    def _is_over(self) -> bool:
        deadline = None if self._unlimited else self._deadline
        return deadline is not None and self._clock() >= deadline

    def report_shrunk(self, name: SegmentName) -> None:
        """Count and log that a segment lacks bytes that it had."""
        self.rewritten += 1
        _log.warning(
            "%s was truncated or rewritten; what it held may be lost",
            os.path.join(self._directory, str(name)),
        )

    def count_replaced(self) -> None:
        """Count a file that took the place of another one."""
        self.rewritten += 1

    def ignore_listed(self, names: Iterable[str]) -> None:
        """Count the files that a listing shows not to be regular ones, in place of those before."""
        self.ignored.pop("not_regular", None)
        for name in names:
            self.ignore("not_regular", name, IGNORED["not_regular"])

    def ignore(self, reason: str, name: str, why: str) -> None:
        """Count a file that is left alone, and log it the first time."""
        self.ignored[reason] += 1
        if (reason, name) not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add((reason, name))
            _log.warning("left alone: %s: %s", os.path.join(self._directory, name), why)


def _is_rewritten(segment: Segment, fd: int) -> bool:
    """Whether the file no longer begins with what was read of it."""
    anchor = segment.anchor
    return os.pread(fd, len(anchor), segment.position - len(anchor)) != anchor
