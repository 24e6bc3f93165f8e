"""Following a directory: which segments there are, and what each has to read.

Bytes go to the fold in the order in which they were written to each file. No descriptor is held
between two drains, and a finished segment that was read whole is not looked at again.

A snapshot stands for segments that were removed. Whoever wrote it (`retention`) renames it into
place before it removes them; so a reader that finds another snapshot than the one it began with
has missed something, and starts over from that one.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable

from mx_log.files import SNAPSHOT_NAME, SegmentName
from mx_log.locks import NotRegular, open_directory, open_regular, probe

from ..core.fold import Fold
from ..core.snapshot_codec import BadSnapshot
from . import snapshot
from .generations import StartOver
from .scan import Scan
from .segments import BLOCK_BYTES, Segment

_log = logging.getLogger(__name__)

#: How often a drain starts over before it leaves the rest to the next one.
_ATTEMPTS = 10

#: Why a file with a segment's name is not read (``reason`` of ``mx_exporter_files_ignored``).
IGNORED = {
    "not_regular": "it is a directory, a symlink, a FIFO, a socket or a device",
    "unreadable": "it cannot be opened or read",
}


class Follower:
    """Reads what is new in a directory of segments and folds it.

    Used by one thread at a time. The directory need not exist yet, and may vanish and come back.
    """

    def __init__(
        self,
        directory: str,
        fold: Fold,
        *,
        settle_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        :param settle_seconds: a segment without a lock is finished once it was seen unchanged for
            so long: somebody may be copying it into the directory.
        :param clock: monotonic, in seconds.
        :param wait: waits for so many seconds; only the first drain does.
        """
        self.directory = directory
        #: Replaced when a snapshot is taken up.
        self.fold = fold
        self._settle_seconds = settle_seconds
        #: Seconds after the latest drain when a segment may be finished because nothing changed in
        #: it; infinity when none waits for that.
        self.settles_in = float("inf")
        self._clock = clock
        self._wait = wait
        #: Grows with whatever changes the fold or the segments: as long as it stays, both do.
        self.changes = 0
        self._scan = Scan()
        #: In the order of their names, and so each process's in the order of their numbers.
        self._segments: dict[str, Segment] = {}
        #: Those of them that are not done.
        self._open: dict[str, Segment] = {}
        self._newest: dict[str, int] = {}
        self._alive: set[str] = set()
        #: (device, inode) of the directory at the latest drain; None when there is none.
        self.identity: tuple[int, int] | None = None
        #: Why the directory could not be listed at the latest drain; empty when it could.
        self.trouble = ""
        self.bytes_read = 0
        #: Bytes that the latest drain left unread because of its deadline.
        self.bytes_unread = 0
        #: Size of all our files at the latest drain, and of the segments that are done.
        self.directory_bytes = 0
        self.finished_bytes = 0
        #: Files that were seen to have shrunk or to have been replaced: what they held before
        #: may not have been read.
        self.rewritten = 0
        #: Files left alone at the latest drain, by reason (`IGNORED`).
        self.ignored: Counter[str] = Counter()
        #: proc -> number of the last segment that the snapshot stands for.
        self.covered: dict[str, int] = {}
        #: Segment's name -> bytes of it that were shipped, as the snapshot has it.
        self.shipped: dict[str, int] = {}
        #: Names of segments that the snapshot stands for and that are still there.
        self.leftover: list[str] = []
        #: Names of files of ours that are being made, or were when their maker died.
        self.temporary: list[str] = []
        #: Why the snapshot cannot be used; empty when it can, or when there is none.
        self.snapshot_trouble = ""
        self._deadline: float | None = None
        #: The drain in hand may not stop before its end.
        self._whole = False
        #: The directory was drained before.
        self._drained = False
        #: Processes of which a segment was seen with a lock in the drain in hand.
        self._locked: set[str] = set()
        self._snapshot: tuple[int, int, int] | None = None
        self._said: set[tuple[str, str]] = set()

    @property
    def segments(self) -> list[Segment]:
        """The segments that are in the directory, as of the latest drain."""
        return list(self._segments.values())

    @property
    def finished(self) -> int:
        """How many of them are done."""
        return len(self._segments) - len(self._open)

    @property
    def foreign_db_files(self) -> int:
        """Names not ours at the latest drain that end in ``.db``: another client's metrics."""
        return self._scan.foreign_db_files

    @property
    def writers_alive(self) -> int:
        """Processes that hold a segment open."""
        return len(self._unfinished())

    def drain(self, deadline: float | None = None) -> None:
        """Read and fold everything that is in the directory, up to the sizes seen now.

        Stops at ``deadline`` (of ``time.monotonic``, in seconds); what is left unread then
        shows in `bytes_unread` and is read by the next drain. No deadline holds for a drain that
        starts over from another snapshot: short of what was read before, counters would fall.
        """
        self._deadline, self._whole = deadline, False
        try:
            dir_fd = open_directory(self.directory)
        except OSError as error:
            self._lost_directory(error)
            return
        try:
            status = os.fstat(dir_fd)
            self.identity = (status.st_dev, status.st_ino)
            self.trouble = ""
            for _ in range(_ATTEMPTS):
                try:
                    self._drain(dir_fd)
                    if not self._drained and self.settles_in < float("inf"):
                        # What the exporter before this one had finished must be in the first page:
                        # without it, counters would fall.
                        self._wait(self.settles_in)
                        self._drain(dir_fd)
                    self._drained = True
                    break
                except StartOver:
                    continue
        except OSError as error:
            self._lost_directory(error)
        finally:
            os.close(dir_fd)

    def hurry(self, deadline: float) -> None:
        """Have the drain in hand stop earlier. Any thread may call this."""
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline

    def settle_at_once(self) -> None:
        """From the next drain on, a segment without a lock is finished at once: nobody comes to
        look again."""
        self._settle_seconds = 0.0

    def swept(self) -> None:
        """What a crash left was removed, as far as it could be."""
        self.leftover, self.temporary = [], []

    def moved_bad_snapshot(self) -> None:
        """The snapshot that cannot be used was moved out of the way."""
        self.snapshot_trouble = ""

    def mark_shipped(self, positions: dict[str, int]) -> None:
        """These positions of shipping are in the snapshot now."""
        self.shipped = positions

    def compacted(
        self, names: set[str], covered: dict[str, int], identity: tuple[int, int, int]
    ) -> None:
        """We ourselves put these segments into a snapshot: they need not be looked at again."""
        self._take(s for name, s in self._segments.items() if name not in names)
        self._cover(covered)
        self._snapshot = identity
        self.snapshot_trouble = ""

    def knows(self, identity: tuple[int, int, int] | None) -> bool:
        """Whether that is the snapshot that was taken up, or None when there was none."""
        return identity == self._snapshot and not self.snapshot_trouble

    def _lost_directory(self, error: OSError) -> None:
        self.identity = None
        self.trouble = error.strerror or str(error)
        self.ignored = Counter()
        self.bytes_unread = 0
        # What is only out of reach for now is not read twice: rejected lines have no identity.
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self._take(())
            self._scan = Scan()
            self.directory_bytes = 0

    def _drain(self, dir_fd: int) -> None:
        self.ignored = Counter()
        self.bytes_unread = 0
        self.settles_in = float("inf")
        self._locked = set()
        orphans = self._take_up_snapshot(dir_fd)
        self._whole = self._whole or orphans is not None
        fresh = self._list(dir_fd)
        if snapshot.identity(dir_fd) not in (None, self._snapshot):
            raise StartOver
        while fresh:
            ended = set()
            for segment in [segment for segment in fresh if self._read(segment, dir_fd)]:
                if self._is_settled(segment):
                    self._finish(segment)
                    ended.add(segment.name.proc)
            if not ended:
                break
            # A writer opens its next segment before it closes the last one: what was not there
            # before its lock was found free, and is there now, is its next segment.
            known = set(self._segments)
            self._list(dir_fd)
            came = {s.name.proc for name, s in self._segments.items() if name not in known}
            # Its last segment may have grown since it was read: without that, what the next one
            # holds would leave a gap behind it.
            fresh = [s for s in self._segments.values() if s.name.proc in came and not s.done]
            self._settle(ended)
        # Neither a process that the snapshot alone knows nor one whose files were removed has a
        # segment that could end, and so tell that the process did.
        self._settle((orphans or set()) | self._alive)
        self._alive = self._unfinished()
        unfinished_bytes = sum(s.size for s in self._open.values())
        self.directory_bytes = self._scan.others_bytes + self.finished_bytes + unfinished_bytes

    def _settle(self, procs: set[str]) -> None:
        for proc in procs - self._unfinished():
            self.changes += 1
            self.fold.writer_gone(proc)

    def _unfinished(self) -> set[str]:
        return {s.name.proc for s in self._open.values()}

    def _take(self, segments: Iterable[Segment]) -> None:
        """These are the segments now."""
        self.changes += 1
        self._segments = {str(s.name): s for s in sorted(segments, key=lambda s: s.name)}
        self._newest = {s.name.proc: s.name.n for s in self._segments.values()}
        self._open = {name: s for name, s in self._segments.items() if not s.done}
        self.finished_bytes = sum(s.size for s in self._segments.values() if s.done)

    def _cover(self, covered: dict[str, int]) -> None:
        """A snapshot stands for these: a segment that is among them is none to read any more."""
        self.covered = covered
        self._scan.invalidate()

    def _take_up_snapshot(self, dir_fd: int) -> set[str] | None:
        """Start over from the directory's snapshot, if it holds another state than the last.

        Returns the processes that it holds: those without a segment are gone. None: go on.
        """
        found = snapshot.identity(dir_fd)
        if found == self._snapshot:
            return None
        if found is None:
            # It was removed, and stands for no segment that is there. What was folded stays.
            self._snapshot, self.snapshot_trouble = None, ""
            self._cover({})
            return None
        path = os.path.join(self.directory, SNAPSHOT_NAME)
        try:
            read = snapshot.read(self.fold.catalog, dir_fd)
        except (BadSnapshot, OSError) as error:
            self._snapshot = found
            self.snapshot_trouble = str(error)
            _log.error(
                "%s %s; what it stands for is missing from the metrics. Put a good one in its "
                "place, or move it away",
                path,
                error,
            )
            return None
        if read is None:
            return None
        taken, self._snapshot = read
        self.snapshot_trouble = ""
        self.shipped = taken.shipped
        if taken.segments == self.covered:
            # The same state: only what was shipped of the segments is another.
            return None
        self._cover(taken.segments)
        self.fold = self.fold.fresh(taken.state)
        self._take(())
        for name in taken.changed:
            _log.warning(
                "%s: %s was derived with another table; it starts from the segments that remain",
                path,
                name,
            )
        return {proc for proc, book in taken.state.books.items() if not book.gone}

    def _list(self, dir_fd: int) -> list[Segment]:
        """Take note of the files that came and went; return the segments with something to read."""
        changed = self._scan.refresh(dir_fd)
        self.temporary = list(self._scan.temporary)
        self.ignored.pop("not_regular", None)
        for file in self._scan.not_regular:
            self._ignore("not_regular", file, IGNORED["not_regular"])
        if changed:
            self._take_note()
        return list(self._open.values())

    def _take_note(self) -> None:
        there: list[Segment] = []
        self.leftover = []
        for file, (name, inode) in self._scan.segments.items():
            if name.n <= self.covered.get(name.proc, -1):
                self.leftover.append(file)
                continue
            known = self._segments.get(file)
            if known is None or known.inode != inode:
                self.rewritten += known is not None
                known = Segment(name, inode)
            there.append(known)
        self._take(there)

    def _read(self, segment: Segment, dir_fd: int) -> bool:
        """Read what a segment has; return whether that is all, and nobody writes on."""
        name = str(segment.name)
        try:
            fd = open_regular(name, dir_fd)
        except NotRegular as error:
            self._ignore("not_regular", name, error.strerror or str(error))
            return False
        except FileNotFoundError:
            if snapshot.identity(dir_fd) not in (None, self._snapshot):
                raise StartOver from None
            return False
        except OSError as error:
            self._ignore("unreadable", name, error.strerror or str(error))
            return False
        try:
            # First the lock, then the size: a writer that is gone by now adds nothing to it.
            unlocked = probe(fd)
            if not unlocked and self._has_locks(segment):
                segment.was_locked = True
                self._locked.add(segment.name.proc)
            status = os.fstat(fd)
            if status.st_ino != segment.inode:
                return False
            if self._is_rewritten(segment, fd):
                self._start_again(segment)
            segment.size = status.st_size
            segment.mtime = status.st_mtime
            self._read_on(segment, fd)
        except OSError as error:
            self._ignore("unreadable", name, error.strerror or str(error))
            return False
        finally:
            os.close(fd)
        if segment.position < segment.size:
            self.bytes_unread += segment.size - segment.position
            return False
        return self._has_no_writer(segment, unlocked)

    def _read_on(self, segment: Segment, fd: int) -> None:
        while segment.position < segment.size:
            deadline = None if self._whole else self._deadline
            if deadline is not None and self._clock() >= deadline:
                return
            wanted = min(BLOCK_BYTES, segment.size - segment.position)
            block = os.pread(fd, wanted, segment.position)
            if not block:
                segment.size = segment.position
                return
            self.bytes_read += len(block)
            self.changes += 1
            segment.feed(self.fold, block)

    def _finish(self, segment: Segment) -> None:
        self.changes += 1
        segment.finish(self.fold)
        del self._open[str(segment.name)]
        self.finished_bytes += segment.size

    def _has_locks(self, segment: Segment) -> bool:
        """Whether the file system of the segment's writer has locks, as its header says."""
        book = self.fold.state.books.get(segment.name.proc)
        return book is None or book.locked

    def _has_no_writer(self, segment: Segment, unlocked: bool) -> bool:
        if self._has_locks(segment):
            return unlocked
        # No locks where the writer is: only a newer segment tells that this one is finished.
        return segment.name.n < self._newest[segment.name.proc]

    def _is_settled(self, segment: Segment) -> bool:
        """Whether a segment without a writer stays as it is.

        It does where its writer is known: it was seen with a lock, another segment of its process
        has one now, or there are no locks. Else somebody may be copying it into the directory, so
        it must have been seen unchanged for a while.
        """
        known = segment.was_locked or segment.name.proc in self._locked
        if not self._settle_seconds or known or not self._has_locks(segment):
            return True
        # An exporter that is started again has not seen what the one before it saw: the time of the
        # last write stands for that.
        age = 0.0 if self._drained else max(0.0, time.time() - segment.mtime)
        left = self._settle_seconds - segment.unchanged(self._clock(), age)
        if left > 0:
            self.settles_in = min(self.settles_in, left)
        return left <= 0

    def _is_rewritten(self, segment: Segment, fd: int) -> bool:
        """Whether the file no longer begins with what was read of it."""
        anchor = segment.anchor
        return os.pread(fd, len(anchor), segment.position - len(anchor)) != anchor

    def shrunk(self, name: SegmentName) -> None:
        """Tell that a segment lacks bytes that it had."""
        self.rewritten += 1
        _log.warning(
            "%s was truncated or rewritten; what it held may be lost",
            os.path.join(self.directory, str(name)),
        )

    def _start_again(self, segment: Segment) -> None:
        self.changes += 1
        self.shrunk(segment.name)
        segment.start_again()

    def _ignore(self, reason: str, name: str, why: str) -> None:
        self.ignored[reason] += 1
        if (reason, name) not in self._said and len(self._said) < 1000:
            self._said.add((reason, name))
            _log.warning("left alone: %s: %s", os.path.join(self.directory, name), why)
