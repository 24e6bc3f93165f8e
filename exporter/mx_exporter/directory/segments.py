"""One segment file and its way into a fold."""

from __future__ import annotations

from mx_log.files import SegmentName

from ..core.decode import NO_OBJECT, Rejected
from ..core.fold import Fold
from ..core.lines import LineSplitter

#: Bytes read at a time. Bounds what a drain holds in memory, and how late it sees its deadline.
BLOCK_BYTES = 256 * 1024

#: Bytes before the read position that are compared before a file is read on. More than a line,
#: so that they hold a number or a time: lines that end alike would pass for one another.
ANCHOR_BYTES = 512


class Segment:
    """What is known of one segment file, and its way into a fold."""

    __slots__ = (
        "_seen",
        "_since",
        "anchor",
        "done",
        "inode",
        "mtime",
        "name",
        "position",
        "size",
        "splitter",
        "was_locked",
    )

    def __init__(self, name: SegmentName, inode: int) -> None:
        self.name = name
        self.inode = inode
        self.splitter = LineSplitter()
        #: Bytes read so far, and the last of them: a file that only grows still has them.
        self.position = 0
        self.anchor = b""
        #: Size and time of modification (seconds since the epoch) when last looked at.
        self.size = 0
        self.mtime = 0.0
        #: The writer is gone and everything was read.
        self.done = False
        #: It was seen with a lock: whoever wrote it held one, and nobody writes it without.
        self.was_locked = False
        #: Size and time of modification at the latest look, and since when they are these (of the
        #: follower's clock).
        self._seen: tuple[int, float] | None = None
        self._since = 0.0

    def unchanged(self, now: float, age: float) -> float:
        """For how many seconds it has been as it is.

        :param now: the follower's clock.
        :param age: for how long it is known to be so if this is the first look at it.
        """
        seen = (self.size, self.mtime)
        if seen != self._seen:
            self._seen, self._since = seen, now - (age if self._seen is None else 0.0)
        return now - self._since

    def feed(self, fold: Fold, block: bytes) -> None:
        """Fold the lines that the next block completes."""
        self.position += len(block)
        self.anchor = (self.anchor + block)[-ANCHOR_BYTES:]
        fold.feed_lines(self.splitter.feed(block))
        fold.reject("too_long", self.splitter.too_long)
        self.splitter.too_long = 0

    def start_again(self) -> None:
        """It holds other bytes than it did: read it from its beginning."""
        self.splitter = LineSplitter()
        self.position = 0
        self.anchor = b""

    def finish(self, fold: Fold) -> None:
        """The writer is gone: fold the last line if it is whole, else count it as torn."""
        self.done = True
        self.anchor = b""
        last = fold.catalog.decoder.decode_line(self.splitter.rest())
        if isinstance(last, Rejected) and last.reason in NO_OBJECT:
            fold.reject("torn")
        elif last is not None:
            fold.feed([last])
