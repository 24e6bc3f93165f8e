"""All that a report says of some logs: their loads, their books, and the files themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime, timezone

from mx_log.words import counted

from ..core.catalog import Catalog
from ..core.state import State
from ..errors import MxError
from ..loads.measured import measured
from ..loads.selection import Selection
from ..offline.absence import without_events
from ..offline.fold_logs import fold_logs
from ..offline.read_loads import LoadReader
from ..offline.reader import raw_blocks
from ..offline.sources import Source
from ..offline.stores import Unreadable, shown
from ..pages.report import MOST_INPUTS, Input, Sources
from ..pages.sums import Sums
from .compare import Side, compare
from .compare_text import text_lines
from .text_table import Style

#: What could not be read: problems that are listed one by one.
_PROBLEMS = 100


class Gathered:
    """What a report is made of, and whether anything is missing from it.

    :param logs: two of them are compared.
    :param selection: which loads it is about; the books are those of all.
    :raises UsageError: an argument names nothing.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """

    def __init__(
        self,
        catalog: Catalog,
        logs: tuple[str, ...],
        *,
        selection: Selection,
        command: str,
        jobs: int | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.sums = Sums()
        #: Something that was named is not in it.
        self.short = False
        self._problems: list[str] = []
        self._files: dict[str, Source] = {}
        pair = len(logs) == 2
        sides = []
        for name, given in [(shown(one), (one,)) for one in logs] if pair else [("", logs)]:
            reader = LoadReader(catalog, given, selection=selection, jobs=jobs, progress=progress)
            side = Side(name, [])
            for load in reader:
                self.sums.add(load)
                if pair:
                    side.loads.append(measured(load))
            side.loads.sort(key=lambda load: load.began[1:4])  # whatever was read first
            sides.append(side)
            self._note(reader)
        #: What `diff` says of the two, line by line.
        self.compared: list[str] = []
        if pair and all(side.loads for side in sides):
            self.compared = list(text_lines(compare(*sides), (), Style()))
        elif pair:
            self._problems.append("One of the two has no load, so they are not compared.")
        files = list(self._files.values())
        if len(self._problems) > _PROBLEMS:
            self._problems[_PROBLEMS:] = [f"{len(self._problems) - _PROBLEMS} more"]
        self.sources = Sources(
            inputs=[
                _input(source, hashed=number < MOST_INPUTS) for number, source in enumerate(files)
            ],
            books=list(_books(catalog, logs, files, jobs)),
            problems=self._problems,
            command=command,
            made=datetime.now(timezone.utc).strftime("made on %Y-%m-%d at %H:%M:%S UTC"),
        )

    def _note(self, reader: LoadReader) -> None:
        """What was read, and what could not be."""
        absent = list(without_events(reader.found, reader.snapshots, reader.read.tallies))
        self.short = self.short or bool(reader.read.short or absent)
        for source in (*reader.found.sources, *(given.source for given in reader.snapshots)):
            self._files.setdefault(source.path, source._replace(member=""))
        self._problems += [f"{source.shown}: {error}" for source, error in reader.read.problems]
        self._problems += absent
        if reader.compacted:
            self._problems.append(
                f"{counted(reader.compacted, 'event is', 'events are')} left in a snapshot alone: "
                "their loads cannot be listed."
            )


def _input(source: Source, *, hashed: bool) -> Input:
    if not source.lasts:
        return Input(source.shown, None, "it can be read but once")
    try:
        return Input(source.shown, source.size, _digest(source) if hashed else "")
    except Unreadable as error:
        return Input(source.shown, None, str(error))


def _digest(source: Source) -> str:
    found = hashlib.sha256()
    with closing(source.opened()) as stream:
        for block in raw_blocks(stream):
            found.update(block)
    return found.hexdigest()


def _books(
    catalog: Catalog, logs: tuple[str, ...], files: Iterable[Source], jobs: int | None
) -> Iterator[tuple[str, str]]:
    """What became of each number, by a fold of the same logs."""
    once = [source.shown for source in files if not source.lasts]
    if once:
        yield "the books", f"are not known of {once[0]}, which can be read but once"
        return
    try:
        state = fold_logs(catalog, logs, jobs=jobs).outcome.state
    except MxError as error:
        yield "the books", f"are not known: {error}"
        return
    yield from _lines(state)


def _lines(state: State) -> Iterator[tuple[str, str]]:
    yield "events logged", f"{state.logged}"
    yield "folded", f"{sum(state.events.values())}"
    yield "refused", f"{sum(state.refused.values())}"
    yield "skipped", f"{state.skipped}"
    yield "rejected", f"{state.rejected_numbers}"
    yield "lost", f"{state.lost}"
    yield "lines rejected, with or without a number", f"{sum(state.rejected.values())}"
    yield "duplicates", f"{state.duplicates}"
