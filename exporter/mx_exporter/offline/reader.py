"""From a source to its records: blocks, lines, envelopes opened, events parsed.

Line numbers are kept all the way, so that a report can name the line that is at fault.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from mx_log.schema import MAX_LINE_BYTES

from ..core.lines import LineSplitter
from ..core.parse import NO_OBJECT, REASONS, Record, Rejected, parse_line, parse_lines
from .decompress import Damaged, unpack
from .envelopes import MAX_ENVELOPE_BYTES, Unwrapper
from .sources import STDIN, Source, Unreadable, open_source

_BLOCK = 128 * 1024

#: Records of consecutive lines: the number of the first line (from 1), then one record a line.
Batch: TypeAlias = tuple[int, list[Any]]

#: Makes of lines what `parse_lines` would, or what else their reader takes for it.
Parse: TypeAlias = Callable[[list[bytes]], list[Any]]

#: Lines that are parsed at a time; a line of a collector may hold a hundred thousand of ours.
_LINES = 1000


def _ignore(_: int) -> None:
    pass


def read(
    source: Source,
    *,
    writing: bool = False,
    seen: Callable[[int], None] = _ignore,
    parse: Parse | None = None,
) -> Iterator[Batch]:
    """The records of a source.

    A segment holds our lines as they are; any other file, and standard input, may hold
    envelopes. ``writing``: the segment's writer lives, and an unterminated last line waits for
    its end; otherwise it is taken when it is whole, else rejected as torn. ``seen`` is told how
    many bytes were read, as they lie in the file. ``parse`` is for who needs no numbers of lines:
    many lines are given at a time then, whatever stands between them.

    Raises `Unreadable` at the start, or after all that could be read.
    """
    trouble: Unreadable | None = None
    envelopes = None if source.segment else Unwrapper()
    splitter = LineSplitter(MAX_ENVELOPE_BYTES if envelopes else MAX_LINE_BYTES)
    number = 1
    stream = blocks(source, seen)
    while True:
        try:
            block = next(stream, None)
        except Unreadable as error:
            trouble = error
            break
        if block is None:
            break
        for piece in _pieces(block):
            too_long = splitter.too_long
            lines = splitter.feed(piece)
            if splitter.too_long > too_long:
                yield number, [Rejected("too_long", REASONS["too_long"])]
            # A newline that ended no line ended an over-long one: the first in this piece.
            newlines = piece.count(b"\n") if splitter.too_long else len(lines)
            first = number + newlines - len(lines)
            number += newlines
            if lines and parse is not None:
                for values in _unnumbered(lines, envelopes, parse):
                    yield first, values
            elif lines:
                yield from _batches(first, lines, envelopes)
    if not writing:
        tail = splitter.rest()
        if tail:
            for record in _records(tail, envelopes):
                yield number, [_ended(record)]
        for opened in envelopes.rest() if envelopes else ():
            given = opened if isinstance(opened, Rejected) else parse_line(opened)
            if given is not None:
                yield number, [_ended(given)]
    if trouble is not None:
        raise trouble


def _pieces(block: bytes) -> Iterator[bytes]:
    """Cut a block so that only the first line that ends in a piece can be too long."""
    step = MAX_LINE_BYTES // 2
    return (block[at : at + step] for at in range(0, len(block), step))


def _unnumbered(
    lines: list[bytes], envelopes: Unwrapper | None, parse: Parse
) -> Iterator[list[Any]]:
    """What lines give, many at a time, whichever of them hold nothing or several."""
    if envelopes is not None:
        opened = list(chain.from_iterable(map(envelopes.open, lines)))
        lines = [line for line in opened if isinstance(line, bytes)]
        if len(lines) < len(opened):
            yield [line for line in opened if isinstance(line, Rejected)]
    for at in range(0, len(lines), _LINES):
        yield parse(lines[at : at + _LINES])


def _batches(first: int, lines: list[bytes], envelopes: Unwrapper | None) -> Iterator[Batch]:
    if envelopes is None:
        plain = lines
    else:
        opened = [envelopes.open(line) for line in lines]
        plain = [each[0] for each in opened if len(each) == 1 and isinstance(each[0], bytes)]
        if len(plain) < len(lines):
            for number, each in enumerate(opened, first):
                records = [
                    line if isinstance(line, Rejected) else parse_line(line) for line in each
                ]
                for record in records:
                    if record is not None:
                        yield number, [record]
            return
    parsed = parse_lines(plain)
    if len(parsed) == len(lines):
        yield first, parsed
        return
    for number, line in enumerate(plain, first):  # some are blank
        record = parse_line(line)
        if record is not None:
            yield number, [record]


def _records(line: bytes, envelopes: Unwrapper | None) -> Iterator[Record | Rejected]:
    for opened in envelopes.open(line) if envelopes else [line]:
        record = opened if isinstance(opened, Rejected) else parse_line(opened)
        if record is not None:
            yield record


def _ended(record: Record | Rejected) -> Record | Rejected:
    """What a line that the stream ended in the middle of is counted as."""
    if isinstance(record, Rejected) and record.reason in NO_OBJECT:
        return Rejected("torn", REASONS["torn"])
    return record


# --------------------------------------------------------------------------------------
# Bytes


def blocks(source: Source, seen: Callable[[int], None] = _ignore) -> Iterator[bytes]:
    """The bytes of a source, decompressed. Raises `Unreadable`, at the start or at the end."""
    if source.path != STDIN:
        fd = open_source(source)
    elif sys.stdin is not None:
        fd = sys.stdin.fileno()
    else:
        raise Unreadable("is closed")
    try:
        raw = _raw(fd, seen)
        # A plain segment is read as the exporter reads it, whatever it begins with.
        yield from raw if source.lockable else unpack(raw)
    except Damaged as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    finally:
        if source.path != STDIN:
            os.close(fd)


def _raw(fd: int, seen: Callable[[int], None]) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(fd, _BLOCK)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            select.select([fd], [], [])  # a pipe that a shell handed down
            continue
        if not block:
            return
        seen(len(block))
        yield block
