"""The events behind a value: those that a series counted or observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..core.catalog import HISTOGRAM, SUM, Catalog
from ..core.decode import Event, Rejected, name_of
from ..core.exact_sum import to_float
from ..core.fold import Fold
from ..offline.inputs import find_inputs, merge_snapshots
from ..offline.lookup import close_seams
from ..offline.parts import Seams
from ..offline.read_sources import Read
from ..offline.reader import files, ignore, read_file
from ..offline.sources import Source
from ..offline.stores import Unreadable, shown
from ..offline.tally import Tally
from .selector import Selector


class Behind(NamedTuple):
    """An event behind a value, and where it stands."""

    file: str
    line: int
    event: Event
    #: What it observed or added; None where each event counts one.
    value: float | None

    @property
    def name(self) -> str:
        """The event's name."""
        return name_of(self.event)


class BehindReader:
    """The events behind the series of a selector, to be read once.

    :param catalog: what is derived from the logs.
    :param logs: as for `fold_logs`.
    :param progress: told how many bytes there are to read; returns what is told how many more
        were read.
    :raises UsageError: a path names nothing.
    :raises MxError: two snapshots know the same process.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """

    def __init__(
        self,
        catalog: Catalog,
        selector: Selector,
        logs: tuple[str, ...],
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.found, self.snapshots, self._writers = find_inputs(catalog, logs)
        self.read = Read()
        self._selector = selector
        self._fold = Fold(catalog, merge_snapshots(catalog, self.snapshots))
        #: What the snapshots hold of the value: of the events behind it, nothing but this is left.
        self.compacted = self.value()
        size = sum(source.size for source in self.found.sources)
        self._seen = ignore if progress is None else progress(size)

    def value(self) -> float:
        """The value of all series together: events, observations, or the sum of what they added."""
        selector = self._selector
        name = selector.family.name
        state = self._fold.state
        store = state.detail[name] if selector.opt_in else state.series[name]
        return sum(
            _value(series, selector)
            for labels, series in store.items()
            if selector.matches(dict(zip(selector.names, labels, strict=True)))
        )

    def __iter__(self) -> Iterator[Behind]:
        seams, tallies = Seams(), dict[str, Tally]()
        decoder = self._fold.catalog.decoder
        for source in self.found.sources:
            tally = self.read.tallies.setdefault(source.argument, Tally())
            try:
                yield from self._of_source(source, seams, tally, tallies)
            except Unreadable as error:
                if error.vanished:
                    self.found.generations.check()
                self.read.problems.append((source, error))
        for file, number, events in close_seams(seams, decoder, tallies.__getitem__):
            yield from self._of_lines(shown(file), number, events, set())

    def _of_source(
        self, source: Source, seams: Seams, tally: Tally, tallies: dict[str, Tally]
    ) -> Iterator[Behind]:
        writing = source.path in self._writers.open
        procs = self._writers.alive if writing else set()
        for file, content in files(source, self._seen):
            tallies[file.name] = tally
            for number, events in read_file(
                file,
                content,
                self._fold.catalog.decoder,
                tally,
                seams,
                writing=writing,
                numbered=True,
            ):
                yield from self._of_lines(file.shown, number, events, procs)

    def _of_lines(
        self, file: str, first: int, events: list[Event | Rejected], procs: set[str]
    ) -> Iterator[Behind]:
        wanted = self._selector.family.events
        books = self._fold.state.books
        met = set()
        new: list[tuple[int, Any]] = []
        for number, event in enumerate(events, first):
            if isinstance(event, Rejected) or type(event).__name__ not in wanted:
                continue
            identity = (event.proc, event.seq)
            book = books.get(event.proc)
            known = book is not None and book.knows(event.seq) and book.rejection(event.seq) is None
            if not known and identity not in met:
                met.add(identity)
                new.append((number, event))
        refused = {(event.proc, event.seq) for event, _ in self._fold.feed(events, procs)}
        for number, event in new:
            if (event.proc, event.seq) not in refused and self._feeds(event):
                yield Behind(file, number, event, self._observed(event))

    def _feeds(self, event: Event) -> bool:
        selector = self._selector
        value = self._observed(event)
        if selector.bound is not None and (value is None or value > selector.bound):
            return False
        return any(
            family == selector.family.name
            and len(labels) == len(selector.names)
            and selector.matches(dict(zip(selector.names, labels, strict=True)))
            for family, labels in self._fold.targets(event)
        )

    def _observed(self, event: Any) -> float | None:
        field = self._selector.family.field
        return float(getattr(event, field)) if field else None


def _value(series: Any, selector: Selector) -> float:
    family = selector.family
    if family.measure == HISTOGRAM:
        counts = series.counts
        if selector.bound in family.buckets:
            counts = counts[: family.buckets.index(selector.bound) + 1]
        return float(sum(counts))
    if family.measure == SUM:
        return to_float(series.total.units())
    return float(series.value)
