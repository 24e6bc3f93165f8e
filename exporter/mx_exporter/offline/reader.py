"""From a source to its events: blocks, lines, envelopes opened, lines decoded.

Line numbers are kept all the way, so that a report can name the line that is at fault.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeAlias

from mx_log.schema import MAX_LINE_BYTES

from ..core.decode import REASONS, Decoder, Event, Rejected, ended
from ..core.lines import LineSplitter
from .decompress import Damaged, unpack
from .envelopes import MAX_ENVELOPE_BYTES, Opened, Unwrapper
from .sources import STDIN, Source, Unreadable, open_source

_BLOCK = 128 * 1024

#: What consecutive lines gave: the number of the first line (from 1), then one entry a line.
Batch: TypeAlias = tuple[int, list[Event | Rejected]]

#: Lines that are decoded at a time; a line of a collector may hold a hundred thousand of ours.
_LINES = 1000


def ignore(_: int) -> None:
    """Tell nobody how many bytes were read; the default of ``seen``."""


def read(
    source: Source,
    decoder: Decoder,
    *,
    writing: bool = False,
    seen: Callable[[int], None] = ignore,
    numbered: bool = False,
) -> Iterator[Batch]:
    """The events of a source.

    A segment holds our lines as they are; any other file, and standard input, may hold
    envelopes.

    :param writing: the segment's writer lives, and an unterminated last line waits for its end;
        otherwise it is decoded when it is whole, else rejected as torn.
    :param seen: told how many bytes were read, as they lie in the file.
    :param numbered: the numbers of lines are needed. Without them many lines are given at a time,
        and the number of a batch is that of a line near it.
    :raises Unreadable: at the start, or after all that could be read.
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
            if lines and numbered:
                yield from _numbered(first, lines, envelopes, decoder)
            elif lines:
                for events in _unnumbered(lines, envelopes, decoder):
                    yield first, events
    if not writing:
        tail = splitter.rest()
        if tail:
            for event in _decoded(envelopes.open(tail) if envelopes else [tail], decoder):
                yield number, [ended(event)]
        for event in _decoded(envelopes.rest() if envelopes else [], decoder):
            yield number, [ended(event)]
    if trouble is not None:
        raise trouble


def _pieces(block: bytes) -> Iterator[bytes]:
    """Cut a block so that only the first line that ends in a piece can be too long."""
    step = MAX_LINE_BYTES // 2
    return (block[at : at + step] for at in range(0, len(block), step))


def _unnumbered(
    lines: list[bytes], envelopes: Unwrapper | None, decoder: Decoder
) -> Iterator[list[Event | Rejected]]:
    """What lines give, many at a time, whichever of them hold nothing or several."""
    if envelopes is not None:
        opened = list(chain.from_iterable(map(envelopes.open, lines)))
        lines = [line for line in opened if isinstance(line, bytes)]
        if len(lines) < len(opened):
            yield [line for line in opened if isinstance(line, Rejected)]
    for at in range(0, len(lines), _LINES):
        yield decoder.decode(lines[at : at + _LINES])


def _numbered(
    first: int, lines: list[bytes], envelopes: Unwrapper | None, decoder: Decoder
) -> Iterator[Batch]:
    opened: list[list[Opened]] = (
        [[line] for line in lines] if envelopes is None else list(map(envelopes.open, lines))
    )
    plain = [each[0] for each in opened if len(each) == 1 and isinstance(each[0], bytes)]
    if len(plain) == len(lines):
        events = decoder.decode(plain)
        if len(events) == len(lines):
            yield first, events
            return
    for number, each in enumerate(opened, first):  # some are blank, or hold nothing or several
        for event in _decoded(each, decoder):
            yield number, [event]


def _decoded(opened: list[Opened], decoder: Decoder) -> Iterator[Event | Rejected]:
    for line in opened:
        event = line if isinstance(line, Rejected) else decoder.decode_line(line)
        if event is not None:
            yield event


# --------------------------------------------------------------------------------------
# Bytes


def blocks(source: Source, seen: Callable[[int], None] = ignore) -> Iterator[bytes]:
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
