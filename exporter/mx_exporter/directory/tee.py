"""The tee: each event line, copied to standard output.

Over restarts that end with a signal that may be caught, a line is written exactly once: positions
are saved in the directory's snapshot at a clean stop, at each compaction, and every half minute.
After a crash the tee writes again what came after the positions that were saved last: a position
cannot be saved in the same instant in which a line is written. Of the two possible faults this is
the one that readers can mend, since they drop doubles by ``proc`` and ``seq``.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
from collections.abc import Callable, Iterable, Iterator

from ..core.decode import Decoder, Event
from ..core.lines import LineSplitter
from .pieces import Gone, Piece
from .segments import read_blocks

#: Seconds in which a reader of our output has to make room, and until the next try.
STUCK_SECONDS = 0.1

#: A pipe takes a write of so many bytes whole or not at all: a line within it is never torn,
#: however the process ends.
_WHOLE = select.PIPE_BUF


class Tee:
    """Writes the event lines of one directory's segments to standard output.

    :param directory: where segments lie.
    :param decoder: tells the lines that are events.
    :param fd: descriptor of standard output.

    :ivar lines: lines that were written.
    """

    def __init__(self, directory: str, decoder: Decoder, fd: int) -> None:
        self._directory = directory
        self._decoder = decoder
        self._out = _Output(fd)
        self.lines = 0

    @property
    def stuck(self) -> bool:
        """Whether the reader of our output makes no room."""
        return self._out.stuck

    def ship(self, pieces: Iterable[Piece], is_over: Callable[[], bool]) -> None:
        """Write the lines that segments have now, until ``is_over`` or until nobody reads on.

        Raises ``OSError``; what was not written then is written by the next call.
        """
        if not self._flush():
            return
        for piece in pieces:
            if piece.teed_up_to == (piece.size, piece.done):
                continue
            with contextlib.suppress(Gone):
                if is_over() or not self._write_lines(piece, is_over):
                    return

    def _write_lines(self, piece: Piece, is_over: Callable[[], bool]) -> bool:
        """Write the lines that a segment has now; return whether all went out."""
        size, done = piece.size, piece.done
        with piece.open(self._directory) as file:
            status = os.fstat(file.fileno())
            if status.st_ino != piece.inode:
                return True
            if status.st_size < piece.position:  # it was truncated
                piece.position = 0
            lines: list[bytes] = []
            waiting, end = 0, piece.position
            for line, line_end in _read_lines(file.fileno(), piece.position, size, done=done):
                if isinstance(self._decoder.decode_line(line), Event):
                    if waiting + len(line) + 1 > _WHOLE and lines:
                        self._out.queue(piece, lines, end)
                        if is_over() or not self._flush():
                            return False
                        lines, waiting = [], 0
                    lines.append(line)
                    waiting += len(line) + 1
                end = line_end
            self._out.queue(piece, lines, end)
            if not self._flush():
                return False
        piece.teed_up_to = (size, done)
        piece.teed = done
        return True

    def _flush(self) -> bool:
        """Write what is queued; only then does its segment's position move on."""
        out = self._out
        if not out.flush():
            return False
        if out.piece is not None:
            out.piece.position = out.end
            self.lines += out.count
            out.piece = None
        return True


class _Output:
    """Standard output, which may be a pipe that nobody reads for a while."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._rest = b""
        #: What is being written, where it ends in its segment, and how many lines it has.
        self.piece: Piece | None = None
        self.end = 0
        self.count = 0
        #: Nobody made room for the rest yet.
        self.stuck = False
        self._begun = False

    def queue(self, piece: Piece, lines: list[bytes], end: int) -> None:
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
            if not self._poll.poll(STUCK_SECONDS * 1000):
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


def _end_torn_line(fd: int) -> None:
    """Where output goes on in a file whose last line a crash tore, end that line: else it would
    swallow our first one."""
    with contextlib.suppress(OSError):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        if torn:
            os.write(fd, b"\n")


def _read_lines(fd: int, start: int, size: int, *, done: bool) -> Iterator[tuple[bytes, int]]:
    """The complete lines from ``start`` to ``size``, each with the offset after its end.

    When ``done``, what follows the last newline is a line as well.
    """
    splitter = LineSplitter()
    for block in read_blocks(fd, start, size):
        yield from splitter.feed_with_ends(block, start)
        start += len(block)
    if done:
        yield splitter.rest(), start
