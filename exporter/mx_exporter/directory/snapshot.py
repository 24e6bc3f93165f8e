"""The snapshot file: the state of segments that are gone, beside those that remain.

``state of snapshot + remaining segments == state of all segments``, bit for bit. What is in it is
for :mod:`mx_exporter.core.snapshot_codec` to say; here it is read, and put in place atomically.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from typing import BinaryIO

from mx_log.files import BAD_SNAPSHOT_NAME, SNAPSHOT_NAME, numbered
from mx_log.locks import open_regular

from ..core.catalog import Catalog
from ..core.snapshot_codec import Snapshot, amend, dump, load
from ..core.snapshot_seal import BadSnapshot, check_size
from ..core.state import State
from . import atomic_write

_log = logging.getLogger(__name__)

#: Inode, time of modification and size of a snapshot's file: another one is another snapshot.
Identity = tuple[int, int, int]


def read(catalog: Catalog, dir_fd: int) -> tuple[Snapshot, Identity] | None:
    """The snapshot of a directory, and the identity of its file; None when there is none.

    Raises `BadSnapshot` when what is there is none that can be used, ``OSError`` when it cannot
    be read, which says nothing of what is in it.
    """
    found = _contents(dir_fd)
    return (load(catalog, found[0]), found[1]) if found else None


def save_shipped(catalog: Catalog, dir_fd: int, shipped: Mapping[str, int]) -> Identity:
    """Write other positions of shipping beside the same state; return the new file's identity.

    Where there is no snapshot, one that stands for nothing is made. Raises ``OSError``, and
    `BadSnapshot` when there is one that should rather be left as it is.
    """
    found = _contents(dir_fd)
    data = amend(found[0], shipped) if found else dump(catalog, State(catalog), {}, shipped)
    return write(dir_fd, data)


def identity(dir_fd: int) -> Identity | None:
    """The identity of a directory's snapshot; None when there is none. Raises ``OSError``."""
    return _identity_at(SNAPSHOT_NAME, dir_fd)


def identity_in(directory: str) -> Identity | None:
    """The same for a directory that is named by its path; None also where that cannot be told."""
    try:
        return _identity_at(os.path.join(directory, SNAPSHOT_NAME))
    except OSError:
        return None


def _identity_at(path: str, dir_fd: int | None = None) -> Identity | None:
    try:
        return _identity(os.stat(path, dir_fd=dir_fd, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None


def write(dir_fd: int, data: bytes) -> Identity:
    """Put a snapshot in place of the last one, atomically; return its file's identity.

    After a crash at any moment there is the old one or the new one, whole. Raises ``OSError``.
    """

    def fill(file: BinaryIO) -> None:
        # Readers may run as another user, whatever the umask.
        os.fchmod(file.fileno(), 0o644)
        file.write(data)

    # The segments are removed after this: their removal must not reach the disk before it.
    return _identity(atomic_write.put(SNAPSHOT_NAME, dir_fd, fill))


def move_bad(dir_fd: int) -> str:
    """Move a snapshot that cannot be used out of the way; return its new name.

    One that was moved before is replaced, unless the file system refuses that. Raises ``OSError``.
    """
    for name in numbered(BAD_SNAPSHOT_NAME):
        try:
            os.rename(SNAPSHOT_NAME, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        except OSError:
            if not _stands(name, dir_fd):
                raise
        else:
            return name
    raise AssertionError("names never end")


def _stands(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _contents(dir_fd: int) -> tuple[bytes, Identity] | None:
    try:
        fd = open_regular(SNAPSHOT_NAME, dir_fd)
    except FileNotFoundError:
        return None
    except OSError:
        status = os.stat(SNAPSHOT_NAME, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            raise
        raise BadSnapshot("is not a regular file") from None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        check_size(status.st_size)
        return file.read(status.st_size), _identity(status)


def _identity(status: os.stat_result) -> Identity:
    return (status.st_ino, status.st_mtime_ns, status.st_size)


class KnownSnapshot:
    """The snapshot that a follower of a directory goes on from.

    :param directory: for messages.

    :ivar covered: process -> number of the last segment that the snapshot stands for.
    :ivar shipped: segment's name -> bytes of it that were shipped, as the snapshot has it.
    :ivar trouble: why the snapshot cannot be used, and what to do; empty when it can, or when
        there is none.
    :ivar is_bad: it was read, or is no file: only another one helps. With trouble and without
        this, it could not be read, and that is tried again.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._identity: Identity | None = None
        self.covered: dict[str, int] = {}
        self.shipped: dict[str, int] = {}
        self.trouble = ""
        self.is_bad = False

    def is_known(self, identity: Identity | None) -> bool:
        """Whether that is the snapshot that was read last; None stands for none."""
        return identity == self._identity

    def is_overtaken(self, dir_fd: int) -> bool:
        """Whether another snapshot was put in place."""
        return identity(dir_fd) not in (None, self._identity)

    def mark_replaced(self, identity: Identity, covered: dict[str, int]) -> None:
        """We put another snapshot in place ourselves, of the state that is known."""
        self._identity, self.covered = identity, covered
        self._set_trouble("")

    def mark_shipped(self, positions: dict[str, int]) -> None:
        """The snapshot has these positions of shipping."""
        self.shipped = positions

    def mark_bad(self, error: BadSnapshot) -> None:
        """The snapshot that was read last cannot be used, or not any more."""
        self._set_trouble(
            f"{error}: put a good one in its place, or move it away; the next compaction moves it "
            f"to {BAD_SNAPSHOT_NAME}",
            is_bad=True,
        )

    def mark_moved(self) -> None:
        """The snapshot that cannot be used was moved out of the way."""
        self._set_trouble("")

    def refresh(self, catalog: Catalog, dir_fd: int) -> Snapshot | None:
        """Read the snapshot if it is another one.

        Returns it when it holds another state than the one before: all else that was read is to
        be read again. A snapshot that was removed stands for nothing any more, and changes no
        state; one that cannot be used is logged.
        """
        found = identity(dir_fd)
        is_unread = self.trouble and not self.is_bad
        if found == self._identity and not is_unread:
            return None
        if found is None:
            self._identity, self.covered = None, {}
            self._set_trouble("")
            return None
        try:
            read_now = read(catalog, dir_fd)
        except BadSnapshot as error:
            self._identity = found
            self.mark_bad(error)
            return None
        except OSError as error:
            self._identity = found
            self._set_trouble(
                f"cannot be read: {error.strerror or error}: see to it that it can be, or move it "
                "away; it is tried again, and nothing is compacted before"
            )
            return None
        if read_now is None:
            return None
        new, self._identity = read_now
        self._set_trouble("")
        self.shipped = new.shipped
        if new.segments == self.covered:
            return None  # the same state, and other positions of shipping
        self.covered = new.segments
        for name in new.changed:
            _log.warning(
                "%s: %s was derived with another table; it starts from the segments that remain",
                self._path,
                name,
            )
        return new

    def _set_trouble(self, trouble: str, *, is_bad: bool = False) -> None:
        """Take note of trouble, or that there is none, and log what is new."""
        if trouble and trouble != self.trouble:
            text = "%s %s. What it stands for is missing from the metrics"
            _log.error(text, self._path, trouble)
        self.trouble, self.is_bad = trouble, is_bad

    @property
    def _path(self) -> str:
        return os.path.join(self._directory, SNAPSHOT_NAME)
