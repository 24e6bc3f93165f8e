"""The snapshot's seal: a first line that says what follows it, so that damage never goes unseen.

The first line is a JSON object: ``format``, how many ``bytes`` follow it, and their ``sha256``.
What follows is the content, one JSON object in one line. Format 1 had no seal: there the file is
the content, and names the format itself.
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from ..errors import MxError

#: What is written.
FORMAT = 2

#: No larger snapshot is written or read. The families of the built-in table at the default cap on
#: series, each series with all its exemplars, and a million processes take less.
MAX_BYTES = 256 * 1024 * 1024

#: msgspec shows a pattern that it missed.
_REGEX = re.compile(r" matching regex '.*'")


class BadSnapshot(MxError):
    """A snapshot that cannot be used. ``str()`` says why."""


class _Format(msgspec.Struct):
    """What the first line says in every format."""

    format: int


class _Seal(msgspec.Struct, forbid_unknown_fields=True):
    """The first line."""

    format: int
    bytes: int
    sha256: str


_read_format = msgspec.json.Decoder(_Format).decode
_read_seal = msgspec.json.Decoder(_Seal).decode


def seal(content: bytes) -> bytes:
    """A snapshot as it lies in its file.

    :param content: one JSON object, without a newline.
    :raises BadSnapshot: it would be too large to be read back.
    """
    sealed = _sealed(content + b"\n")
    check_size(len(sealed))
    return sealed


def unseal(data: bytes) -> tuple[int, bytes]:
    """The format and the content of a snapshot, just as they were sealed.

    :raises BadSnapshot: a byte of it is another, it is not whole, or the format is not known.
    """
    check_size(len(data))
    line, _, content = data.partition(b"\n")
    try:
        given = _read_format(line).format
        if given == 1:
            if content:
                raise damaged("something follows its one line")
            return given, line
        if given > FORMAT:
            raise BadSnapshot(
                f"is of format {given}, of a newer release; this one reads formats up to {FORMAT}"
            )
        if given < 1:
            raise damaged(f"there is no format {given}")
        found = _read_seal(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(error) from None
    if found.bytes != len(content):
        raise damaged(f"it has {len(content)} bytes after its first line, not {found.bytes}")
    if _sealed(content) != data:
        raise damaged("its checksum is another one")
    return given, content


def check_size(size: int) -> None:
    """Check that a snapshot of so many bytes may be one.

    :raises BadSnapshot: it is too large.
    """
    if size > MAX_BYTES:
        raise BadSnapshot(f"has {size} bytes, and none of ours is larger than {MAX_BYTES}")


def damaged(why: Exception | str, where: str = "") -> BadSnapshot:
    """The error for a snapshot that does not hold what was written."""
    return BadSnapshot(f"is damaged: {where}{_REGEX.sub(' of the right form', str(why))}")


def _sealed(content: bytes) -> bytes:
    line = _Seal(FORMAT, len(content), sha256(content).hexdigest())
    return msgspec.json.encode(line) + b"\n" + content
