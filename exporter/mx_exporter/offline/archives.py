"""Archives to the files in them, one after the other: tar, zip, and what is none.

Told by their first bytes; each file may be compressed, or an archive, itself. The blocks of a file
are good until the next file is asked for.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from .decompress import HEAD, MAX_LAYERS, Damaged, peek, unpack

_BLOCK = 128 * 1024
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR_END = 512


class Member(NamedTuple):
    """A file of an archive, or what is no archive, decompressed."""

    #: Empty: it is no archive.
    name: str
    blocks: Iterator[bytes]


def members(
    blocks: Iterable[bytes],
    whole: Callable[[], IO[bytes] | None] = lambda: None,
    name: str = "",
    depth: int = 0,
) -> Iterator[Member]:
    """The files that a stream of blocks holds.

    :param whole: gives the same as a file that can be read in any order, which a zip archive
        needs; None: there is none.
    :param name: of the archive in another one.
    :raises Damaged: after all that could be read; so does reading a member's blocks.
    """
    head, stream = peek(unpack(blocks))
    if not is_archive(head):
        yield Member(name, stream)
    elif depth == MAX_LAYERS:
        raise Damaged(f"is packed more than {MAX_LAYERS} times; unpack it first")
    elif head.startswith(_ZIP):
        if (file := whole()) is None:
            raise Damaged("is a zip archive that cannot be read from both ends; unpack it first")
        for inner, content in _zipped(file):
            yield from members(content, lambda: None, _joined(name, inner), depth + 1)
    else:
        for inner, content in _tarred(stream):
            yield from members(content, lambda: None, _joined(name, inner), depth + 1)


def is_archive(head: bytes) -> bool:
    """Whether what begins like this, decompressed, is an archive."""
    return head.startswith(_ZIP) or _is_tar(head)


def _joined(name: str, inner: str) -> str:
    return f"{name}:{inner}" if name else inner


def _is_tar(head: bytes) -> bool:
    """Whether the checksum of a first header is right."""
    if len(head) < HEAD or not head[0]:
        return False
    try:
        said = int(head[148:156].strip(b"\0 "), 8)
    except ValueError:
        return False
    return said == sum(head[:148]) + 8 * 32 + sum(head[156:HEAD])


def _tarred(blocks: Iterator[bytes]) -> Iterator[tuple[str, Iterator[bytes]]]:
    reader = _Reader(blocks)
    try:
        with tarfile.open(fileobj=reader, mode="r|", bufsize=_BLOCK) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield member.name, _read(content, "tar")
    except (tarfile.TarError, EOFError) as error:
        raise Damaged(f"the tar archive is broken ({error})") from None
    if not reader.ended():
        raise Damaged("the tar archive ends in the middle")


class _Reader(io.RawIOBase):
    """Blocks as a file to read from."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks = blocks
        self._held = b""
        self._last = b""

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, fewer at the end only."""
        parts = [self._held]
        have = len(self._held)
        while size < 0 or have < size:
            block = next(self._blocks, None)
            if block is None:
                break
            parts.append(block)
            have += len(block)
        whole = b"".join(parts)
        end = len(whole) if size < 0 else size
        self._held = whole[end:]
        given = whole[:end]
        if given:
            self._last = given[-_TAR_END:]
        return given

    def ended(self) -> bool:
        """Read on to the end; whether it is marked as one."""
        while self.read(_BLOCK):
            pass
        return not self._last.strip(b"\0")


def _zipped(file: IO[bytes]) -> Iterator[tuple[str, Iterator[bytes]]]:
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                if entry.flag_bits & 1:
                    raise Damaged(f"the zip archive's {entry.filename} has a password")
                with archive.open(entry) as content:
                    yield entry.filename, _read(content, "zip")
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error) as error:
        raise Damaged(f"the zip archive is broken ({error})") from None


def _read(content: IO[bytes], kind: str) -> Iterator[bytes]:
    try:
        while block := content.read(_BLOCK):
            yield block
    except Damaged:
        raise
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError) as error:
        raise Damaged(f"the {kind} archive is broken ({error})") from None


def bare_name(name: str) -> str:
    """A member's own name, without the directories and archives that it lies in."""
    return os.path.basename(name.rpartition(":")[2])
