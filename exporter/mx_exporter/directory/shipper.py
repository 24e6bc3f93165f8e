"""How the log leaves the pod: each event line to standard output (the tee), each finished
segment to an archive directory.

A thread of its own does both, with read positions of its own: neither a reader of our output who
stopped nor a slow disk ever holds up a drain or a scrape.

*The archive* gets a segment once, over restarts and crashes: its file appears under its name
whole or not at all, and one that is there is not written again. Only who takes files out of the
archive may meet one twice.

*The tee* writes a line exactly once over restarts that end with a signal that may be caught:
positions are kept in the directory's snapshot at a clean stop, at each compaction, and every
half minute. After a crash it writes again what came after the positions last kept: a position
cannot be kept in the same instant in which a line is written, and of the two faults this is the
one that readers can mend, since they drop doubles by ``proc`` and ``seq``.

A segment that was not shipped is not compacted (`Shipper.released`), except where the writers
would run out of room (`retention`).
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import select
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from io import FileIO
from typing import BinaryIO

from mx_log.files import SegmentName
from mx_log.locks import open_directory, open_regular
from mx_log.schema import MAX_LINE_BYTES

from ..core.decode import Decoder, Event
from . import atomic_write
from .segments import BLOCK_BYTES, Segment

_log = logging.getLogger(__name__)

#: What ships, and what its trouble means (``to`` of ``mx_exporter_shipping_failures_total``).
WAYS = {"tee": "standard output could not be written", "archive": "a segment was not archived"}

#: Seconds before what failed is tried again.
RETRY_SECONDS = 5.0

#: Seconds in which a reader of our output has to make room, and until it is asked again.
_STUCK_SECONDS = 0.1

#: A pipe takes a write of so many bytes whole or not at all: a line within it is never torn,
#: however the process ends.
_WHOLE = select.PIPE_BUF


class _Piece:
    """A segment, and what was shipped of it."""

    __slots__ = ("archived", "done", "inode", "looked", "name", "position", "size", "teed")

    def __init__(self, segment: Segment, position: int) -> None:
        self.name = segment.name
        self.inode = segment.inode
        #: Size when it was last drained, and whether that was all.
        self.size = segment.size
        self.done = segment.done
        #: End of the last line that was dealt with.
        self.position = position
        #: Size and ``done`` that the tee has seen to.
        self.looked = (0, False)
        self.teed = False
        self.archived = False


class Shipper:
    """Ships the segments of one directory.

    :param directory: where they lie.
    :param decoder: tells the lines that are events, which alone are teed.
    :param tee: descriptor of standard output, or None.
    :param archive: directory of the archive, or None.
    """

    def __init__(
        self,
        directory: str,
        decoder: Decoder,
        *,
        tee: int | None = None,
        archive: str | None = None,
    ) -> None:
        self._decoder = decoder
        self._directory = directory
        self._out = _Out(tee) if tee is not None else None
        self._archive = archive
        self._pieces: dict[str, _Piece] = {}
        self._changed = threading.Condition()
        self._news = False
        self._deadline = float("inf")
        self._retry = dict.fromkeys(WAYS, 0.0)
        self._said = dict.fromkeys(WAYS, "")
        #: Lines written to standard output, segments put in the archive, failures by way.
        self.lines = 0
        self.archived = 0
        self.failures: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="mx-ship", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------------------
    # Called by the thread that drains

    def offer(self, segments: Iterable[Segment], kept: Mapping[str, int]) -> None:
        """Take the list of segments after a drain; those that are not in it are forgotten.

        ``kept`` says where to begin with a segment that was not known before.
        """
        with self._changed:
            pieces = {}
            for segment in segments:
                name = str(segment.name)
                piece = self._pieces.get(name)
                if piece is None:
                    piece = _Piece(segment, kept.get(name, 0))
                elif piece.inode != segment.inode:
                    piece = _Piece(segment, 0)
                piece.size, piece.done = segment.size, segment.done
                pieces[name] = piece
            self._pieces = pieces
            self._news = True
            self._changed.notify()

    def released(self, segment: Segment) -> bool:
        """Whether a finished segment was shipped whole."""
        piece = self._pieces.get(str(segment.name))
        return piece is not None and self._is_shipped(piece)

    def positions(self) -> dict[str, int] | None:
        """How far each segment was teed, to be kept; None when there is no tee."""
        if self._out is None:
            return None
        return {name: piece.position for name, piece in self._pieces.items() if piece.position}

    @property
    def tees(self) -> bool:
        """Whether lines go to standard output."""
        return self._out is not None

    @property
    def archives(self) -> bool:
        """Whether segments go to an archive."""
        return self._archive is not None

    @property
    def pending(self) -> int:
        """Finished segments that were not shipped whole yet."""
        return sum(p.done and not self._is_shipped(p) for p in self._pieces.values())

    def finish(self, seconds: float) -> None:
        """End within so many seconds, having shipped what can be."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify()

    def join(self) -> None:
        """Wait for the end that `finish` asked for."""
        # It ends a moment after its time. Positions that are read before would lack a line.
        self._thread.join(max(0.0, self._deadline - time.monotonic()) + 2 * _STUCK_SECONDS)

    # ----------------------------------------------------------------------------------
    # The thread

    def _run(self) -> None:
        ending = False
        while not ending:
            with self._changed:
                self._changed.wait_for(self._is_called, self._pause())
                self._news = False
                ending = self._deadline != float("inf")
                pieces = list(self._pieces.values())
            # The archive first: it must not wait for whoever does not read our output.
            for way, ship in (("archive", self._put_away), ("tee", self._tee)):
                if time.monotonic() < self._retry[way]:
                    continue
                try:
                    ship(pieces)
                except Exception as error:  # noqa: BLE001 - the thread must go on whatever it was
                    self._tell(way, error)
                else:
                    self._said[way], self._retry[way] = "", 0.0

    def _is_called(self) -> bool:
        return self._news or self._deadline != float("inf")

    def _pause(self) -> float | None:
        """Seconds until there is something to do though no news came; None: never."""
        now = time.monotonic()
        pauses = [max(0.0, r - now) for r in self._retry.values() if 0 < r < float("inf")]
        if self._out is not None and self._out.stuck:
            pauses.append(_STUCK_SECONDS)
        return min(pauses, default=None)

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def _is_shipped(self, piece: _Piece) -> bool:
        teed = self._out is None or piece.teed
        return teed and (self._archive is None or piece.archived)

    def _tell(self, way: str, error: Exception) -> None:
        self.failures[way] += 1
        self._retry[way] = time.monotonic() + RETRY_SECONDS
        if repr(error) == self._said[way]:
            return
        self._said[way] = repr(error)
        if isinstance(error, BrokenPipeError):
            self._retry[way] = float("inf")
            _log.error("nobody reads standard output any more: the tee has ended")
        else:
            _log.error("%s: %s; trying again", WAYS[way], error)

    # ----------------------------------------------------------------------------------
    # The archive

    def _put_away(self, pieces: Iterable[_Piece]) -> None:
        due = [piece for piece in pieces if piece.done and not piece.archived]
        if self._archive is None or not due:
            return
        archive_fd = open_directory(self._archive)
        try:
            for piece in due:
                if self._is_over():
                    return
                # A segment that was just compacted is no failure of the archive.
                with contextlib.suppress(_Gone):
                    self.archived += self._put_one(piece.name, archive_fd)
                    piece.archived = True
        finally:
            os.close(archive_fd)

    def _put_one(self, name: SegmentName, archive_fd: int) -> bool:
        """Put one segment in the archive, unless it is there; return whether it was put."""
        final = f"{name}.gz"
        try:
            os.stat(final, dir_fd=archive_fd, follow_symlinks=False)
            return False
        except FileNotFoundError:
            pass
        with self._open(name) as segment:
            atomic_write.put(final, archive_fd, partial(_pack, segment))
        return True

    def _open(self, name: SegmentName) -> FileIO:
        try:
            return FileIO(open_regular(os.path.join(self._directory, str(name))))
        except FileNotFoundError:
            raise _Gone from None

    # ----------------------------------------------------------------------------------
    # The tee

    def _tee(self, pieces: Iterable[_Piece]) -> None:
        out = self._out
        if out is None or not self._flush(out):
            return
        for piece in pieces:
            if piece.looked == (piece.size, piece.done):
                continue
            with contextlib.suppress(_Gone):
                if self._is_over() or not self._tee_one(piece, out):
                    return

    def _tee_one(self, piece: _Piece, out: _Out) -> bool:
        """Write the lines that a segment has now; return whether all went out."""
        size, done = piece.size, piece.done
        with self._open(piece.name) as file:
            status = os.fstat(file.fileno())
            if status.st_ino != piece.inode:
                return True
            if status.st_size < piece.position:  # it was truncated
                piece.position = 0
            lines: list[bytes] = []
            taken, end = 0, piece.position
            for line, line_end in _lines(file, piece.position, size, done):
                if isinstance(self._decoder.decode_line(line), Event):
                    if taken + len(line) + 1 > _WHOLE and lines:
                        out.take(piece, lines, end)
                        if self._is_over() or not self._flush(out):
                            return False
                        lines, taken = [], 0
                    lines.append(line)
                    taken += len(line) + 1
                end = line_end
            out.take(piece, lines, end)
            if not self._flush(out):
                return False
        piece.looked = (size, done)
        piece.teed = done
        return True

    def _flush(self, out: _Out) -> bool:
        """Write what was taken; only then does its segment's position move on."""
        if not out.flush():
            return False
        if out.piece is not None:
            out.piece.position = out.end
            self.lines += out.count
            out.piece = None
        return True


