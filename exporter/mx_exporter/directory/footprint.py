"""Whether anybody logged into a directory between two looks at it."""

from __future__ import annotations

import os
from typing import NamedTuple

from mx_log.files import SNAPSHOT_NAME, parse_segment_name

from ..config import Directory


class Footprint(NamedTuple):
    """The segments of a directory, and which snapshot stands for those that were compacted.

    Two that are equal saw no process begin to log between them.
    """

    segments: frozenset[str]
    snapshot: tuple[int, int] | None

    @classmethod
    def of(cls, directory: Directory) -> Footprint:
        """Look now. What cannot be read is taken for empty."""
        try:
            names = os.listdir(directory.path)
        except OSError:
            names = []
        segments = frozenset(name for name in names if parse_segment_name(name))
        try:
            found = os.stat(os.path.join(directory.path, SNAPSHOT_NAME))
        except OSError:
            return cls(segments, None)
        return cls(segments, (found.st_ino, found.st_mtime_ns))
