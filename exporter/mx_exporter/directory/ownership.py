"""Which exporter owns a directory: the one that holds the lock on ``.mx-metrics.lock``.

The owner compacts and ships; all others only read. The kernel releases the lock when its holder
ends, however it ends. The file is never removed: a second file of that name would be a second lock,
and the directory would have two owners.
"""

from __future__ import annotations

import os
import stat

from mx_log import locks

#: What an exporter can be to a directory.
STATES = {
    "owner": "this exporter compacts the directory",
    "standby": "another exporter owns the directory",
    "reader": "this exporter may not write or delete there",
    "waiting": "there is no directory that can be opened",
}


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
            dir_fd = locks.open_directory(self.directory)
        except OSError as error:
            self._unlock()
            self.state, self.reason = "waiting", error.strerror or str(error)
            return self.state
        try:
            status = os.fstat(dir_fd)
            identity = (status.st_dev, status.st_ino)
            if self._fd >= 0 and self._identity == identity and locks.is_named(dir_fd, self._fd):
                return self.state
            self._unlock()
            self._identity = identity
            self.state, self.reason = self._lock(dir_fd, status)
        except OSError as error:
            self._unlock()
            self.state, self.reason = "reader", error.strerror or str(error)
        finally:
            os.close(dir_fd)
        return self.state

    def owns(self, identity: tuple[int, int] | None) -> bool:
        """Whether we own the directory of that device and inode: a path may lead elsewhere now."""
        return self.state == "owner" and self._identity == identity

    def release(self) -> None:
        """Release the directory, so that a standby takes over."""
        self._unlock()
        self.state, self.reason = "waiting", ""

    def _lock(self, dir_fd: int, directory: os.stat_result) -> tuple[str, str]:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=dir_fd, effective_ids=True):
            return "reader", "the directory cannot be written to"
        us = os.geteuid()
        if directory.st_mode & stat.S_ISVTX and us not in (0, directory.st_uid):
            return "reader", "the directory is sticky and belongs to another user"
        try:
            self._fd = locks.take_directory(dir_fd)
        except locks.Owned as owned:
            return "standby", str(owned)
        except locks.NoLocks as error:
            return "reader", f"the file system has no locks: {error.strerror}"
        return "owner", ""

    def _unlock(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
