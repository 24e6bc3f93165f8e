"""The tee: each event line to standard output, which may be a pipe that nobody reads for a while.

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
from .segments import read_blocks
from .shipment import Gone, Shipment

#: Seconds in which a reader of our output has to make room, and until the next try.
STUCK_SECONDS = 0.1

#: A pipe takes a write of so many bytes whole or not at all: a line within it is never torn,
#: however the process ends.
_WHOLE = select.PIPE_BUF


class Tee:
    """Writes the event lines of segments to a descriptor.

    :param directory: where the segments lie.
    :param fd: descriptor of standard output.
    :param decoder: tells the lines that are events, which alone are written.
    """

    def __init__(self, directory: str, fd: int, decoder: Decoder) -> None:
        self._directory = directory
        self._decoder = decoder
        self._out = _Output(fd)
        #: What is being written, where it ends in its segment, and how many lines it has.
        self._written: tuple[Shipment, int, int] | None = None
        #: Lines that were written.
        self.count = 0

    @property
    def stuck(self) -> bool:
        """Whether what is to be written waits for somebody to make room."""
        return self._out.stuck

    def ship(self, shipments: Iterable[Shipment], is_over: Callable[[], bool]) -> None:
        """Write what is new in segments, until ``is_over`` says so or nobody reads on.

        :raises OSError: it could not be written; it is still to be written then.
        """
        if not self._flush():
            return
        for shipment in shipments:
            if shipment.seen == (shipment.size, shipment.done):
                continue
            with contextlib.suppress(Gone):
                if is_over() or not self._write_one(shipment, is_over):
                    return

    def _write_one(self, shipment: Shipment, is_over: Callable[[], bool]) -> bool:
        """Write the lines that a segment has now; return whether all went out."""
        size, done = shipment.size, shipment.done
        with shipment.open(self._directory) as file:
            status = os.fstat(file.fileno())
            if status.st_ino != shipment.inode:
                return True
            if status.st_size < shipment.position:  # it was truncated
                shipment.position = 0
            lines: list[bytes] = []
            length, end = 0, shipment.position
            for line, line_end in _read_lines(file.fileno(), shipment.position, size, done=done):
                if line and isinstance(self._decoder.decode_line(line), Event):
                    if length + len(line) + 1 > _WHOLE and lines:
                        self._queue(shipment, lines, end)
                        if is_over() or not self._flush():
                            return False
                        lines, length = [], 0
                    lines.append(line)
                    length += len(line) + 1
                end = line_end
            self._queue(shipment, lines, end)
            if not self._flush():
                return False
        shipment.seen = (size, done)
        shipment.teed = done
        return True

    def _queue(self, shipment: Shipment, lines: list[bytes], end: int) -> None:
        """Have these lines written next, each as it is."""
        self._written = (shipment, end, len(lines))
        self._out.rest = b"".join(line + b"\n" for line in lines)

    def _flush(self) -> bool:
        """Write what is queued; only then does its segment's position move on."""
        if not self._out.flush():
            return False
        if self._written is not None:
            shipment, end, count = self._written
            shipment.position = end
            self.count += count
            self._written = None
        return True


class _Output:
    """A descriptor that may be a pipe which nobody reads for a while."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._begun = False
        #: What is still to be written.
        self.rest = b""
        #: Nobody made room for it yet.
        self.stuck = False

    def flush(self) -> bool:
        """Write until nothing is left, or nobody makes room; return whether nothing is left.

        :raises OSError: the rest is still to be written.
        """
        if self.rest and not self._begun:
            self._begun = True
            _end_torn_line(self._fd)
        while self.rest:
            if not self._poll.poll(STUCK_SECONDS * 1000):
                self.stuck = True
                return False
            # No more at once than a pipe with any room takes, so that this does not wait.
            try:
                written = os.write(self._fd, self.rest[:_WHOLE])
            except BlockingIOError:
                self.stuck = True
                return False
            self.rest = self.rest[written:]
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
    """The lines from ``start`` to ``size``, each with the offset after its end.

    A line over the limit gives an empty one in its place, and is not held. When ``done``, what
    follows the last newline is a line as well.
    """
    splitter = LineSplitter()
    position = end = start
    for block in read_blocks(fd, start, size):
        position += len(block)
        for line, length in splitter.measure(block):
            end += length
            yield line, end
    if done:
        yield splitter.rest(), position
