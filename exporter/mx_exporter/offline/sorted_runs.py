"""Putting lines in order that do not fit into memory."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import IO

from ..core.decode import Decoder, Event, Rejected

#: Bytes that are kept until they are written to a file as a sorted run.
_KEPT = 32 * 1024 * 1024

#: Files that are open at most: so many runs are merged to one.
_OPEN = 64

#: Lines that are decoded at a time.
_AT_ONCE = 2_000

#: Ends a line's key.
_SEPARATOR = b"\t"


def time_key(timestamp: str, proc: str, seq: int) -> bytes:
    """The key of what lies at an event: in order of time, then of process and number."""
    return f"{timestamp} {' '.join(proc.split())} {seq:020}".encode("utf-8", "backslashreplace")


class SortedRuns:
    """Lines in the order of their keys; those of one key in the order of their bytes."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._runs: list[IO[bytes]] = []

    def add(self, key: bytes, line: bytes) -> None:
        """Take a line.

        :param key: without a tab or a newline.
        :param line: without a newline.
        """
        self.add_row(key + _SEPARATOR + line + b"\n")

    def add_row(self, row: bytes) -> None:
        """Take a line with its key, as `rows` gives it."""
        self._lines.append(row)
        self._size += len(row)
        if self._size >= _KEPT:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """The lines in order, each with a newline. They are used up."""
        for row in self.rows():
            yield row[row.index(_SEPARATOR) + 1 :]

    def rows(self) -> Iterator[bytes]:
        """The same with their keys."""
        self._lines.sort()
        yield from heapq.merge(*self._runs, self._lines)
        self.close()

    def close(self) -> None:
        """Forget all lines."""
        for run in self._runs:
            run.close()
        self._runs.clear()
        self._lines.clear()

    def _spill(self) -> None:
        self._lines.sort()
        self._write(self._lines)
        self._lines, self._size = [], 0
        if len(self._runs) >= _OPEN:
            runs, self._runs = self._runs, []
            self._write(heapq.merge(*runs))
            for run in runs:
                run.close()

    def _write(self, lines: list[bytes] | Iterator[bytes]) -> None:
        run: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was merged
        run.writelines(lines)
        run.seek(0)
        self._runs.append(run)


def decoded(decoder: Decoder, runs: SortedRuns) -> Iterator[list[Event | Rejected]]:
    """The events of lines, many at a time."""
    lines = iter(runs)
    while some := [line[:-1] for line in islice(lines, _AT_ONCE)]:
        yield decoder.decode(some)
