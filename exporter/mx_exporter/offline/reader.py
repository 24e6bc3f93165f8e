"""From a source to its events: files, records, the events in them, decoded.

Line numbers are kept all the way, so that a report can name the line that is at fault. A segment
as the emitter wrote it is read as the exporter reads it, so that a replay agrees with what is
served. Everything else is searched for events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain

from mx_log.schema import MAX_LINE_BYTES

from ..core.decode import REASONS, Decoder, Event, Rejected, ended
from ..core.lines import LineSplitter
from .archives import Member, members
from .decompress import Damaged, unpack
from .lookup import Batch, Lookup, close_seams
from .parts import Seams
from .records import AROUND, Records
from .sources import Source
from .stores import Stream, Unreadable
from .tally import Tally

_BLOCK = 128 * 1024

#: Bytes in which the first line of a segment ends.
_FIRST_LINE = 64 * 1024


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
    """The events of a source, all files of it one after the other, as `read_file` gives them."""
    for file, content in files(source, seen):
        seams, tally = Seams(), Tally()
        yield from read_file(
            file, content, decoder, tally, seams, writing=writing, numbered=numbered
        )
        for _, number, entries in close_seams(seams, decoder, {file.name: tally}.__getitem__):
            yield number, entries


def read_file(
    source: Source,
    content: Iterable[bytes],
    decoder: Decoder,
    tally: Tally,
    seams: Seams,
    *,
    writing: bool = False,
    numbered: bool = False,
) -> Iterator[Batch]:
    """The events of one file.

    :param content: its bytes.
    :param tally: counts its lines.
    :param seams: gets what may be parts of lines that other files hold the rest of.
    :param writing: the segment's writer lives, and an unterminated last line waits for its end;
        otherwise it is decoded when it is whole, else rejected as torn.
    :param numbered: the numbers of lines are needed. Without them many lines are given at a time,
        and the number of a batch is that of a line near it.
    :raises Unreadable: after all that could be read.
    """
    trouble: list[Unreadable] = []
    blocks = _until_trouble(content, trouble)
    if source.segment:
        first, blocks = _first_line(blocks)
        if writing or _is_written(first, decoder):
            yield from _segment(blocks, decoder, tally, writing=writing)
            if trouble:
                raise trouble[0]
            return
    records, lookup = Records(), Lookup(decoder, tally, numbered=numbered)
    for block in blocks:
        for run in records.feed(block):
            yield from lookup.batches(run)
    for run in records.rest():
        yield from lookup.batches(run, last=True)
    lookup.close(source.name, seams)
    if trouble:
        raise trouble[0]


def _until_trouble(content: Iterable[bytes], trouble: list[Unreadable]) -> Iterator[bytes]:
    """Blocks as long as they can be read, so that what waits for the end is given all the same."""
    try:
        yield from content
    except Unreadable as error:
        trouble.append(error)


def _first_line(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first line of a stream, as far as it is read, and the whole stream."""
    head = b""
    for block in blocks:
        head += block
        if b"\n" in block or len(head) >= _FIRST_LINE:
            break
    return head[: head.find(b"\n") + 1] or head[:_FIRST_LINE], chain([head], blocks)


def _is_written(first: bytes, decoder: Decoder) -> bool:
    """Whether a segment that begins so is as the emitter wrote it, and nobody's copy of it in
    another form."""
    if not first.endswith(b"\n"):
        return len(first) >= _FIRST_LINE and first.lstrip(AROUND)[:1] not in (b"{", b"[")
    return isinstance(decoder.decode_line(first[:-1]), Event)


def _segment(
    blocks: Iterable[bytes], decoder: Decoder, tally: Tally, *, writing: bool
) -> Iterator[Batch]:
    """The lines of a segment, each of which ought to be an event."""
    splitter = LineSplitter(MAX_LINE_BYTES)
    number = 1
    for block in blocks:
        for piece in _pieces(block):
            too_long = splitter.too_long
            lines = splitter.feed(piece)
            if splitter.too_long > too_long:
                yield _counted(number, [Rejected("too_long", REASONS["too_long"])], tally)
            # A newline that ended no line ended an over-long one: the first in this piece.
            newlines = piece.count(b"\n") if splitter.too_long else len(lines)
            first = number + newlines - len(lines)
            number += newlines
            if lines:
                yield from _decoded(first, lines, decoder, tally)
    tail = b"" if writing else splitter.rest()
    event = decoder.decode_line(tail) if tail else None
    if event is not None:
        yield _counted(number, [ended(event)], tally)


def _pieces(block: bytes) -> Iterator[bytes]:
    """Cut a block so that only the first line that ends in a piece can be too long."""
    step = MAX_LINE_BYTES // 2
    return (block[at : at + step] for at in range(0, len(block), step))


def _decoded(first: int, lines: list[bytes], decoder: Decoder, tally: Tally) -> Iterator[Batch]:
    events = decoder.decode(lines)
    if len(events) == len(lines):
        yield _counted(first, events, tally)
        return
    for number, line in enumerate(lines, first):  # some are blank
        event = decoder.decode_line(line)
        if event is not None:
            yield _counted(number, [event], tally)


def _counted(number: int, entries: list[Event | Rejected], tally: Tally) -> Batch:
    tally.add_entries(entries)
    return number, entries


# --------------------------------------------------------------------------------------
# Bytes


def files(
    source: Source, seen: Callable[[int], None] = ignore
) -> Iterator[tuple[Source, Iterator[bytes]]]:
    """The files that a source is: itself, or those of an archive. Raises `Unreadable`."""
    with _members(source, seen) as found:
        for member in found:
            given = source.within(member.name) if member.name else source
            if given.passed_over:
                continue
            if not given.snapshot or not member.name:
                yield given, _checked(member.blocks)
            elif not source.lasts:
                raise Unreadable(
                    f"holds a snapshot ({member.name}), which is read before all else; "
                    "name the archive as a file"
                )


def archived_snapshots(source: Source) -> Iterator[tuple[Source, Iterator[bytes]]]:
    """The snapshots in an archive, none in what is no archive. Raises `Unreadable`."""
    with _members(source, ignore) as found:
        for member in found:
            if not member.name:
                return
            given = source.within(member.name)
            if given.snapshot and not given.passed_over:
                yield given, _checked(member.blocks)


def blocks(source: Source) -> Iterator[bytes]:
    """The bytes of a source that is no archive, decompressed. Raises `Unreadable`."""
    with closing(source.opened()) as stream, _damage_told():
        yield from unpack(raw_blocks(stream))


@contextmanager
def _members(source: Source, seen: Callable[[int], None]) -> Iterator[Iterator[Member]]:
    with closing(source.opened()) as stream, _damage_told():
        yield members(raw_blocks(stream, seen), stream.whole)


def _checked(content: Iterable[bytes]) -> Iterator[bytes]:
    with _damage_told():
        yield from content


@contextmanager
def _damage_told() -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None


def raw_blocks(stream: Stream, seen: Callable[[int], None] = ignore) -> Iterator[bytes]:
    """All bytes of a source as they lie there. Raises `Unreadable`."""
    while block := stream.read(_BLOCK):
        seen(len(block))
        yield block
