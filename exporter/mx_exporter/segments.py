"""One segment file: opening it safely, and asking whether its writer lives."""

from __future__ import annotations

import fcntl
import os
import stat


class NotRegular(OSError):
    """Something with a segment's name that is no regular file. It is left alone."""


def open_segment(path: str, dir_fd: int | None = None) -> int:
    """Open a segment for reading and return its descriptor.

    Never follows a symlink and never blocks on a FIFO or device.

    Raises `NotRegular` for anything but a regular file, ``OSError`` when it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(f"{path} is not a regular file")
    return fd


def probe(fd: int) -> bool:
    """Whether the writer of an open segment is gone: nobody holds the segment's lock.

    A writer holds ``LOCK_EX`` from before its segment can be seen until it closes it or dies.
    Never waits. Where there are no locks the answer is False: it cannot be told.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True
