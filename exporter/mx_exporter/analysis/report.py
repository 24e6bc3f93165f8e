"""All that a report says of some logs: their loads, their books, and the files themselves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone

from mx_log.words import counted

from ..core.catalog import Catalog
from ..core.state import State
from ..errors import MxError
from ..loads.selection import Selection
from ..offline.absence import without_events
from ..offline.fold_logs import fold_logs
from ..offline.read_loads import LoadReader
from ..offline.sources import STDIN, Source
from ..pages.report import MOST_INPUTS, Input, Sources
from ..pages.sums import Sums

_BLOCK = 1024 * 1024

#: What could not be read: problems that are listed one by one.
_PROBLEMS = 100


class Gathered:
    """What a report is made of, and whether anything is missing from it.

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
        reader = LoadReader(catalog, logs, selection=selection, jobs=jobs, progress=progress)
        self.sums.add_all(reader)
        absent = list(without_events(reader.found, reader.snapshots, reader.read.tallies))
        #: Something that was named is not in it.
        self.short = bool(reader.read.short or absent)
        files = _files(reader.found.sources, (given.source for given in reader.snapshots))
        problems = [f"{source.shown}: {error}" for source, error in reader.read.problems]
        problems += absent
        if reader.compacted:
            problems.append(
                f"{counted(reader.compacted, 'event')} are left in a snapshot alone: their loads "
                "cannot be listed."
            )
        if len(problems) > _PROBLEMS:
            problems[_PROBLEMS:] = [f"{len(problems) - _PROBLEMS} more"]
        self.sources = Sources(
            inputs=[
                _input(name, path, hashed=n < MOST_INPUTS) for n, (name, path) in enumerate(files)
            ],
            books=list(_books(catalog, logs, files, jobs)),
            problems=problems,
            command=command,
            made=datetime.now(timezone.utc).strftime("made on %Y-%m-%d at %H:%M:%S UTC"),
        )


def _files(sources: Iterable[Source], snapshots: Iterable[Source]) -> list[tuple[str, str]]:
    """The files that were read, each once: its name for people, and its path."""
    found: dict[str, str] = {}
    for source in (*sources, *snapshots):
        found.setdefault(source.path, source._replace(member="").shown)
    return [(name, path) for path, name in found.items()]


def _input(name: str, path: str, *, hashed: bool) -> Input:
    if path == STDIN:
        return Input(name, None, "it can be read but once")
    try:
        size = os.path.getsize(path)
        return Input(name, size, _digest(path) if hashed else "")
    except OSError as error:
        return Input(name, None, error.strerror or str(error))


def _digest(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _books(
    catalog: Catalog, logs: tuple[str, ...], files: list[tuple[str, str]], jobs: int | None
) -> Iterator[tuple[str, str]]:
    """What became of each number, by a fold of the same logs."""
    if any(path == STDIN for _, path in files):
        yield "the books", "are not known of standard input, which can be read but once"
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
