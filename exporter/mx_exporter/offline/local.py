"""The file system of this machine, and standard input, as places to read logs from."""

from __future__ import annotations

import errno
import glob
import os
import select
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from mx_log.locks import NotRegular, open_regular

from ..errors import MxError, UsageError
from .stores import Entry, Unreadable, shown

STDIN = "-"


@dataclass(frozen=True)
class Local:
    """Files of this machine."""

    live: bool = True

    def matching(self, argument: str) -> list[Entry]:
        """See `Store`."""
        try:
            os.stat(argument)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if not glob.has_magic(argument):
                raise MxError(f"{shown(argument)}: cannot be read: {error.strerror}") from None
        else:
            return [_entry(argument)]
        if glob.has_magic(argument):
            matching = sorted(glob.glob(argument, recursive=True))
            if not matching:
                raise UsageError(f"{shown(argument)}: nothing matches this pattern")
            return list(map(_entry, matching))
        if os.path.islink(argument):
            raise UsageError(f"{shown(argument)}: a symbolic link to nothing")
        raise UsageError(f"{shown(argument)}: no such file or directory")

    def entries(self, directory: str) -> Iterator[Entry]:
        """See `Store`."""
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    try:
                        size = entry.stat(follow_symlinks=False).st_size
                    except OSError:
                        size = 0
                    yield Entry(entry.path, entry.name, size, entry.is_dir())
        except OSError as error:
            raise MxError(f"{shown(directory)}: cannot be listed: {error.strerror}") from None

    def identity(self, path: str) -> str:
        """See `Store`."""
        return os.path.abspath(path)

    def real(self, path: str) -> str:
        """See `Store`."""
        return os.path.realpath(path)

    def parent(self, path: str) -> str:
        """See `Store`."""
        return os.path.realpath(os.path.dirname(path))

    def lasts(self, path: str) -> bool:
        """See `Store`."""
        return os.path.isfile(path)

    def open(self, path: str, *, listed: bool) -> Descriptor:
        """See `Store`."""
        return Descriptor(open_file(path, listed=listed), lasts=self.lasts(path))


@dataclass(frozen=True)
class StandardInput:
    """Standard input, which is a source and nothing else."""

    live: bool = False

    def matching(self, argument: str) -> list[Entry]:
        """See `Store`."""
        return [Entry(argument, argument)]

    def entries(self, _: str) -> Iterator[Entry]:
        """See `Store`."""
        return iter(())

    def identity(self, path: str) -> str:
        """See `Store`."""
        return path

    real = parent = identity

    def lasts(self, _: str) -> bool:
        """See `Store`."""
        return False

    def open(self, _: str, *, listed: bool) -> Descriptor:  # noqa: ARG002 - as `Store` has it
        """See `Store`."""
        if sys.stdin is None:
            raise Unreadable("is closed")
        return Descriptor(sys.stdin.fileno(), lasts=False, kept=True)


LOCAL = Local()
STANDARD_INPUT = StandardInput()


class Descriptor:
    """A file of this machine that is open.

    :param lasts: it can be read in any order.
    :param kept: it is not ours to close.
    """

    def __init__(self, fd: int, *, lasts: bool, kept: bool = False) -> None:
        self._fd = fd
        self._lasts = lasts
        self._kept = kept
        self._file: IO[bytes] | None = None

    def read(self, size: int) -> bytes:
        """See `Stream`."""
        while True:
            try:
                return os.read(self._fd, size)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise Unreadable(f"cannot be read: {error.strerror}") from None
            select.select([self._fd], [], [])  # a pipe that a shell handed down

    def whole(self) -> IO[bytes] | None:
        """See `Stream`."""
        if self._lasts and self._file is None:
            self._file = os.fdopen(self._fd, "rb", closefd=False)
        return self._file

    def close(self) -> None:
        """See `Stream`."""
        if self._file is not None:
            self._file.close()
        if not self._kept:
            os.close(self._fd)


def open_file(path: str, *, listed: bool) -> int:
    """Open a file, without ever blocking.

    Returns a descriptor that the caller closes. Raises `Unreadable`.
    """
    try:
        if listed:
            return open_regular(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except NotRegular:
        raise _left_alone() from None
    except OSError as error:
        # A link is not followed, a socket cannot be opened at all.
        if listed and os.path.lexists(path) and not _is_regular(path):
            raise _left_alone() from None
        vanished = isinstance(error, FileNotFoundError)
        raise Unreadable(f"cannot be opened: {error.strerror}", vanished=vanished) from None
    if stat.S_ISREG(os.fstat(fd).st_mode) or _is_handed_down(path):
        return fd
    os.close(fd)
    raise Unreadable("is no regular file")


def _entry(path: str) -> Entry:
    try:
        found = os.stat(path)
    except OSError:
        return Entry(path, os.path.basename(path))
    is_directory = stat.S_ISDIR(found.st_mode)
    return Entry(path, os.path.basename(path), found.st_size, is_directory)


def _left_alone() -> Unreadable:
    return Unreadable("is no regular file, left alone", ours=False)


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True


def _is_handed_down(path: str) -> bool:
    """Whether a shell made the file for us, as in ``replay <(ssh host cat log)``."""
    return path == "/dev/stdin" or path.startswith(("/dev/fd/", "/proc/self/fd/"))
