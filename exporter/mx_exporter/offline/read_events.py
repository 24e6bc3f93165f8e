"""All events of the logs that the arguments of a command name, each once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from ..core.catalog import Catalog
from ..core.decode import Decoder, Event, Rejected
from ..core.ledger import Book
from .inputs import compacted, find_inputs
from .read_sources import Read, read_sources
from .reader import ignore
from .records import AROUND


class Line(NamedTuple):
    """An event, and the line that holds it: the bytes of the emitter, unless somebody wrote them
    again. It has no newline."""

    event: Event
    line: bytes


class EventReader:
    """The events of ``logs``, to be read once, in the order in which they stand there.

    :param catalog: the events there are; others come as well.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
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
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.found, self.snapshots, self._writers = find_inputs(catalog, logs)
        #: What was read, when all events were given.
        self.read = Read()
        #: Events of which only a snapshot is left.
        self.compacted = compacted(self.snapshots)
        self._decoder = _Keeping(catalog.events.values())
        size = sum(source.size for source in self.found.sources)
        self._seen = ignore if progress is None else progress(size)

    def __iter__(self) -> Iterator[Line]:
        books: dict[str, Book] = {}
        kept = self._decoder.kept
        for events, procs in read_sources(
            self._decoder,
            self.found.sources,
            self._writers,
            self.read,
            self.found.generations,
            self._seen,
        ):
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
