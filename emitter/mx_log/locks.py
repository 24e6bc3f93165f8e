"""How a living writer is told from one that is gone, and who owns a directory.

Both are told by ``flock``, which the kernel lets go of when its holder ends, however that ends. A
writer holds an exclusive lock on its segment from before others can see it. One exporter holds the
lock of the directory, a file that is never removed: a second file of that name would be a second
lock. Nobody here ever waits.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from typing import Any

from .files import LOCK_NAME

#: A line that opens a file of ours is shorter than this.
_HEAD_BYTES = 16 * 1024

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotRegular(OSError):
    """Something with the name of a file of ours that is no regular file. It is left alone."""


def open_directory(path: str) -> int:
    """Open a directory, to work on what is in it; the caller closes it. Raises ``OSError``."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_regular(path: str, dir_fd: int | None = None) -> int:
    """Open a regular file for reading; the caller closes it.

    It never follows a symbolic link and never blocks on a FIFO or a device.

    :raises NotRegular: it is anything else than a regular file.
    :raises OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | _SAFELY, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(errno.EINVAL, "is not a regular file", path)
    return fd


# --------------------------------------------------------------------------------------
# Segments


def share(fd: int) -> bool:
    """Take the shared lock on an open segment, unless its writer lives; whether it was taken.

    It is held until the descriptor is closed.

    :raises OSError: the file system has no locks, so it cannot be told.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def probe(fd: int) -> bool:
    """Whether the writer of an open segment is gone: nobody holds its lock.

    Where there are no locks the answer is False: it cannot be told.
    """
    try:
        gone = share(fd)
    except OSError:
        return False
    if gone:
        fcntl.flock(fd, fcntl.LOCK_UN)
    return gone


def read_head(fd: int) -> dict[str, Any]:
    """The JSON object in the first line of an open file, a header or a signature; empty when
    there is none. Raises nothing."""
    try:
        found = json.loads(os.pread(fd, _HEAD_BYTES, 0).partition(b"\n")[0])
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --------------------------------------------------------------------------------------
# The lock of the directory


class Owned(OSError):
    """Somebody else holds the lock of the directory. ``str()`` says who."""


class NoLocks(OSError):
    """The file system has no locks."""


def take_directory(dir_fd: int, *, sign: bool = True) -> int:
    """Take the lock of a directory and sign it; the lock is held until the descriptor is closed.

    :param sign: say in the lock who holds it.
    :raises Owned: somebody else holds it.
    :raises NoLocks: the file system has no locks.
    :raises OSError: the lock's file cannot be opened or made.
    """
    fd = _open_lock(dir_fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = process_named(read_head(fd))
        os.close(fd)
        raise Owned(holder) from None
    except OSError as error:
        os.close(fd)
        raise NoLocks(error.errno, error.strerror) from None
    if not is_named(dir_fd, fd):
        os.close(fd)
        raise Owned("somebody who replaced the lock at this moment")
    if sign:
        _sign(fd)
    return fd


def is_named(dir_fd: int, fd: int) -> bool:
    """Whether the lock that is held is the one that others would find in the directory."""
    try:
        named = os.stat(LOCK_NAME, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(named, os.fstat(fd))


def process_named(words: dict[str, Any]) -> str:
    """The process that a header or a signature names, for people."""
    pid, host = words.get("pid"), words.get("hostname")
    if not isinstance(pid, int):
        return "a process that did not say which"
    if not isinstance(host, str):
        return f"process {pid}"
    return f"process {pid} on {host[:255] if host.isprintable() else ascii(host[:255])}"


def _open_lock(dir_fd: int) -> int:
    # Not opened with O_CREAT where it is there: the kernel refuses that for a file of another
    # user in a directory that anybody may write to. To lock it, reading it is enough.
    for flags in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(LOCK_NAME, flags | _SAFELY, dir_fd=dir_fd)
        except FileNotFoundError:
            break
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY
    try:
        return os.open(LOCK_NAME, flags, 0o644, dir_fd=dir_fd)
    except FileExistsError:  # somebody else was quicker
        return os.open(LOCK_NAME, os.O_RDONLY | _SAFELY, dir_fd=dir_fd)


def _sign(fd: int) -> None:
    """Say in the file who holds the lock. It helps people; nothing depends on it."""
    words = json.dumps({"pid": os.getpid(), "hostname": os.uname().nodename}).encode() + b"\n"
    # It goes over what stands there: room that is given up on a full disk is somebody else's at
    # once.
    with contextlib.suppress(OSError):
        os.pwrite(fd, words, 0)
        os.ftruncate(fd, len(words))
