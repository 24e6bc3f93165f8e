"""Segments on their way out of the pod: what was shipped of each."""

from __future__ import annotations

import os
from io import FileIO

from mx_log.locks import open_regular

from .segments import Segment


class Gone(Exception):
    """A segment is not in the directory any more."""


class Piece:
    """A segment, and what was shipped of it.

    :param position: offset up to which it was teed before.
    """

    __slots__ = ("archived", "done", "inode", "name", "position", "size", "teed", "teed_up_to")

    def __init__(self, segment: Segment, position: int) -> None:
        self.name = segment.name
        self.inode = segment.inode
        #: Size when it was last drained, and whether that was all.
        self.size = segment.size
        self.done = segment.done
        #: End of the last line that the tee has dealt with.
        self.position = position
        #: The size and ``done`` up to which the tee has dealt with everything.
        self.teed_up_to = (0, False)
        #: All of it went to the tee, or to the archive.
        self.teed = False
        self.archived = False

    def update(self, segment: Segment) -> None:
        """Note what a drain found."""
        self.size, self.done = segment.size, segment.done

    def open(self, directory: str) -> FileIO:
        """Open the segment.

        :raises Gone: it was removed.
        :raises OSError: it cannot be opened.
        """
        try:
            return FileIO(open_regular(os.path.join(directory, str(self.name))))
        except FileNotFoundError:
            raise Gone from None