class _Gone(Exception):
    """A segment is not in the directory any more."""


class _Out:
    """Standard output, which may be a pipe that nobody reads for a while."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._rest = b""
        #: What is being written, where it ends in its segment, and how many lines it has.
        self.piece: _Piece | None = None
        self.end = 0
        self.count = 0
        #: Nobody made room for the rest yet.
        self.stuck = False
        self._begun = False

    def take(self, piece: _Piece, lines: list[bytes], end: int) -> None:
        """Have these lines written next, each as it is."""
        self.piece, self.end, self.count = piece, end, len(lines)
        self._rest = b"".join(line + b"\n" for line in lines)

    def flush(self) -> bool:
        """Write until nothing is left, or nobody makes room; return whether nothing is left.

        Raises ``OSError``; the rest is then still to be written.
        """
        if self._rest and not self._begun:
            self._begun = True
            _end_torn_line(self._fd)
        while self._rest:
            if not self._poll.poll(_STUCK_SECONDS * 1000):
                self.stuck = True
                return False
            # No more at once than a pipe with any room takes, so that this does not wait.
            try:
                written = os.write(self._fd, self._rest[:_WHOLE])
            except BlockingIOError:
                self.stuck = True
                return False
            self._rest = self._rest[written:]
        self.stuck = False
        return True


def _pack(segment: FileIO, out: BinaryIO) -> None:
    """Write a segment gzipped."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        shutil.copyfileobj(segment, packed, BLOCK_BYTES)


def _end_torn_line(fd: int) -> None:
    """Where output goes on in a file whose last line a crash tore, give that line its end: else
    it would swallow our first one."""
    with contextlib.suppress(OSError):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        if torn:
            os.write(fd, b"\n")


def _lines(file: FileIO, position: int, size: int, done: bool) -> Iterator[tuple[bytes, int]]:
    """The complete lines from ``position`` to ``size``, each with the offset after its end.

    A line over the limit gives an empty one in its place, and is not held. When ``done``, what
    follows the last newline is a line as well.
    """
    carry, skipping = b"", False
    file.seek(position)
    while position < size:
        block = file.read(min(BLOCK_BYTES, size - position))
        if not block:
            break
        position += len(block)
        end = position - len(block) - len(carry)
        *whole, tail = (carry + block).split(b"\n")
        for line in whole:
            end += len(line) + 1
            yield (b"" if skipping or len(line) >= MAX_LINE_BYTES else line), end
            skipping = False
        skipping = skipping or len(tail) >= MAX_LINE_BYTES
        carry = b"" if skipping else tail
    if done:
        yield carry, position
