"""Who owns a directory: one exporter, the one that holds the lock on ``.mx-metrics.lock``.

The owner compacts and archives; everybody else only reads. The lock goes with the process that
holds it, however that ends, and the file is never removed: a second file of that name would be a
second lock, and the directory would have two owners.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat

import orjson

from mx_log.files import LOCK_NAME

#: What an exporter can be to a directory.
STATES = {
    "owner": "it compacts the directory",
    "standby": "another exporter owns the directory",
    "reader": "it may not write or delete there",
    "waiting": "there is no directory that can be opened",
}

_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ownership:
    """The claim of this process to one directory.

    :ivar state: a key of `STATES`, as of the latest `claim`.
    :ivar reason: the holder for a standby, what is in the way for a reader; else empty.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.state = "waiting"
        self.reason = ""
        self._fd = -1
        self._identity: tuple[int, int] | None = None

    def claim(self) -> str:
        """Become the owner if nobody else is; return the state. Never waits."""
        try:
            dir_fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._let_go()
            self.state, self.reason = "waiting", error.strerror or str(error)
            return self.state
        try:
            status = os.fstat(dir_fd)
            identity = (status.st_dev, status.st_ino)
            if self._fd >= 0 and self._identity == identity and self._is_named(dir_fd):
                return self.state
            self._let_go()
            self._identity = identity
            self.state, self.reason = self._take(dir_fd, status)
        except OSError as error:
            self._let_go()
            self.state, self.reason = "reader", error.strerror or str(error)
        finally:
            os.close(dir_fd)
        return self.state

    def owns(self, identity: tuple[int, int] | None) -> bool:
        """Whether we own that directory (device and inode): its path may lead elsewhere now."""
        return self.state == "owner" and self._identity == identity

    def release(self) -> None:
        """Let go of the directory: a standby takes over."""
        self._let_go()
        self.state, self.reason = "waiting", ""

    def _take(self, dir_fd: int, directory: os.stat_result) -> tuple[str, str]:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=dir_fd, effective_ids=True):
            return "reader", "the directory cannot be written to"
        us = os.geteuid()
        if directory.st_mode & stat.S_ISVTX and us not in (0, directory.st_uid):
            return "reader", "the directory is sticky and belongs to another user"
        fd = _open_lock(dir_fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
            return "standby", holder
        except OSError as error:
            os.close(fd)
            return "reader", f"the file system has no locks: {error.strerror}"
        self._fd = fd
        if not self._is_named(dir_fd):
            self._let_go()
            return "standby", "the lock was replaced at this moment"
        _sign(fd)
        return "owner", ""

    def _is_named(self, dir_fd: int) -> bool:
        """Whether the lock that we hold is the one that others would find."""
        try:
            named = os.stat(LOCK_NAME, dir_fd=dir_fd, follow_symlinks=False)
        except OSError:
            return False
        ours = os.fstat(self._fd)
        return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _open_lock(dir_fd: int) -> int:
    # A file of another user may be locked through a descriptor that only reads. It must not be
    # opened with O_CREAT: the kernel refuses that in directories that anybody may write to.
    for flags in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(LOCK_NAME, flags | _OPEN, dir_fd=dir_fd)
        except FileNotFoundError:
            break
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
    try:
        return os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o644, dir_fd=dir_fd)
    except FileExistsError:  # another exporter was quicker
        return os.open(LOCK_NAME, os.O_RDONLY | _OPEN, dir_fd=dir_fd)


def _sign(fd: int) -> None:
    """Leave word of who holds the lock. It helps people; nothing depends on it."""
    words = orjson.dumps({"pid": os.getpid(), "hostname": socket.gethostname()}) + b"\n"
    try:
        # Over what stands there: room given up on a full disk is somebody else's at once.
        os.pwrite(fd, words, 0)
        os.ftruncate(fd, len(words))
    except OSError:
        return


def _holder(fd: int) -> str:
    try:
        words = orjson.loads(os.pread(fd, 4096, 0).partition(b"\n")[0])
        return f"process {words['pid']} on {words['hostname']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
