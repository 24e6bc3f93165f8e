"""Bytes to lines: splitting, carry-over and the line limit. Files never appear here."""

from __future__ import annotations

from mx_log.schema import MAX_LINE_BYTES


class LineSplitter:
    """Cuts a stream of blocks into lines.

    What follows the last newline is carried over to the next block. A line longer than
    ``limit`` bytes (its newline included) is dropped as it passes, without being held:
    its bytes up to its newline, however many blocks they come in, never count as a line.
    """

    __slots__ = ("_carry", "_limit", "_skipping", "too_long")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._carry: list[bytes] = []
        self._skipping = False
        #: Lines dropped for their length. Counted when the limit is passed.
        self.too_long = 0

    @property
    def carried(self) -> int:
        """Bytes of the unterminated line that are held."""
        return sum(map(len, self._carry))

    def feed(self, block: bytes) -> list[bytes]:
        """Take the next block; return the lines that it completes, without their newline."""
        lines, dropped = self._cut(block)
        for index in reversed(dropped):
            del lines[index]
        return lines

    def feed_with_ends(self, block: bytes, start: int) -> list[tuple[bytes, int]]:
        """The same as `feed`, each line with the offset in the stream where the next one begins.

        A line that was too long gives an empty one, so that what ends with it can be passed over.

        :param start: offset of the block in the stream.
        """
        found = []
        end = 0
        for line in self._cut(block)[0]:
            end = block.index(b"\n", end) + 1
            found.append((line, start + end))
        return found

    def _cut(self, block: bytes) -> tuple[list[bytes], list[int]]:
        """The lines that a block completes, and which of them were too long; these are empty."""
        lines = block.split(b"\n")
        tail = lines.pop()
        dropped = []
        if lines:
            longest = self.carried + len(block)  # at most
            if self._skipping:
                lines[0] = b""
                dropped.append(0)
            else:
                lines[0] = b"".join((*self._carry, lines[0]))
            self._skipping = False
            self._carry.clear()
            if longest >= self._limit:
                long = [index for index, line in enumerate(lines) if len(line) >= self._limit]
                for index in long:
                    lines[index] = b""
                self.too_long += len(long)
                dropped += long
        if tail:
            self._hold(tail)
        return lines, dropped

    def rest(self) -> bytes:
        """Give up what was carried: the last line of a stream that ends without a newline.

        Empty when there is none, or when it was too long (which was counted already).
        """
        tail = b"".join(self._carry)
        self._carry.clear()
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
