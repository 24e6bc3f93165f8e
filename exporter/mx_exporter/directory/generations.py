"""Reading beside an exporter that compacts: a reader that was overtaken notices, and starts over.

A compaction puts a new snapshot in place before it removes the segments that the snapshot stands
for. So a listing is whole when the directory has the same snapshot after it as before it; and a
listed segment that is gone when it is to be opened is in another snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..errors import MxError
from . import snapshot

#: An exporter compacts every few seconds at most, and leaves what is younger than a minute.
_ATTEMPTS = 50

T = TypeVar("T")


class StartOver(Exception):
    """Another exporter compacted the directory while it was being read."""


class Generations:
    """Which snapshot each directory had before it was listed. Picklable."""

    def __init__(self) -> None:
        self._seen: dict[str, snapshot.Identity | None] = {}
        #: By where they lie: the same, as they were named.
        self._places: dict[str, list[str]] = {}

    def note(self, directory: str) -> None:
        """Note the snapshot that a directory has before it is listed or read."""
        if directory not in self._seen:
            self._seen[directory] = snapshot.identity_in(directory)
            self._places.setdefault(os.path.abspath(directory), []).append(directory)

    def of(self, paths: Iterable[str]) -> Generations:
        """Those of the directories that these files lie in."""
        found = Generations()
        for place in {os.path.abspath(os.path.dirname(path)) for path in paths}:
            for directory in self._places.get(place, ()):
                found._seen[directory] = self._seen[directory]
        return found

    def check(self) -> None:
        """Check that each directory still has the snapshot that was noted.

        :raises StartOver: one has another; ``str()`` is the directory.
        """
        for directory, seen in self._seen.items():
            if snapshot.identity_in(directory) != seen:
                raise StartOver(directory)


def retry_overtaken(attempt: Callable[[], T]) -> T:
    """Call ``attempt`` until it is not overtaken, and return what it returns.

    :raises MxError: it raised `StartOver` again and again.
    """
    where = ""
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except StartOver as overtaken:
            where = str(overtaken)
    raise MxError(
        f"{where}: was compacted while it was read, {_ATTEMPTS} times in a row; try again, or name "
        "a copy of it"
    )
