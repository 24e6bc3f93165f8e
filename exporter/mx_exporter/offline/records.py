"""Bytes to records: lines, and JSON texts that take several lines or are larger than any line.

A record holds an event, several, a part of one, or none; which, is not looked at here. The same
bytes give the same records, however they are split into blocks. Memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import json_text
from .json_text import JsonText

#: How an event begins that nobody parsed and wrote again.
OURS = json_text.OURS.encode()

#: What may stand around a line and is no part of it.
AROUND = b"\xef\xbb\xbf\0 \t\r"

#: How the first line of a JSON text ends that takes several, and with what blanks behind.
_GOES_ON = (b"{", b"[", b",", b":")
_MAY_GO_ON = frozenset({*_GOES_ON, b" ", b"\t", b"\r"})

#: Pieces of a JSON text that are given together: what they look like is learned run by run.
_AT_ONCE = 1024

#: Bytes of a JSON text that are tried first: most that look like one are none.
_TRIED = 4096


class Run(NamedTuple):
    """Records that follow one another, and the number of the line in which each begins."""

    numbers: Sequence[int]
    records: list[bytes]


class Records:
    """Cuts one stream of blocks into records.

    Of a line that is larger than a piece, and no JSON text, comes the beginning.
    """

    def __init__(self) -> None:
        self._limit = json_text.MAX_PIECE
        self._carry: list[bytes] = []
        self._carried = 0
        #: The rest of a line that is too long passes.
        self._skipping = False
        self._number = 1
        self._text: JsonText | None = None

    def feed(self, block: bytes) -> Iterator[Run]:
        """Take the next block; give the records that it completes."""
        pending = [block]
        while pending:
            block = pending.pop()
            if self._text is None:
                yield from self._by_lines(block, pending)
                continue
            if self._text.fresh and len(block) > _TRIED:
                pending.append(block[_TRIED:])
                block = block[:_TRIED]
            yield from _run(self._text.feed(block))
            self._left(self._text, pending)

    def rest(self) -> Iterator[Run]:
        """The records at the end of the stream: a line without an end, texts that are cut off."""
        while True:
            if self._text is not None:
                text = self._text
                pending: list[bytes] = []
                yield from _run(text.feed(b"", final=True))
                self._left(text, pending)
                for block in pending:
                    yield from self.feed(block)
            elif self._carry:
                line, self._carry, self._carried = b"".join(self._carry), [], 0
                if not _begins_text(line):
                    yield Run([self._number], [line])
                    return
                self._text = JsonText(self._number, self._limit)
                yield from self.feed(line.lstrip(AROUND))
            else:
                return

    def _left(self, text: JsonText, pending: list[bytes]) -> None:
        """Go on by lines behind the last JSON text, if it was the last."""
        if text.left is not None:
            self._text = None
            self._number = text.number
            self._skipping = text.cut
            if text.left:
                pending.append(text.left)

    def _by_lines(self, block: bytes, pending: list[bytes]) -> Iterator[Run]:
        lines = block.split(b"\n")
        tail = lines.pop()
        if lines:
            first = self._number
            longest = self._carried + len(block)  # at most
            if self._skipping:
                del lines[0]
                first += 1
                self._skipping = False
            else:
                lines[0] = b"".join((*self._carry, lines[0]))
            self._carry, self._carried = [], 0
            stop = self._stop(lines, longest)
            if stop:
                yield Run(range(first, first + stop), lines[:stop])
            self._number = first + stop
            if stop < len(lines):
                left = b"\n".join((*lines[stop:], tail))
                yield from self._open(lines[stop], left, pending)
                return
        if tail and not self._skipping:
            self._carry.append(tail)
            self._carried += len(tail)
            if self._carried > self._limit:
                line, self._carry, self._carried = b"".join(self._carry), [], 0
                yield from self._open(line, line, pending)

    def _stop(self, lines: list[bytes], longest: int) -> int:
        """How many lines come before the first that is too long, or begins a JSON text."""
        stop = len(lines)
        if longest > self._limit:
            too_long = (at for at, line in enumerate(lines) if len(line) > self._limit)
            stop = next(too_long, stop)
        for at, line in enumerate(lines[:stop]):
            if line[-1:] in _MAY_GO_ON and _begins_text(line):
                return at
        return stop

    def _open(self, line: bytes, left: bytes, pending: list[bytes]) -> Iterator[Run]:
        """Go on with a line that is too long or begins a JSON text, and all that is ``left``."""
        around = len(line) - len(line.lstrip(AROUND))
        if line[around : around + 1] in (b"{", b"["):
            self._text = JsonText(self._number, self._limit)
            pending.append(left[around:])
        else:
            yield Run([self._number], [line[: self._limit]])
            self._skipping = True
            pending.append(left[self._limit :])


def _begins_text(line: bytes) -> bool:
    bare = line.strip(AROUND)
    return bare[:1] in (b"{", b"[") and bare.endswith(_GOES_ON) and not bare.startswith(OURS)


def _run(found: list[tuple[int, bytes]]) -> Iterator[Run]:
    for at in range(0, len(found), _AT_ONCE):
        some = found[at : at + _AT_ONCE]
        yield Run([number for number, _ in some], [piece for _, piece in some])
