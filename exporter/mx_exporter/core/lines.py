"""Bytes to lines: splitting, carry-over and the line limit. Files never appear here."""

from __future__ import annotations

from mx_log.schema import MAX_LINE_BYTES


class LineSplitter:
    """Cuts a stream of blocks into lines.

    What follows the last newline is carried over to the next block. A line longer than
    ``limit`` bytes (its newline included) is dropped as it passes, without being held:
    its bytes up to its newline, however many blocks they come in, never count as a line.
    """

    __slots__ = ("_carry", "_limit", "_passed", "_skipping", "too_long")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._carry: list[bytes] = []
        self._skipping = False
        #: Bytes since the last newline, held or not.
        self._passed = 0
        #: Lines dropped for their length. Counted when the limit is passed.
        self.too_long = 0

    @property
    def carried(self) -> int:
        """Bytes of the unterminated line that are held."""
        return sum(map(len, self._carry))

    def feed(self, block: bytes) -> list[bytes]:
        """Take the next block; return the lines that it completes, without their newline."""
        if not block:
            return []
        lines = block.split(b"\n")
        tail = lines.pop()
        if lines:
            longest = self.carried + len(block)  # at most
            if self._skipping:
                del lines[0]
            else:
                lines[0] = b"".join((*self._carry, lines[0]))
            self._skipping = False
            self._carry.clear()
            self._passed = 0
            if longest >= self._limit:
                self.too_long += sum(len(line) >= self._limit for line in lines)
                lines = [line for line in lines if len(line) < self._limit]
        if tail:
            self._passed += len(tail)
            self._hold(tail)
        return lines

    def measure(self, block: bytes) -> list[tuple[bytes, int]]:
        """As `feed`, each line with its length in the stream, its newline included.

        An empty one stands in place of a line that is dropped for its length.
        """
        lengths = [len(line) + 1 for line in block.split(b"\n")[:-1]]
        if not lengths:
            self.feed(block)
            return []
        lengths[0] += self._passed
        kept = iter(self.feed(block))
        return [(b"" if length > self._limit else next(kept), length) for length in lengths]

    def rest(self) -> bytes:
        """Give up what was carried: the last line of a stream that ends without a newline.

        Empty when there is none, or when it was too long (which was counted already).
        """
        tail = b"".join(self._carry)
        self._carry.clear()
        self._passed = 0
        self._skipping = False
        return tail

    def _hold(self, part: bytes) -> None:
        if self._skipping:
            return
        self._carry.append(part)
        if self.carried >= self._limit:
            self._carry.clear()
            self._skipping = True
            self.too_long += 1
