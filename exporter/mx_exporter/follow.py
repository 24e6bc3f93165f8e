"""Following a directory: which segments there are, and what each has to read.

Bytes go to the fold in the order in which they were written to each file. No descriptor is held
between two drains, and a finished segment that was read whole is not looked at again.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

from mx_emitter.events import SegmentName, is_ours, parse_segment_name

from .fold import Fold
from .lines import LineSplitter
from .parse import Rejected, parse_line
from .segments import NotRegular, open_segment, probe

_log = logging.getLogger(__name__)

#: Bytes read at a time. Bounds what a drain holds in memory, and how late it sees its deadline.
BLOCK_BYTES = 64 * 1024

#: Why a file with a segment's name is not read (``reason`` of ``mx_exporter_files_ignored``).
IGNORED = {
    "not_regular": "it is a directory, a symlink, a FIFO, a socket or a device",
    "unreadable": "it cannot be opened or read",
}


class Segment:
    """What is known of one segment file."""

    __slots__ = ("done", "inode", "name", "position", "size", "splitter")

    def __init__(self, name: SegmentName, inode: int) -> None:
        self.name = name
        self.inode = inode
        self.splitter = LineSplitter()
        #: Bytes read so far.
        self.position = 0
        #: Size when last looked at.
        self.size = 0
        #: The writer is gone and everything was read.
        self.done = False


class Follower:
    """Reads what is new in a directory of segments and folds it.

    Used by one thread at a time. The directory need not exist yet, and may vanish and come back.
    """

    def __init__(
        self, directory: str, fold: Fold, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.directory = directory
        self.fold = fold
        self._clock = clock
        self._segments: dict[str, Segment] = {}
        #: (device, inode) of the directory at the latest drain; None when there is none.
        self.identity: tuple[int, int] | None = None
        #: Why the directory could not be listed at the latest drain; empty when it could.
        self.trouble = ""
        self.bytes_read = 0
        #: Bytes that the latest drain left unread because of its deadline.
        self.bytes_unread = 0
        #: Size of all our files at the latest drain.
        self.directory_bytes = 0
        #: Files that were seen to have shrunk or to have been replaced.
        self.rewritten = 0
        #: Files left alone at the latest drain, by reason (`IGNORED`).
        self.ignored: Counter[str] = Counter()
        #: Names not ours at the latest drain that end in ``.db``: another client's metrics.
        self.foreign_db_files = 0
        self._said: set[tuple[str, str]] = set()

    @property
    def segments(self) -> list[Segment]:
        """The segments that are in the directory, as of the latest drain."""
        return list(self._segments.values())

    @property
    def writers_alive(self) -> int:
        """Processes that hold a segment open."""
        return len({s.name.proc for s in self._segments.values() if not s.done})

    def drain(self, deadline: float | None = None) -> None:
        """Read and fold everything that is in the directory, up to the sizes seen now.

        Stops at ``deadline`` (of ``time.monotonic``, in seconds); what is left unread then
        shows in `bytes_unread` and is read by the next drain.
        """
        self.ignored = Counter()
        self.bytes_unread = 0
        try:
            dir_fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._lost_directory(error)
            return
        try:
            status = os.fstat(dir_fd)
            self.identity = (status.st_dev, status.st_ino)
            self.trouble = ""
            self._drain(dir_fd, deadline)
        except OSError as error:
            self._lost_directory(error)
        finally:
            os.close(dir_fd)

    def _lost_directory(self, error: OSError) -> None:
        self.identity = None
        self.trouble = error.strerror or str(error)
        self._segments.clear()
        self.directory_bytes = 0
        self.foreign_db_files = 0

    def _drain(self, dir_fd: int, deadline: float | None) -> None:
        fresh = self._list(dir_fd)
        while fresh:
            ended = {
                segment.name.proc for segment in fresh if self._read(segment, dir_fd, deadline)
            }
            if not ended:
                break
            # A writer opens its next segment before it closes the last one: what was not there
            # before its lock was found free, and is there now, is its next segment.
            known = set(self._segments)
            self._list(dir_fd)
            fresh = [s for name, s in self._segments.items() if name not in known]
            open_still = {s.name.proc for s in self._segments.values() if not s.done}
            for proc in ended - open_still:
                self.fold.writer_gone(proc)
        self.directory_bytes = self._others_bytes + sum(s.size for s in self._segments.values())

    def _list(self, dir_fd: int) -> list[Segment]:
        """Take note of the files that came and went; return the segments with something to read."""
        there: dict[str, Segment] = {}
        self._others_bytes = 0
        self.foreign_db_files = 0
        self.ignored.pop("not_regular", None)
        with os.scandir(dir_fd) as entries:
            for entry in entries:
                name = parse_segment_name(entry.name)
                if name is None:
                    self._other(entry)
                elif not entry.is_file(follow_symlinks=False):
                    self._ignore("not_regular", entry.name, IGNORED["not_regular"])
                else:
                    known = self._segments.get(entry.name)
                    if known is None or known.inode != entry.inode():
                        self.rewritten += known is not None
                        known = Segment(name, entry.inode())
                    there[entry.name] = known
        self._segments = dict(sorted(there.items(), key=lambda item: item[1].name))
        return [segment for segment in self._segments.values() if not segment.done]

    def _other(self, entry: os.DirEntry[str]) -> None:
        if is_ours(entry.name):
            try:
                self._others_bytes += entry.stat(follow_symlinks=False).st_size
            except OSError:
                return
        elif entry.name.endswith(".db"):
            self.foreign_db_files += 1

    def _read(self, segment: Segment, dir_fd: int, deadline: float | None) -> bool:
        """Read what a segment has; return whether it is done now."""
        name = str(segment.name)
        try:
            fd = open_segment(name, dir_fd)
        except NotRegular as error:
            self._ignore("not_regular", name, str(error))
            return False
        except FileNotFoundError:
            return False
        except OSError as error:
            self._ignore("unreadable", name, error.strerror or str(error))
            return False
        try:
            # First the lock, then the size: a writer that is gone by now adds nothing to it.
            unlocked = probe(fd)
            status = os.fstat(fd)
            if status.st_ino != segment.inode:
                return False
            if status.st_size < segment.position:
                self._shrunk(segment)
            segment.size = status.st_size
            for block in self._blocks(segment, fd, deadline):
                self._feed(segment, segment.splitter.feed(block))
        except OSError as error:
            self._ignore("unreadable", name, error.strerror or str(error))
            return False
        finally:
            os.close(fd)
        if segment.position < segment.size:
            self.bytes_unread += segment.size - segment.position
            return False
        if self._finished(segment, unlocked):
            self._finish(segment)
        return segment.done

    def _blocks(self, segment: Segment, fd: int, deadline: float | None) -> Iterator[bytes]:
        while segment.position < segment.size:
            if deadline is not None and self._clock() >= deadline:
                return
            wanted = min(BLOCK_BYTES, segment.size - segment.position)
            block = os.pread(fd, wanted, segment.position)
            if not block:
                segment.size = segment.position
                return
            segment.position += len(block)
            self.bytes_read += len(block)
            yield block

    def _feed(self, segment: Segment, lines: list[bytes]) -> None:
        self.fold.feed_lines(lines)
        self.fold.reject("too_long", segment.splitter.too_long)
        segment.splitter.too_long = 0

    def _finish(self, segment: Segment) -> None:
        segment.done = True
        last = parse_line(segment.splitter.rest())
        if isinstance(last, Rejected) and last.reason == "not_json":
            self.fold.reject("torn")
        elif last is not None:
            self.fold.feed([last])

    def _finished(self, segment: Segment, unlocked: bool) -> bool:
        book = self.fold.state.books.get(segment.name.proc)
        if book is None or book.locked:
            return unlocked
        # No locks where the writer is: only a newer segment tells that this one is finished.
        return any(
            other.name.proc == segment.name.proc and other.name.n > segment.name.n
            for other in self._segments.values()
        )

    def _shrunk(self, segment: Segment) -> None:
        self.rewritten += 1
        _log.warning(
            "%s is shorter than what was read of it; reading it again from its start",
            os.path.join(self.directory, str(segment.name)),
        )
        segment.splitter = LineSplitter()
        segment.position = 0

    def _ignore(self, reason: str, name: str, why: str) -> None:
        self.ignored[reason] += 1
        if (reason, name) not in self._said and len(self._said) < 1000:
            self._said.add((reason, name))
            _log.warning("left alone: %s: %s", os.path.join(self.directory, name), why)
