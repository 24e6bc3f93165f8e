"""The archive: each finished segment, gzipped, in a directory of its own.

It gets a segment once, over restarts and crashes: the file appears under its name whole or not at
all, and one that is there is not written again. Only those who take files out of the archive may
meet one twice.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from io import FileIO
from typing import BinaryIO

from mx_log.locks import open_directory

from . import atomic_write
from .pieces import Gone, Piece
from .segments import BLOCK_BYTES


class Archive:
    """Puts the finished segments of one directory in another.

    :param directory: where segments lie.
    :param path: directory of the archive.

    :ivar count: segments put there.
    """

    def __init__(self, directory: str, path: str) -> None:
        self._directory = directory
        self._path = path
        self.count = 0

    def ship(self, pieces: Iterable[Piece], is_over: Callable[[], bool]) -> None:
        """Put what is finished in the archive, until ``is_over``. Raises ``OSError``."""
        due = [piece for piece in pieces if piece.done and not piece.archived]
        if not due:
            return
        archive_fd = open_directory(self._path)
        try:
            for piece in due:
                if is_over():
                    return
                # A segment that was just compacted is no failure of the archive.
                with contextlib.suppress(Gone):
                    self.count += self._put(piece, archive_fd)
                    piece.archived = True
        finally:
            os.close(archive_fd)

    def _put(self, piece: Piece, archive_fd: int) -> bool:
        """Put one segment in the archive, unless it is there; return whether it was put."""
        final = f"{piece.name}.gz"
        try:
            os.stat(final, dir_fd=archive_fd, follow_symlinks=False)
            return False
        except FileNotFoundError:
            pass
        with piece.open(self._directory) as segment:
            atomic_write.put(final, archive_fd, partial(_pack, segment))
        return True


def _pack(segment: FileIO, out: BinaryIO) -> None:
    """Write a segment gzipped."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        shutil.copyfileobj(segment, packed, BLOCK_BYTES)
