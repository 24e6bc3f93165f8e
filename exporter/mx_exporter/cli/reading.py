"""What commands that read logs say on standard error: how far they are, and what they could not
read."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from mx_log.words import counted

from ..option_values import timestamp_of_now
from .stdio import say

if TYPE_CHECKING:
    from ..analysis.text_table import Style
    from ..loads.selection import Selection
    from ..offline.engines.engine import Engine
    from ..offline.inputs import SnapshotInput
    from ..offline.read_loads import LoadReader
    from ..offline.read_sources import Read
    from ..offline.sources import Found

_Reader = TypeVar("_Reader")
_Item = TypeVar("_Item")

#: Problems of one kind that are printed one by one.
PRINTED = 10


class Progress:
    """Shows the share of the bytes that was read, on standard error if that is a terminal."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._next = 0.0
        self._shown = False
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Take what is shown off the terminal, before something else is printed there."""
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def begin(self, total: int) -> Callable[[int], None]:
        """Show the share of ``total`` bytes; return the function that adds to those read."""
        self._total, self._done = total, 0
        return self._add

    def _add(self, count: int) -> None:
        self._done += count
        if self._terminal and self._total and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            self._shown = True
            sys.stderr.write(f"\rreading: {min(100, self._done * 100 // self._total)} %\x1b[K")
            sys.stderr.flush()


def read_whole(
    make: Callable[[], _Reader], items_of: Callable[[_Reader], Iterable[_Item]]
) -> tuple[_Reader, Iterator[_Item]]:
    """Read logs, and start over when an exporter compacted one of their directories meanwhile.

    :param make: makes what reads them.
    :param items_of: what to print of it; it has to read all before the first item.
    """
    from ..directory.generations import retry_overtaken

    def attempt() -> tuple[_Reader, Iterator[_Item]]:
        reader = make()
        items = iter(items_of(reader))
        first = list(islice(items, 1))
        return reader, chain(first, items)

    return retry_overtaken(attempt)


def read_loads(
    logs: tuple[str, ...],
    items_of: Callable[[LoadReader], Iterable[_Item]],
    progress: Progress,
    *,
    selection: Selection | None = None,
    jobs: int | Engine | None = None,
) -> tuple[LoadReader, Iterator[_Item]]:
    """The same of loads, those that run as they are now.

    :param selection: which; None: all.
    """
    from ..core.builtin import CATALOG
    from ..offline.read_loads import LoadReader

    def make() -> LoadReader:
        return LoadReader(
            CATALOG,
            logs,
            selection=selection,
            now=timestamp_of_now(),
            jobs=jobs,
            progress=progress.begin,
        )

    return read_whole(make, items_of)


def say_problems(read: Read) -> None:
    """Print which files could not be read, or not to their end."""
    for source, error in read.problems[:PRINTED]:
        say(f"{source.shown}: {error}")
    if len(read.problems) > PRINTED:
        more = counted(len(read.problems) - PRINTED, "more file was", "more files were")
        say(f"{more} left alone or not read whole")


def say_absent(found: Found, snapshots: list[SnapshotInput], read: Read) -> bool:
    """Print which arguments name no event; returns whether any does."""
    from ..offline.absence import without_events

    absent = list(without_events(found, snapshots, read.tallies))
    for line in absent[:PRINTED]:
        say(line)
    if len(absent) > PRINTED:
        say(f"{len(absent) - PRINTED} more have no event")
    return bool(absent)


def style() -> Style:
    """As wide as the terminal and in colour, if standard output is one."""
    from ..analysis.text_table import Style

    if sys.stdout is None or not sys.stdout.isatty():
        return Style()
    width = shutil.get_terminal_size((100, 24)).columns
    return Style(width, colour=not os.environ.get("NO_COLOR"))
