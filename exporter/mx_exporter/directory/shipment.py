"""A segment on its way out of the pod, and what was shipped of it."""

from __future__ import annotations

import os
from io import FileIO

from mx_log.locks import open_regular

from .segments import Segment


class Gone(Exception):
    """A segment is not in the directory any more."""


class Shipment:
    """A segment, and what was shipped of it."""

    __slots__ = ("archived", "done", "inode", "name", "position", "seen", "size", "teed")

    def __init__(self, segment: Segment, position: int) -> None:
        """
        :param position: where the tee goes on, in bytes.
        """
        self.name = segment.name
        self.inode = segment.inode
        #: Size when it was last drained, and whether that was all.
        self.size = segment.size
        self.done = segment.done
        #: End of the last line that was dealt with.
        self.position = position
        #: Size and ``done`` that the tee has dealt with.
        self.seen = (0, False)
        self.teed = False
        self.archived = False

    def open(self, directory: str) -> FileIO:
        """Open its file for reading.

        :raises Gone: it is not there any more.
        """
        try:
            return FileIO(open_regular(os.path.join(directory, str(self.name))))
        except FileNotFoundError:
            raise Gone from None
