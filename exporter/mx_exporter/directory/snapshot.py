"""The snapshot file: the state of segments that are gone, beside those that remain.

``state of snapshot + remaining segments == state of all segments``, bit for bit. What is in it is
for :mod:`mx_exporter.core.snapshot_codec` to say; here it is read, and put in place atomically.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import BinaryIO

import orjson

from mx_log.files import SNAPSHOT_NAME
from mx_log.locks import open_regular

from ..core.catalog import Catalog
from ..core.snapshot_codec import Snapshot, dump, load
from ..core.state import State
from . import atomic_write


def read(catalog: Catalog, dir_fd: int) -> tuple[Snapshot, tuple[int, int, int]] | None:
    """The snapshot of a directory, and the identity of its file; None when there is none.

    Raises `BadSnapshot`, ``OSError`` when it cannot be read.
    """
    found = _contents(dir_fd)
    return (load(catalog, found[0]), found[1]) if found else None


def amend(catalog: Catalog, dir_fd: int, shipped: Mapping[str, int]) -> tuple[int, int, int]:
    """Keep other positions of shipping and the same state; return the new file's identity.

    Where there is no snapshot, one that stands for nothing is made. Raises ``OSError``, and
    `BadSnapshot` when there is one that should rather be left as it is.
    """
    found = _contents(dir_fd)
    if found is None:
        return write(dir_fd, dump(catalog, State(catalog), {}, shipped))
    load(catalog, found[0])
    # Not taken apart and put together again: what an older table derived is to stay as it is.
    packed = orjson.loads(found[0])
    return write(dir_fd, orjson.dumps({**packed, "shipped": dict(shipped)}))


def identity(dir_fd: int) -> tuple[int, int, int] | None:
    """The identity of a directory's snapshot file: another one means another snapshot."""
    try:
        return _identity(os.stat(SNAPSHOT_NAME, dir_fd=dir_fd, follow_symlinks=False))
    except OSError:
        return None


def write(dir_fd: int, data: bytes) -> tuple[int, int, int]:
    """Put a snapshot in place of the last one, atomically; return its file's identity.

    After a crash at any moment there is the old one or the new one, whole. Raises ``OSError``.
    """

    def fill(file: BinaryIO) -> None:
        # Readers may run as another user, whatever the umask.
        os.fchmod(file.fileno(), 0o644)
        file.write(data)

    # The segments are removed after this: their removal must not reach the disk before it.
    return _identity(atomic_write.put(SNAPSHOT_NAME, dir_fd, fill))


def _contents(dir_fd: int) -> tuple[bytes, tuple[int, int, int]] | None:
    try:
        fd = open_regular(SNAPSHOT_NAME, dir_fd)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        return file.read(), _identity(os.fstat(fd))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_ino, status.st_mtime_ns, status.st_size)
