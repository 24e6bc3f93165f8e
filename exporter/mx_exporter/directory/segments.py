"""One segment file: what is known of it, and its way into a fold."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mx_log.files import SegmentName

from ..core.decode import ended
from ..core.fold import Fold
from ..core.lines import LineSplitter

#: Bytes read at a time. Bounds what a drain holds in memory, and how late it sees its deadline.
BLOCK_BYTES = 256 * 1024

#: Bytes before the read position that are compared before a file is read on. More than a line,
#: so that they hold a number or a time: lines that end alike would pass for one another.
ANCHOR_BYTES = 512

#: The time of modification of a file that was not looked at yet: no file has it.
_NEVER = float("nan")


class Segment:
    """What is known of one segment file, and its way into a fold."""

    __slots__ = (
        "_unchanged_since",
        "anchor",
        "done",
        "inode",
        "mtime",
        "name",
        "position",
        "procs",
        "size",
        "splitter",
        "unchanged_for",
        "was_locked",
    )

    def __init__(self, name: SegmentName, inode: int) -> None:
        self.name = name
        self.inode = inode
        self.splitter = LineSplitter()
        #: Bytes read so far, and the last of them: a file that only grows still has them.
        self.position = 0
        self.anchor = b""
        #: Size and time of modification (seconds since the epoch) at the latest look.
        self.size = 0
        self.mtime = _NEVER
        #: Seconds for which both were the same at the latest look; not above 0 at the first one.
        self.unchanged_for = 0.0
        self._unchanged_since = 0.0
        #: It was seen with a lock: whoever wrote it held one, and nobody writes it without.
        self.was_locked = False
        #: The processes whose numbers were met in its lines, whatever its name says.
        self.procs: set[str] = set()
        #: Nobody writes it any more, and everything was read.
        self.done = False

    def unread(self) -> Segment:
        """The same file with nothing read of it. What was seen from outside stays known: a segment
        that was finished is finished as soon as it is read again, if it did not change."""
        again = Segment(self.name, self.inode)
        again.size, again.mtime = self.size, self.mtime
        again._unchanged_since = -float("inf") if self.done else self._unchanged_since
        again.was_locked = self.was_locked
        return again

    def note_look(self, status: os.stat_result, before: float, after: float) -> None:
        """Note size and time of modification.

        :param before: monotonic seconds at some moment before the file was looked at.
        :param after: the same for some moment after it. With both, no pause between the clock and
            the look can make two looks seem farther apart than they were.
        """
        if (status.st_size, status.st_mtime) != (self.size, self.mtime):
            self.size, self.mtime = status.st_size, status.st_mtime
            self._unchanged_since = after
        self.unchanged_for = before - self._unchanged_since

    def feed(self, fold: Fold, block: bytes) -> None:
        """Fold the lines that the next block completes."""
        self.position += len(block)
        self.anchor = (self.anchor + block)[-ANCHOR_BYTES:]
        fold.feed_lines(self.splitter.feed(block), self.procs)
        fold.reject("too_long", self.splitter.too_long)
        self.splitter.too_long = 0

    def start_again(self) -> None:
        """The file holds other bytes than it did: read it from its beginning."""
        self.splitter = LineSplitter()
        self.position = 0
        self.anchor = b""
        self.mtime = _NEVER

    def finish(self, fold: Fold) -> None:
        """Nobody writes it any more: fold the last line if it is whole, else count it as torn."""
        self.done = True
        self.anchor = b""
        rest = self.splitter.rest()
        last = fold.catalog.decoder.decode_line(rest)
        if last is not None:
            fold.feed_found([ended(last)], len(rest), self.procs)


def read_blocks(fd: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes of an open file from ``start`` up to ``end``, or to its own end if that is less.

    Raises ``OSError``.
    """
    while start < end and (block := os.pread(fd, min(BLOCK_BYTES, end - start), start)):
        start += len(block)
        yield block
