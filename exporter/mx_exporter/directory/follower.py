"""Following a directory: which segments there are, which are finished, which state they give.

Bytes go to the fold in the order in which they were written to each file. No descriptor is held
between two drains, and a finished segment is not opened again.

A snapshot stands for segments that were removed. A compaction renames it into place before it
removes them; so a reader that finds another snapshot than the one it began with has missed
something, and starts over from that one.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable

from mx_log.files import SegmentName
from mx_log.locks import open_directory

from ..core.fold import Fold
from ..core.snapshot_seal import BadSnapshot
from .generations import StartOver
from .reading import Look, SegmentReader
from .scan import Scan
from .segments import Segment
from .settling import NEVER, Settling
from .snapshot import Identity, KnownSnapshot

#: How often a drain starts over before it leaves the rest to the next one.
_ATTEMPTS = 10


class Follower:
    """Reads what is new in a directory of segments and folds it.

    Used by one thread at a time, but for `hurry` and `settle_at_once`. The directory need not
    exist yet, and may vanish and come back. What others do in the directory they report by the
    ``mark_`` methods.

    :param directory: its path.
    :param fold: where events go.
    :param settle_seconds: see `settling`; so is ``grace_seconds``.
    :param clock: monotonic, in seconds.
    :param wait: waits for so many seconds; only the first drain does.
    """

    def __init__(
        self,
        directory: str,
        fold: Fold,
        *,
        settle_seconds: float = 0.0,
        grace_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.directory = directory
        #: Replaced when a snapshot is taken up.
        self.fold = fold
        #: Grows with whatever changes the fold or the segments: as long as it stays, both do.
        self.changes = 0
        self._reader = SegmentReader(directory, clock)
        self._settling = Settling(settle_seconds, grace_seconds, clock, wait)
        self._scan = Scan()
        self._snapshot = KnownSnapshot(directory)
        #: In the order of their names, and so each process's in the order of their numbers.
        self._segments: dict[str, Segment] = {}
        #: Those of them that are not done.
        self._open: dict[str, Segment] = {}
        self._newest: dict[str, int] = {}
        #: Processes in the books that are not gone.
        self._living: set[str] = set()
        #: There was a drain before.
        self._drained = False
        #: (device, inode) of the directory at the latest drain; None when there is none.
        self.identity: tuple[int, int] | None = None
        #: Why the directory could not be listed at the latest drain; empty when it could.
        self.trouble = ""
        #: Size of all our files at the latest drain, and of the segments that are done.
        self.directory_bytes = 0
        self.finished_bytes = 0
        #: Events of the snapshot that was taken up: none of its lines was read by us.
        self.snapshot_events = 0
        #: Names of segments that the snapshot stands for and that are still there.
        self.leftover: list[str] = []
        #: Names of files of ours that are being made, or were when their maker died.
        self.temporary: list[str] = []

    # ----------------------------------------------------------------------------------
    # What was found

    @property
    def segments(self) -> list[Segment]:
        """The segments that are in the directory, as of the latest drain."""
        return list(self._segments.values())

    @property
    def finished(self) -> int:
        """How many of them are done."""
        return len(self._segments) - len(self._open)

    @property
    def writers_alive(self) -> int:
        """Processes that are not gone."""
        return len(self._living)

    @property
    def settles_in(self) -> float:
        """Seconds after the latest drain when another may finish a segment that waits for its
        second look, or find that a process is gone; infinity when none does."""
        return min(self._settling.due, self._settling.departs)

    @property
    def foreign_db_files(self) -> int:
        """Names not ours at the latest drain that end in ``.db``: another client's metrics."""
        return self._scan.foreign_db_files

    @property
    def bytes_read(self) -> int:
        """Bytes read from segments, in all."""
        return self._reader.bytes_read

    @property
    def bytes_unread(self) -> int:
        """Bytes that the latest drain left unread because of its deadline."""
        return self._reader.bytes_unread

    @property
    def rewritten(self) -> int:
        """Files that were seen to have shrunk or to have been replaced."""
        return self._reader.rewritten

    @property
    def ignored(self) -> Counter[str]:
        """Files left alone at the latest drain, by reason (`reading.IGNORED`)."""
        return self._reader.ignored

    @property
    def covered(self) -> dict[str, int]:
        """Process -> number of the last segment that the snapshot stands for."""
        return self._snapshot.covered

    @property
    def shipped(self) -> dict[str, int]:
        """Segment's name -> bytes of it that were shipped, as the snapshot has it."""
        return self._snapshot.shipped

    @property
    def snapshot_trouble(self) -> str:
        """Why the snapshot cannot be used; empty when it can, or when there is none."""
        return self._snapshot.trouble

    @property
    def snapshot_is_bad(self) -> bool:
        """Whether trouble with the snapshot is one that no further try to read it ends."""
        return self._snapshot.is_bad

    def knows(self, identity: Identity | None) -> bool:
        """Whether that is the snapshot that the latest drain found; None stands for none."""
        return self._snapshot.is_known(identity)

    def is_based_on(self, identity: Identity | None) -> bool:
        """Whether the fold goes on from that snapshot; None stands for none."""
        return self.knows(identity) and not self._snapshot.trouble

    # ----------------------------------------------------------------------------------
    # What others report

    def hurry(self, deadline: float) -> None:
        """Have the drain in hand stop earlier. Any thread may call this."""
        self._reader.limit_earlier(deadline)

    def settle_at_once(self) -> None:
        """From the next drain on, wait for nothing. Any thread may call this."""
        self._settling.settle_at_once()

    def mark_compacted(self, names: set[str], covered: dict[str, int], identity: Identity) -> None:
        """We ourselves put these segments into a snapshot: they need not be read again."""
        self._set_segments(s for name, s in self._segments.items() if name not in names)
        self._snapshot.mark_replaced(identity, covered)
        self._scan.forget()

    def mark_shipped(self, positions: dict[str, int]) -> None:
        """These positions of shipping are in the snapshot now."""
        self._snapshot.mark_shipped(positions)

    def mark_swept(self) -> None:
        """What a crash left was removed, as far as it could be."""
        self.leftover, self.temporary = [], []

    def mark_snapshot_bad(self, error: BadSnapshot) -> None:
        """The snapshot was read once more, and cannot be used."""
        self._snapshot.mark_bad(error)

    def mark_snapshot_moved(self) -> None:
        """The snapshot that cannot be used was moved out of the way."""
        self._snapshot.mark_moved()

    def report_shrunk(self, name: SegmentName) -> None:
        """Count and log that a segment lacks bytes that it had."""
        self._reader.report_shrunk(name)

    # ----------------------------------------------------------------------------------
    # The drain

    def drain(self, deadline: float | None = None) -> None:
        """Read and fold everything that is in the directory, up to the sizes seen now.

        Stops at ``deadline`` (of the clock, in seconds); what is left unread then shows in
        `bytes_unread` and is read by the next drain. No deadline holds for a drain that starts
        over from another snapshot: short of what was read before, counters would fall.
        """
        first, self._drained = not self._drained, True
        self._reader.limit(deadline)
        try:
            dir_fd = open_directory(self.directory)
        except OSError as error:
            self._lose_directory(error)
            return
        try:
            status = os.fstat(dir_fd)
            self.identity = (status.st_dev, status.st_ino)
            self.trouble = ""
            for _ in range(_ATTEMPTS):
                try:
                    self._drain(dir_fd, first=first)
                    if first and self._settling.due < NEVER:
                        # What the exporter before this one had finished must be in the first page:
                        # without it, counters would fall.
                        self._settling.wait()
                        self._drain(dir_fd, first=first)
                    break
                except StartOver:
                    continue
        except OSError as error:
            self._lose_directory(error)
        finally:
            os.close(dir_fd)

    def _lose_directory(self, error: OSError) -> None:
        self.identity = None
        self.trouble = error.strerror or str(error)
        self._reader.forget_counts()
        self._settling.begin_drain(first=False)
        # What is only out of reach for now is not read twice: rejected lines have no identity.
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self._set_segments(())
            self._scan = Scan()
            self.directory_bytes = 0

    def _drain(self, dir_fd: int, *, first: bool) -> None:
        self._reader.forget_counts()
        self._settling.begin_drain(first=first)
        self._take_up_snapshot(dir_fd)
        fresh = self._list(dir_fd)
        if self._snapshot.is_overtaken(dir_fd):
            raise StartOver
        while fresh:
            ended = False
            for segment in [segment for segment in fresh if self._read(segment, dir_fd)]:
                uses_locks = self._uses_locks(segment)
                if self._settling.is_settled(segment, uses_locks=uses_locks):
                    self._finish(segment)
                    ended = True
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
        self._settle_writers()
        open_bytes = sum(s.size for s in self._open.values())
        self.directory_bytes = self._scan.others_bytes + self.finished_bytes + open_bytes

    def _settle_writers(self) -> None:
        """Fold which processes live."""
        fold = self.fold
        back = {proc for proc in self._settling.alive - self._living if proc in fold.state.books}
        for proc in back:
            self.changes += 1
            fold.writer_alive(proc)
        self._living |= back
        # What was not read yet holds lines of whom its name says, as far as anybody knows.
        writing = {p for s in self._open.values() for p in s.procs or (s.name.proc,)}
        for proc in self._settling.departed(self._living - writing):
            self.changes += 1
            fold.writer_gone(proc)
            self._living.discard(proc)

    def _note_lines_of(self, segment: Segment) -> None:
        """The processes whose lines were read in a segment live, unless they are known as gone."""
        books = self.fold.state.books
        self._living.update(proc for proc in segment.procs if not books[proc].gone)

    def _set_segments(self, segments: Iterable[Segment]) -> None:
        self.changes += 1
        self._segments = {str(s.name): s for s in sorted(segments, key=lambda s: s.name)}
        self._newest = {s.name.proc: s.name.n for s in self._segments.values()}
        self._open = {name: s for name, s in self._segments.items() if not s.done}
        self.finished_bytes = sum(s.size for s in self._segments.values() if s.done)

    def _take_up_snapshot(self, dir_fd: int) -> None:
        """Start over from the directory's snapshot, if it holds another state than the last one."""
        covered = self._snapshot.covered
        new = self._snapshot.refresh(self.fold.catalog, dir_fd)
        if self._snapshot.covered is not covered:
            # A segment that the snapshot stands for is none to read any more.
            self._scan.forget()
        if new is None:
            return
        self._reader.lift_limit()
        self._settling.note_gone(self.fold.state.books.gone())
        self._settling.note_written(new.written)
        self.fold = self.fold.fresh(new.state)
        self.snapshot_events = new.state.logged
        self._set_segments([segment.unread() for segment in self._segments.values()])
        self._living = new.state.books.alive()

    def _list(self, dir_fd: int) -> list[Segment]:
        """Note which files came and went; return the segments that are not done."""
        changed = self._scan.refresh(dir_fd)
        self.temporary = list(self._scan.temporary)
        self._reader.ignore_listed(self._scan.not_regular)
        if changed:
            self._match_segments()
        return list(self._open.values())

    def _match_segments(self) -> None:
        """Match the files that the scan found with the segments that are known."""
        there: list[Segment] = []
        self.leftover = []
        for file, (name, inode) in self._scan.segments.items():
            if name.n <= self.covered.get(name.proc, -1):
                self.leftover.append(file)
                continue
            known = self._segments.get(file)
            if known is None or known.inode != inode:
                if known is not None:
                    self._reader.count_replaced()
                known = Segment(name, inode)
            there.append(known)
        self._set_segments(there)

    def _read(self, segment: Segment, dir_fd: int) -> bool:
        """Read what a segment has; return whether that is all, and nobody holds the segment."""
        before = (self.bytes_read, self.rewritten)
        try:
            look = self._reader.read(segment, self.fold, dir_fd)
        except FileNotFoundError:
            if self._snapshot.is_overtaken(dir_fd):
                raise StartOver from None
            return False
        if (self.bytes_read, self.rewritten) != before:
            self.changes += 1
            self._note_lines_of(segment)
        if look is None:
            return False
        if self._has_no_writer(segment, look):
            return look.whole
        self._settling.note_held(segment, uses_locks=self._uses_locks(segment))
        return False

    def _uses_locks(self, segment: Segment) -> bool:
        """Whether the file system of the segment's writer has locks, as its header says."""
        books = self.fold.state.books
        return all(books[proc].locked for proc in segment.procs)

    def _has_no_writer(self, segment: Segment, look: Look) -> bool:
        if self._uses_locks(segment):
            return look.unlocked
        # No locks where the writer is: only a newer segment shows that this one is finished.
        return segment.name.n < self._newest[segment.name.proc]

    def _finish(self, segment: Segment) -> None:
        self.changes += 1
        segment.finish(self.fold)
        self._note_lines_of(segment)
        self._settling.note_end(segment)
        del self._open[str(segment.name)]
        self.finished_bytes += segment.size
