"""Blocks of bytes that were compressed or written in another encoding, to plain ones.

Told by their first bytes, not by a file's name, so that standard input works as well, and layer by
layer: gzip in gzip, UTF-16 in xz. Memory is bounded whatever a file claims to hold. Files never
appear here.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

#: Bytes that tell what follows.
HEAD = 512

#: Layers around one log.
MAX_LAYERS = 8

#: Most that one step of decompression may give.
_STEP = 64 * 1024

#: Most memory that reading xz may take. A preset takes 65 MiB at most.
_XZ_MEMORY = 128 << 20

#: Most that is given to zstd in one step. Four bytes can stand for a block of 128 KiB, and it
#: takes no limit for what it gives.
_ZSTD_STEP = 256


class Damaged(Exception):
    """Packed data ends too early, is broken, or cannot be read here; what came before was given."""


def peek(blocks: Iterable[bytes], size: int = HEAD) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes of a stream, ``size`` or more if there are so many, and the whole stream."""
    stream = iter(blocks)
    head = b""
    try:
        for block in stream:
            head += block
            if len(head) >= size:
                break
    except Damaged as error:
        stream = _raising(error)
    return head, chain([head] if head else [], stream)


def _raising(error: Damaged) -> Iterator[bytes]:
    raise error
    yield b""


def unpack(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress a stream of blocks as often as it is compressed, else pass it on.

    Members and frames may follow one another. Raises `Damaged`, after all that could be read.
    """
    for _ in range(MAX_LAYERS):
        head, stream = peek(blocks)
        for begins, read in _LAYERS:
            if begins.match(head):
                blocks = read(stream)
                break
        else:
            for begins, why in _REFUSED:
                if begins.match(head):
                    raise Damaged(why)
            return stream
    raise Damaged(f"is packed more than {MAX_LAYERS} times; unpack it first")


def _gunzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    begun = True
    for block in blocks:
        while block:
            if not begun:
                block = block.lstrip(b"\0")  # what tapes and some tools pad with
                if not block:
                    break
                member = zlib.decompressobj(wbits=31)
                begun = True
            try:
                plain = member.decompress(block, _STEP)
            except zlib.error as error:
                raise Damaged(f"the gzip data is broken ({error})") from None
            if plain:
                yield plain
            if member.eof:
                block = member.unused_data
                begun = False
            else:
                block = member.unconsumed_tail
    if begun:
        plain = member.flush()
        if plain:
            yield plain
        if not member.eof:
            raise Damaged("the gzip data ends in the middle")


def _with(name: str, make: Callable[[], Any]) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    """A reader by one of the standard library's decompressors."""

    def read(blocks: Iterable[bytes]) -> Iterator[bytes]:
        stream = make()
        begun = False
        for block in blocks:
            while block or (begun and not stream.needs_input):
                if not begun:
                    block = block.lstrip(b"\0")
                    if not block:
                        break
                    stream = make()
                    begun = True
                try:
                    plain = stream.decompress(block, _STEP)
                except lzma.LZMAError as error:
                    if "emory" in str(error):
                        raise Damaged(
                            f"the {name} data takes more than {_XZ_MEMORY >> 20} MiB of memory to "
                            f"read; decompress it first (xz -dc)"
                        ) from None
                    raise Damaged(f"the {name} data is broken ({error})") from None
                except OSError as error:
                    raise Damaged(f"the {name} data is broken ({error})") from None
                block = b""
                if plain:
                    yield plain
                if stream.eof:
                    block = stream.unused_data
                    begun = False
        if begun:
            raise Damaged(f"the {name} data ends in the middle")

    return read


def _unzstd(blocks: Iterable[bytes]) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise Damaged("reading zstd needs the package zstandard") from None
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    begun = False
    for block in blocks:
        for at in range(0, len(block), _ZSTD_STEP):
            piece = block[at : at + _ZSTD_STEP]
            while piece:
                begun = True
                try:
                    plain = frame.decompress(piece)
                except zstandard.ZstdError as error:
                    if "too much memory" in str(error):
                        raise Damaged(
                            "the zstd data has a window of more than 128 MiB; decompress it first "
                            "(zstd -dc --long=31)"
                        ) from None
                    raise Damaged(f"the zstd data is broken ({error})") from None
                if plain:
                    yield plain
                piece = b""
                if frame.eof:
                    piece = frame.unused_data
                    frame = decompressor.decompressobj()
                    begun = False
    if begun:
        raise Damaged("the zstd data ends in the middle")


def _recode(encoding: str) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    """A reader of text in another encoding. What is no text there becomes U+FFFD."""

    def read(blocks: Iterable[bytes]) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        for block in blocks:
            yield decoder.decode(block).encode("utf-8", "replace")
        yield decoder.decode(b"", final=True).encode("utf-8", "replace")

    return read


#: How a layer begins, and what reads it. The first that fits.
_LAYERS: tuple[tuple[re.Pattern[bytes], Callable[[Iterable[bytes]], Iterator[bytes]]], ...] = (
    (re.compile(rb"\x1f\x8b"), _gunzip),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _unzstd),
    (
        re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"),
        _with("bzip2", bz2.BZ2Decompressor),
    ),
    (
        re.compile(rb"\xfd7zXZ\0"),
        _with("xz", lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
    ),
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), _recode("utf-32")),
    (re.compile(rb"\xff\xfe|\xfe\xff"), _recode("utf-16")),
    (re.compile(rb"(?:[\t\r\n\x1b -~]\0){4}"), _recode("utf-16-le")),
    (re.compile(rb"(?:\0[\t\r\n\x1b -~]){4}"), _recode("utf-16-be")),
)

#: How begins what is not read, and what to do with it.
_REFUSED = (
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "is a 7z archive; unpack it first (7z x)"),
    (re.compile(rb"Rar!\x1a\x07"), "is a rar archive; unpack it first (unrar x)"),
    (re.compile(rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18"), "is lz4; decompress it first (lz4 -dc)"),
    (re.compile(rb"\xff\x06\0\0sNaPpY"), "is snappy; decompress it first"),
    (re.compile(rb"\x1f\x9d"), "is compress's .Z; decompress it first (gzip -dc)"),
    (re.compile(rb"LZIP"), "is lzip; decompress it first (lzip -dc)"),
    (re.compile(rb"\x89LZO\0"), "is lzop; decompress it first (lzop -dc)"),
    (re.compile(rb"\x5d\0\0[\0-\xff]{2}\xff\xff"), "is lzma; decompress it first (xz -dc)"),
    (re.compile(rb"PAR1"), "is Parquet; write its lines as JSON first"),
    (re.compile(rb"Obj\x01"), "is Avro; write its lines as JSON first"),
    (re.compile(rb"ARROW1\0\0"), "is Arrow; write its lines as JSON first"),
    (re.compile(rb"SQLite format 3\0"), "is an SQLite database; write its lines as text first"),
    (
        re.compile(rb"LPKSHHRH"),
        "is a journal of systemd; write it as text first (journalctl -o cat --file)",
    ),
)
