"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import BinaryIO

from mx_log.files import numbered


def put(name: str, dir_fd: int, write: Callable[[BinaryIO], object]) -> os.stat_result:
    """Put a file in place under ``name``, instead of what stood there; return its status.

    ``write`` is given the file to fill. After a crash at any moment there is the old file or the
    new one, whole; once this returns it is the new one, and whatever is removed next stays
    removed after it. It is made as ``.<name>``, and whatever stands there is removed first, or left
    alone where that cannot be, and the name is ``.<name>.1``: only one caller at a time may put a
    name.

    Raises ``OSError``, and what ``write`` raises; of the new file nothing is left then.
    """
    temporary, fd = _make(name, dir_fd)
    try:
        with open(fd, "wb") as file:
            write(file)
            file.flush()
            os.fsync(fd)
            status = os.fstat(fd)
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except Exception:
        # On a full disk half a file would take the room that the writers wait for.
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=dir_fd)
        raise
    # A name that is removed after this must not vanish from the disk before this one is there.
    os.fsync(dir_fd)
    return status


def _make(name: str, dir_fd: int) -> tuple[str, int]:
    """Make the file to fill; return its name and a descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for temporary in numbered(f".{name}"):
        try:
            return temporary, os.open(temporary, flags, 0o644, dir_fd=dir_fd)
        except FileExistsError:
            # A crash left it, or somebody put a link or a pipe there: to open that could take for
            # ever.
            try:
                os.unlink(temporary, dir_fd=dir_fd)
            except OSError:  # a directory, or another user's where only its user may remove it
                continue
            return temporary, os.open(temporary, flags, 0o644, dir_fd=dir_fd)
    raise AssertionError("names never end")
