"""The archive: each finished segment as ``.jsonl.gz`` in another directory, once.

A file appears there under its name whole or not at all, and one that is there is not written
again. Only who takes files out of the archive may meet one twice.
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
from .segments import BLOCK_BYTES
from .shipment import Gone, Shipment


class Archive:
    """Puts finished segments in an archive.

    :param directory: where the segments lie.
    :param archive: directory of the archive.
    """

    def __init__(self, directory: str, archive: str) -> None:
        self._directory = directory
        self._archive = archive
        #: Segments that were put there.
        self.count = 0

    def ship(self, shipments: Iterable[Shipment], is_over: Callable[[], bool]) -> None:
        """Put those that are finished in the archive, until ``is_over`` says so.

        :raises OSError: one could not be put there.
        """
        due = [shipment for shipment in shipments if shipment.done and not shipment.archived]
        if not due:
            return
        archive_fd = open_directory(self._archive)
        try:
            for shipment in due:
                if is_over():
                    return
                # A segment that was just compacted is no failure of the archive.
                with contextlib.suppress(Gone):
                    self._put(shipment, archive_fd)
                    shipment.archived = True
        finally:
            os.close(archive_fd)

    def _put(self, shipment: Shipment, archive_fd: int) -> None:
        final = f"{shipment.name}.gz"
        try:
            os.stat(final, dir_fd=archive_fd, follow_symlinks=False)
            return
        except FileNotFoundError:
            pass
        with shipment.open(self._directory) as segment:
            atomic_write.put(final, archive_fd, partial(_pack, segment))
        self.count += 1


def _pack(segment: FileIO, out: BinaryIO) -> None:
    """Write a segment gzipped."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        shutil.copyfileobj(segment, packed, BLOCK_BYTES)
