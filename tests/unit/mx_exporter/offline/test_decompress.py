"""Decompression, on bytes in memory."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.offline.decompress import Damaged, unpack

PACK: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
packed = pytest.mark.parametrize("kind", ["gzip", "zstd"])


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, size: int = 64) -> tuple[bytes, str]:
    """What could be read, and what was said about the rest."""
    out = b""
    try:
        for block in unpack(cut(data, size)):
            out += block
    except Damaged as error:
        return out, str(error)
    return out, ""


@pytest.mark.parametrize("kind", PACK)
@given(data=st.lists(st.binary(max_size=300), max_size=4), size=st.integers(1, 70))
def test_members_and_frames_one_after_the_other(kind: str, data: list[bytes], size: int) -> None:
    data = [b"{}" + each for each in data]  # no first bytes of another layer
    assert read(b"".join(map(PACK[kind], data)), size) == (b"".join(data), "")


@packed
def test_truncated_data_gives_what_came_before_the_end(kind: str) -> None:
    text = b"".join(b"line %d\n" % number for number in range(200_000))
    whole = PACK[kind](text)
    out, said = read(whole[: len(whole) // 2], 4096)
    assert text.startswith(out)
    assert len(out) > len(text) // 4
    assert said == f"the {kind} data ends in the middle"


@packed
def test_cut_off_in_the_second_one(kind: str) -> None:
    out, said = read(PACK[kind](b"first\n") + PACK[kind](b"second\n")[:6])
    assert out == b"first\n"
    assert "ends in the middle" in said


@packed
def test_damaged_data_gives_what_came_before_it(kind: str) -> None:
    out, said = read(PACK[kind](b"first\n") + b"no header of anything")
    assert out == b"first\n"
    assert f"the {kind} data is broken" in said


def test_zeros_behind_gzip_are_padding() -> None:
    assert read(gzip.compress(b"one\n") + b"\0" * 1000) == (b"one\n", "")


def test_a_skippable_frame_of_zstd_comes_first() -> None:
    frame = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    assert read(frame + PACK["zstd"](b"one\n")) == (b"one\n", "")


@packed
def test_memory_is_bounded_whatever_size_a_file_claims(kind: str) -> None:
    whole = PACK[kind](b"\0" * (256 << 20))
    tracemalloc.start()
    try:
        total = sum(map(len, unpack(cut(whole, 65536))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == 256 << 20
    assert peak < 48 << 20
