"""Compressed blocks of bytes to plain ones: gzip, zstd, or what was not compressed at all.

Told apart by their first bytes, not by a file's name, so that standard input works as well.
Memory is bounded whatever a file claims to hold. Files never appear here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after one byte 0x50 to 0x5f

#: Most that one step of gunzipping may give.
_GUNZIPPED = 64 * 1024

#: Most that is given to zstd in one step. Four bytes can stand for a block of 128 KiB, and it
#: takes no limit for what it gives.
_ZSTD_STEP = 256


class Damaged(Exception):
    """Compressed data ends too early or is broken; what came before was given."""


def unpack(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress a stream of blocks when it begins like gzip or zstd, else pass it on.

    Members and frames may follow one another. Raises `Damaged` after all that could be read.
    """
    stream = iter(blocks)
    head = b""
    for block in stream:
        head += block
        if len(head) >= len(_ZSTD):
            break
    whole = chain([head], stream)
    if head.startswith(_GZIP):
        return _gunzip(whole)
    if head.startswith(_ZSTD) or (head[1:4] == _ZSTD_SKIPPABLE and head[0] & 0xF0 == 0x50):
        return _unzstd(whole)
    return whole


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
                plain = member.decompress(block, _GUNZIPPED)
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
