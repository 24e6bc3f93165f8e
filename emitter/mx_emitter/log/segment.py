"""One segment: a file of the log, from the moment it is made until it is closed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Callable

from mx_log.files import SegmentName

# With O_EXCL no link is followed either.
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

# Where an engine closed its standard streams, the lowest free descriptor is one of theirs, and
# whatever it prints would land in the log.
_LOWEST_DESCRIPTOR = 3

# Libraries close descriptors by ranges, from 3 up; and numbers below 1024 are scarce where
# ``select`` is used. The kernel's table of descriptors grows with the highest: not higher.
_HIGH_DESCRIPTOR = 4000

# How an open segment is marked as ours: by the signal that would tell of input on it, which is
# never asked for. The C library has this one to itself, and lets no program use it. So no other
# open file has it, and asking for it takes a quarter of the time of ``fstat``.
MARK = 32
GET_MARK = fcntl.F_GETSIG


class Segment:
    """An open segment: its descriptor, -1 once it is closed, and its size when it was made."""

    __slots__ = ("_identity", "_marked", "fd", "size")

    def __init__(
        self,
        folder: int,
        name: SegmentName,
        header: Callable[[bool], bytes],
        abandoned: Callable[[], bool],
    ) -> None:
        """Make the segment in the directory ``folder`` (a descriptor).

        ``header(locked)`` is its first line; ``locked`` is false where the file system has no
        ``flock``. The file gets its name when the lock is held and the header is written: whoever
        sees it sees both. Raises OSError and then leaves nothing, also when ``abandoned()`` says
        that this process is a forked child of the one it was made for.
        """
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
        status = os.fstat(fd)
        self._identity = (status.st_dev, status.st_ino)
        self.fd = fd
        try:
            self.fd = _moved_up(fd)
            self._marked = _mark(self.fd)
            line = header(_lock(self.fd))
            os.fchmod(self.fd, 0o644)  # whatever the umask: the exporter may be another user
            check()
            written = os.write(self.fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
            check()
            os.rename(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self.close()
            with contextlib.suppress(OSError):
                check()
                os.unlink(temporary, dir_fd=folder)
            raise
        self.size = len(line)

    def is_ours(self) -> bool:
        """Whether the descriptor is still that of the segment: asked before each write."""
        try:
            if self._marked:
                return fcntl.fcntl(self.fd, GET_MARK) == MARK
            return self._is_identical(os.fstat(self.fd))
        except (OSError, ValueError):  # a ValueError where it was closed by ourselves
            return False

    def state(self) -> str:
        """``ok``, ``removed`` (no name is left), or ``lost`` (the descriptor is not ours any more:
        somebody closed it, and it may be another file by now)."""
        try:
            status = os.fstat(self.fd)
        except OSError:
            return "lost"
        if not self._is_identical(status):
            return "lost"
        return "ok" if status.st_nlink else "removed"

    def length(self) -> int:
        """Bytes in the file; 0 where that cannot be told."""
        try:
            status = os.fstat(self.fd)
        except OSError:
            return 0
        return status.st_size if self._is_identical(status) else 0

    def close(self) -> None:
        """Close the descriptor, unless it is somebody else's by now; never unlock it (a lock is
        shared with forked children)."""
        fd, self.fd = self.fd, -1
        with contextlib.suppress(OSError):
            if self._is_identical(os.fstat(fd)):
                os.close(fd)

    def _is_identical(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity


def is_there(folder: int, name: SegmentName) -> bool:
    """Whether a segment has its name in the directory ``folder`` (a descriptor)."""
    try:
        os.stat(str(name), dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _moved_up(fd: int) -> int:
    """The same file at a high number, as far as the limit on descriptors lets it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = _HIGH_DESCRIPTOR if soft == resource.RLIM_INFINITY else min(_HIGH_DESCRIPTOR, soft // 2)
    for lowest in (high, _LOWEST_DESCRIPTOR):
        if fd >= lowest:
            return fd
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError as error:
            reason = error
            continue
        os.close(fd)
        return moved
    raise reason


def _mark(fd: int) -> bool:
    """Mark an open file as ours; whether it is marked now."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, MARK)
        return fcntl.fcntl(fd, fcntl.F_GETSIG) == MARK
    except OSError:
        return False


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # ENOLCK, EOPNOTSUPP, ENOSYS: nobody else can hold a file made just now
        return False
    return True
