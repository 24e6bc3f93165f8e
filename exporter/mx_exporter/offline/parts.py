"""Lines that were cut into parts, and joined again: within a stream, and where a log was rotated.

What is known of a part is its origin, which is all that names where it comes from, and whether
more is to follow. Only what begins as an object that does not end waits for its rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from mx_log.schema import MAX_LINE_BYTES

#: More than this waits nowhere; the oldest goes.
_MAX_WAITING = 16 * MAX_LINE_BYTES

#: Origins of which it is known whether a text of theirs was met.
_MAX_ORIGINS = 1000


class Part(NamedTuple):
    """A part that waits, or a rest without a beginning."""

    number: int
    text: bytes


class Parts:
    """The parts of one stream that wait for their rest, by origin."""

    def __init__(self) -> None:
        #: None: a line that is too long, whose rest passes.
        self._waiting: dict[str, list[bytes] | None] = {}
        self._numbers: dict[str, int] = {}
        self._bytes = 0
        #: Origins of which a text was met, and the rests that came first.
        self._met: set[str] = set()
        self._open: set[str] = set()
        self.heads: dict[str, Part] = {}
        #: Given up so that others have room.
        self.dropped: list[Part] = []

    def __bool__(self) -> bool:
        return bool(self._waiting or self._open)

    def waits(self, origin: str) -> bool:
        """Whether a part of that origin waits."""
        return origin in self._waiting

    def hold(self, origin: str, text: bytes, number: int) -> bool:
        """Keep a part; False when the line that it is of is too long, the first time."""
        parts = self._waiting.setdefault(origin, [])
        self._numbers.setdefault(origin, number)
        if parts is None:
            return True
        parts.append(text)
        self._bytes += len(text)
        if sum(map(len, parts)) >= MAX_LINE_BYTES:
            self._bytes -= sum(map(len, parts))
            self._waiting[origin] = None
            return False
        while self._bytes > _MAX_WAITING:
            oldest = next(each for each, held in self._waiting.items() if held)
            taken = self.take(oldest)
            if taken is not None:
                self.dropped.append(taken)
        return True

    def take(self, origin: str) -> Part | None:
        """Give up what waits; None when it was too long."""
        parts = self._waiting.pop(origin)
        number = self._numbers.pop(origin)
        if parts is None:
            return None
        self._bytes -= sum(map(len, parts))
        return Part(number, b"".join(parts))

    def is_first(self, origin: str) -> bool:
        """Whether no text of an origin was met."""
        return origin not in self._met and len(self._met) < _MAX_ORIGINS

    def is_open(self, origin: str) -> bool:
        """Whether the first line of an origin is not at its end yet."""
        return origin in self._open

    def head(self, origin: str, text: bytes, number: int, *, partial: bool) -> None:
        """Keep what `is_first`, and what follows of the same line; another file may hold what comes
        before it."""
        before = self.heads.get(origin, Part(number, b""))
        if len(before.text) < MAX_LINE_BYTES:
            self.heads[origin] = Part(before.number, before.text + text)
        self._met.add(origin)
        (self._open.add if partial else self._open.discard)(origin)

    def meet(self, origin: str) -> None:
        """Note that a text of an origin was met."""
        if len(self._met) < _MAX_ORIGINS:
            self._met.add(origin)

    def rest(self) -> dict[str, Part]:
        """Give up all that waits, by origin."""
        taken = {origin: self.take(origin) for origin in list(self._waiting)}
        return {origin: part for origin, part in taken.items() if part is not None}


# --------------------------------------------------------------------------------------
# Rotated logs

_ROTATED = re.compile(
    r"(?P<stem>.+?)(?:[.-](?P<date>\d{8}-\d{6}|\d{4}-\d\d-\d\d\S*|\d{10})|\.(?P<back>\d{1,4}))?"
    r"(?:\.(?:gz|zst|xz|bz2))?"
)


def rotation(path: str) -> tuple[str, tuple[int, str, int]]:
    """A log's path without what a rotation adds, and where it stands among the others of it."""
    directory, name = os.path.split(path)
    match = _ROTATED.fullmatch(name)
    if match is None:
        return path, (0, "", 0)
    back = int(match["back"]) if match["back"] else 0
    newest = not match["date"] and not back
    return os.path.join(directory, match["stem"]), (int(newest), match["date"] or "", -back)


class Seams:
    """The ends of files that wait for the beginnings of the next ones."""

    def __init__(self) -> None:
        self._files: dict[str, list[tuple[tuple[int, str, int], str, _Ends]]] = {}

    def add(self, path: str, heads: dict[str, Part], tails: dict[str, Part]) -> None:
        """Note what a file begins and ends with, once it was read."""
        stem, rank = rotation(path)
        self._files.setdefault(stem, []).append((rank, path, _Ends(heads, tails)))

    def close(self) -> Iterator[tuple[str, int, bytes, bool]]:
        """What each becomes: path and number of its line, its text, and whether it was joined."""
        for files in self._files.values():
            files.sort(key=lambda each: each[:2])
            for at, (_, path, ends) in enumerate(files):
                after = files[at + 1][2].heads if at + 1 < len(files) else {}
                for origin, tail in ends.tails.items():
                    head = after.pop(origin, None)
                    whole = tail.text + (head.text if head else b"")
                    yield path, tail.number, whole, head is not None
            for _, path, ends in files:
                for head in ends.heads.values():
                    yield path, head.number, head.text, False
        self._files.clear()


class _Ends(NamedTuple):
    heads: dict[str, Part]
    tails: dict[str, Part]
