"""All events of the logs that the arguments of a command name, each once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec

from ..core.catalog import Catalog
from ..core.decode import Decoder, Event, Rejected
from ..core.ledger import Book
from ..core.state import Overlap
from ..directory.generations import Generations
from .engines.engine import Engine, group
from .inputs import compacted, find_inputs
from .read_sources import Read, read_sources
from .reader import ignore
from .records import AROUND
from .sorted_runs import SortedRuns
from .sources import Source
from .writers import Writers

#: Bytes of lines that a worker reads before it hands over those that are meant.
_GROUP = 16 * 1024 * 1024


class Line(NamedTuple):
    """An event, and the line that holds it: the bytes of the emitter, unless somebody wrote them
    again. It has no newline."""

    event: Event
    line: bytes


#: What makes keys and lines of those events that are meant.
Choose: TypeAlias = Callable[[Iterable[Line]], Iterable[tuple[bytes, bytes]]]


class EventReader:
    """The events of ``logs``, to be read once, in the order in which they stand there.

    :param catalog: the events there are; others come as well.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param jobs: has workers read them in `in_order`; None: this process does.
    :param progress: told how many bytes there are to read; returns what is told, again and again,
        how many more were read.
    :raises UsageError: a path names nothing.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """

    def __init__(
        self,
        catalog: Catalog,
        logs: tuple[str, ...],
        *,
        jobs: Engine | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.found, self.snapshots, self._writers = find_inputs(catalog, logs)
        #: What was read, when all events were given.
        self.read = Read()
        #: Events of which only a snapshot is left.
        self.compacted = compacted(self.snapshots)
        self._catalog = catalog
        self._engine = jobs
        size = sum(source.size for source in self.found.sources)
        self._seen = ignore if progress is None else progress(size)

    def __iter__(self) -> Iterator[Line]:
        return _lines(
            self._catalog,
            self.found.sources,
            self._writers,
            self.read,
            self.found.generations,
            self._seen,
            {},
        )

    def in_order(self, choose: Choose) -> Iterator[bytes]:
        """The lines that are chosen, in the order of their keys, each with its newline.

        :param choose: gives key and line of those events that are meant; what a process logged is
            given to it as a whole. It goes to other processes.
        """
        try:
            runs = self._spread(choose)
        except Overlap:  # the files do not hold the writers that their names say
            self.read, runs = Read(), None
        if runs is None:
            runs = SortedRuns()
            for key, line in choose(self):
                runs.add(key, line)
        return iter(runs)

    def _spread(self, choose: Choose) -> SortedRuns | None:
        """What workers found; None: there are none, or it is not worth it."""
        groups = [] if self._engine is None else group(self.found.sources, self._engine, _GROUP)
        if self._engine is None or len(groups) < 2:
            return None
        runs, met = SortedRuns(), set[str]()
        tasks = (
            (
                self._catalog,
                given,
                self._writers,
                self.found.generations.of(source.path for source in given),
                choose,
            )
            for given in groups
        )
        for at, part in self._engine.spread(_read_group, tasks):
            if met & part.procs:
                raise Overlap(f"process {min(met & part.procs)} is in files of others")
            met |= part.procs
            for row in part.rows:
                runs.add_row(row)
            self.read.add(part.read)
            self._seen(sum(source.size for source in groups[at]))
        self.read.sort(chain.from_iterable(groups))
        return runs


class _Part(NamedTuple):
    """What a worker read of some writers."""

    #: As `SortedRuns` gives them.
    rows: list[bytes]
    procs: set[str]
    read: Read


def _read_group(
    catalog: Catalog,
    sources: list[Source],
    writers: Writers,
    generations: Generations,
    choose: Choose,
) -> _Part:
    read, runs = Read(), SortedRuns()
    books: dict[str, Book] = {}
    for key, line in choose(_lines(catalog, sources, writers, read, generations, ignore, books)):
        runs.add(key, line)
    return _Part(list(runs.rows()), set(books), read)


def _lines(
    catalog: Catalog,
    sources: list[Source],
    writers: Writers,
    read: Read,
    generations: Generations,
    seen: Callable[[int], None],
    books: dict[str, Book],
) -> Iterator[Line]:
    decoder = _Keeping(catalog.events.values())
    kept = decoder.kept
    for events, procs in read_sources(decoder, sources, writers, read, generations, seen):
        for event in events:
            if isinstance(event, Rejected):
                continue
            procs.add(event.proc)
            book = books.setdefault(event.proc, Book())
            if not book.knows(event.seq):
                book.enter(event.seq)
                yield Line(event, kept[event.proc, event.seq])
        kept.clear()


class _Keeping(Decoder):
    """A decoder that keeps the line of each event."""

    def __init__(self, events: Iterable[object]) -> None:
        super().__init__(events)  # type: ignore[arg-type]
        #: Process and number -> line.
        self.kept: dict[tuple[str, int], bytes] = {}

    def decode(self, lines: Iterable[bytes]) -> list[Event | Rejected]:
        filled = list(filter(None, lines))
        found = super().decode(filled)
        if len(found) != len(filled):  # some are blank
            filled = [line for line in filled if super(_Keeping, self).decode([line])]
        for event, line in zip(found, filled, strict=True):
            if not isinstance(event, Rejected):
                self.kept[event.proc, event.seq] = _on_one_line(line.strip(AROUND))
        return found


def _on_one_line(text: bytes) -> bytes:
    """An object that somebody spread over several lines."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text
