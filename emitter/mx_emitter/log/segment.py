"""One segment: a file of the log, from the moment it is made until it is closed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable

from mx_log.files import SegmentName

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

# Where an engine closed its standard streams, the lowest free descriptor is one of theirs, and
# whatever it prints would land in the log.
_LOWEST_DESCRIPTOR = 3


class Segment:
    """An open segment. ``locked`` is false where the file system has no ``flock``."""

    __slots__ = ("_identity", "fd", "locked", "name", "size")

    def __init__(
        self,
        folder: int,
        name: SegmentName,
        header: Callable[[bool], bytes],
        abandoned: Callable[[], bool],
    ) -> None:
        """Make the segment in the directory ``folder`` (a descriptor).

        ``header(locked)`` is its first line. The file gets its name when the lock is held and the
        header is written: whoever sees it sees both. Raises OSError and then leaves nothing, also
        when ``abandoned()`` says that this process is a forked child of the one it was made for.
        """
        self.name = name
        temporary, final = name.temporary, str(name)

        def check() -> None:
            # A signal handler may fork in the middle of an opening, and the child goes on with it.
            # So this is asked before each step that would spoil the parent's, and no call stands
            # between, in which a signal could be handled.
            if abandoned():
                raise OSError(errno.ECANCELED, "the segment is the parent's", temporary)

        # Left by an exception that a signal handler raised between the making and our knowing of
        # it; no other process has this name.
        with contextlib.suppress(FileNotFoundError):
            check()
            os.unlink(temporary, dir_fd=folder)
        check()
        fd = os.open(temporary, _FLAGS, 0o600, dir_fd=folder)
        self.fd = _above_standard_streams(fd)
        try:
            self.locked = _lock(self.fd)
            line = header(self.locked)
            os.fchmod(self.fd, 0o644)  # whatever the umask: the exporter may be another user
            check()
            written = os.write(self.fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
            check()
            os.rename(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)
            status = os.fstat(self.fd)
        except BaseException:
            self.close()
            with contextlib.suppress(OSError):
                check()
                os.unlink(temporary, dir_fd=folder)
            raise
        self.size = len(line)
        self._identity = (status.st_dev, status.st_ino)

    def state(self) -> str:
        """``ok``, ``removed`` (no name is left), or ``lost`` (the descriptor is not ours any more:
        somebody closed it, and it may be another file by now)."""
        try:
            status = os.fstat(self.fd)
        except OSError:
            return "lost"
        if (status.st_dev, status.st_ino) != self._identity:
            return "lost"
        return "ok" if status.st_nlink else "removed"

    def close(self) -> None:
        """Close the descriptor; never unlock it (a lock is shared with forked children)."""
        fd, self.fd = self.fd, -1
        with contextlib.suppress(OSError):
            os.close(fd)


def _above_standard_streams(fd: int) -> int:
    if fd >= _LOWEST_DESCRIPTOR:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # ENOLCK, EOPNOTSUPP, ENOSYS: nobody else can hold a file made just now
        return False
    return True
