"""What a directory holds, by name and inode: segments, other files of ours, and files of others.

Entries are sorted out only when the listing differs from the one before. That is why a scrape of
a directory with hundreds of finished segments costs no more than a scrape of one with eight.
"""

from __future__ import annotations

import contextlib
import os

from mx_log.files import LOCK_NAME, SegmentName, is_ours, parse_segment_name


class Scan:
    """The latest listing of one directory."""

    def __init__(self) -> None:
        #: Regular files with a segment's name -> that name taken apart, and the inode.
        self.segments: dict[str, tuple[SegmentName, int]] = {}
        #: Names of segments that are no regular files.
        self.not_regular: list[str] = []
        #: Names of files of ours that are being made, or were when their maker died.
        self.temporary: list[str] = []
        #: Size of our files that are no segments.
        self.others_bytes = 0
        #: Names not ours that end in ``.db``: another client's metrics.
        self.foreign_db_files = 0
        self._others: list[str] = []
        self._seen: tuple[list[str], list[int]] | None = None

    def refresh(self, dir_fd: int) -> bool:
        """List the directory again; return whether a file came, went or was replaced.

        Raises ``OSError``.
        """
        with os.scandir(dir_fd) as entries:
            found = list(entries)
            seen = ([entry.name for entry in found], [entry.inode() for entry in found])
            changed = seen != self._seen or self._became_regular(found)
            if changed:
                # Sorting out may fail half-way.
                self._seen = None
                self._sort_out(found)
                self._seen = seen
        self.others_bytes = sum(_size(name, dir_fd) for name in self._others)
        return changed

    def forget(self) -> None:
        """Have the next `refresh` report a change, whatever it finds."""
        self._seen = None

    def _became_regular(self, found: list[os.DirEntry[str]]) -> bool:
        """Whether a regular file replaced something else under the same name and inode."""
        odd = self.not_regular
        return bool(odd) and any(
            entry.name in odd and entry.is_file(follow_symlinks=False) for entry in found
        )

    def _sort_out(self, found: list[os.DirEntry[str]]) -> None:
        self.segments, self.not_regular, self.temporary, self._others = {}, [], [], []
        self.foreign_db_files = 0
        for entry in found:
            name = parse_segment_name(entry.name)
            if name is None:
                self._other(entry.name)
            elif entry.is_file(follow_symlinks=False):
                self.segments[entry.name] = (name, entry.inode())
            else:
                self.not_regular.append(entry.name)

    def _other(self, name: str) -> None:
        if is_ours(name):
            self._others.append(name)
            if name.startswith(".") and name != LOCK_NAME:
                self.temporary.append(name)
        elif name.endswith(".db"):
            self.foreign_db_files += 1


def _size(name: str, dir_fd: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_size
    return 0
