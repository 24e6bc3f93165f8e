"""The events of pods to what each series shows from which step on.

The events of all processes are put in order of pods and time, and folded; what differs after a step
is put in order of families and series. Both orders are made on disk, so memory grows with the state
of one pod alone.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import Any, NamedTuple

import msgspec

from mx_log.schema import HEADERS

from ..core.catalog import ABANDONED, IN_PROGRESS, WITH_HEADER, WITH_POLICY, Catalog
from ..core.decode import Event, Rejected, name_of
from ..core.fold import Fold
from ..core.grouped import Group, group_of
from ..directory.generations import Generations
from ..directory.settling import GRACE_SECONDS
from ..exposition.samples import Histogram, Point, TableSeries, derived_collectors
from ..loads.model import microseconds
from ..offline.read_sources import Read, read_sources
from ..offline.reader import blocks, ignore
from ..offline.sorted_runs import SortedRuns, decoded
from ..offline.sources import Source
from ..offline.stores import Unreadable
from ..offline.writers import Writers

_encode = msgspec.json.encode


class Change(NamedTuple):
    """What a series shows from a step on.

    :ivar step: number of the step; its time is so many intervals after 1970.
    :ivar values: of a point its value; of a histogram its cumulative counts and its sum.
    """

    family: int
    group: Group
    labels: tuple[str, ...]
    step: int
    values: tuple[float, ...]


class Following:
    """Follows the pods of some sources, all of whose processes are in them.

    :param step: seconds between two scrapes.
    :param labels: header labels (`grouped.HEADER_LABELS`) by which pods are told apart.
    :param writers: which writers live.
    """

    def __init__(
        self, catalog: Catalog, step: int, labels: tuple[str, ...], writers: Writers
    ) -> None:
        self.read = Read()
        #: Each `Change`, in order of families, pods and series.
        self.changes = SortedRuns()
        #: group -> its last step
        self.ends: dict[Group, int] = {}
        #: proc -> its group, and microseconds of its last event
        self.groups: dict[str, Group] = {}
        self._newest: dict[str, int] = {}
        self._catalog = catalog
        self._labels = labels
        self._step = step
        self._writers = writers

    def follow(
        self, sources: Iterable[Source], generations: Generations, seen: Callable[[int], None]
    ) -> None:
        """Read the sources, and note all changes.

        :param generations: of the directories that may be compacted meanwhile.
        :param seen: told the bytes that were read since it was told last.
        :raises StartOver: a source is gone, and its directory has another snapshot.
        """
        for group, events in self._in_order(sources, generations, seen):
            self._follow_pod(group, events)

    def _in_order(
        self, sources: Iterable[Source], generations: Generations, seen: Callable[[int], None]
    ) -> Iterator[tuple[Group, Iterator[Event]]]:
        events, waiting = SortedRuns(), SortedRuns()
        catalog = self._catalog
        wanted = {name for family in catalog.families for name in family.events} | HEADERS
        batches = read_sources(
            catalog.decoder,
            sources,
            self._writers,
            self.read,
            generations,
            seen,
        )
        for batch, procs in batches:
            for event in batch:
                if isinstance(event, Rejected):
                    continue
                proc, when = event.proc, event.timestamp
                procs.add(proc)
                name = name_of(event)
                if name in HEADERS and proc not in self.groups:
                    self.groups[proc] = group_of(event, self._labels)
                time = microseconds(when)
                if time > self._newest.get(proc, 0):
                    self._newest[proc] = time
                if name in wanted:
                    group = self.groups.get(proc)
                    if group is None:
                        waiting.add(b"", _encode(event))
                    else:
                        events.add(_key(group, event), _encode(event))
        for event in _decoded(catalog, waiting):
            group = self.groups.setdefault(event.proc, ("",) * len(self._labels))
            events.add(_key(group, event), _encode(event))
        ordered = _decoded(catalog, events)
        return groupby(ordered, lambda event: self.groups[event.proc])

    def _follow_pod(self, group: Group, events: Iterator[Event]) -> None:
        fold = Fold(self._catalog)
        watched = _Watched(self._catalog, fold)
        interval = self._step * 1_000_000
        grace = int(GRACE_SECONDS * 1_000_000)
        #: When processes count as gone that were met.
        ends: list[tuple[int, str]] = []
        met: set[str] = set()
        last = 0

        def until(step: int | None) -> None:
            nonlocal last
            while ends and (step is None or ends[0][0] <= step):
                at = ends[0][0]
                while ends and ends[0][0] == at:
                    fold.writer_gone(heapq.heappop(ends)[1])
                if at != step:
                    last = at
                    self._note(group, at, watched.changed(_GONE))

        for step, given in groupby(events, lambda e: -(-microseconds(e.timestamp) // interval)):
            some = list(given)
            until(step - 1)
            fold.feed(some)
            for proc in {event.proc for event in some} - met:
                met.add(proc)
                if proc not in self._writers.alive:
                    end = -(-(self._newest[proc] + grace) // interval)
                    heapq.heappush(ends, (end, proc))
            names = {type(event).__name__ for event in some}
            while ends and ends[0][0] == step:
                fold.writer_gone(heapq.heappop(ends)[1])
                names.add(_GONE)
            self._note(group, step, watched.changed(*names))
            last = step
        until(None)
        self.ends[group] = last

    def _note(
        self, group: Group, step: int, changes: Iterator[tuple[int, tuple[str, ...], Any]]
    ) -> None:
        for family, labels, values in changes:
            change = Change(family, group, labels, step, values)
            key = b"%04d%b%b%020d" % (family, _encode(group), _encode(labels), step)
            self.changes.add(key, _encode(change))


class Part(NamedTuple):
    """What a worker made of some pods."""

    #: As `SortedRuns` gives them.
    changes: list[bytes]
    ends: dict[Group, int]
    procs: set[str]
    read: Read
    #: Writers that live.
    alive: set[str]


def follow_group(
    catalog: Catalog,
    step: int,
    labels: tuple[str, ...],
    writers: Writers,
    sources: list[Source],
    generations: Generations,
) -> Part:
    """Follow the pods of some sources, as `Following` does."""
    whole = Following(catalog, step, labels, writers)
    whole.follow(sources, generations, ignore)
    procs = set(whole.groups)
    return Part(list(whole.changes.rows()), whole.ends, procs, whole.read, writers.alive)


def pods_of(
    catalog: Catalog, sources: list[Source], labels: tuple[str, ...]
) -> dict[str, Group | None]:
    """The pod of each process by the first line of its first segment; None where that is no header
    of it, or cannot be read."""
    found: dict[str, Group | None] = {}
    for source in sources:
        if source.proc not in found:
            first = None
            with contextlib.suppress(Unreadable):
                block = next(blocks(source), b"")
                first = catalog.decoder.decode_line(block.partition(b"\n")[0])
            known = isinstance(first, Event) and name_of(first) in HEADERS
            found[source.proc] = group_of(first, labels) if known else None
    return found


def _key(group: Group, event: Event) -> bytes:
    return b"%b%b%b%020d" % (
        _encode(group), event.timestamp.encode(), _encode(event.proc), event.seq
    )  # fmt: skip


def _decoded(catalog: Catalog, runs: SortedRuns) -> Iterator[Any]:
    return chain.from_iterable(decoded(catalog.decoder, runs))


#: Stands for the name of an event: a process is gone.
_GONE = ""


class _Watched:
    """Tells which series of a fold show something else than when it was asked last."""

    def __init__(self, catalog: Catalog, fold: Fold) -> None:
        self._collectors = list(derived_collectors(catalog, fold.state, created=True))
        self._known: list[dict[tuple[str, ...], object]] = [{} for _ in self._collectors]
        #: event -> numbers of the families that it can change
        self._families: dict[str, list[int]] = {}
        self._catalog = catalog

    def changed(self, *events: str) -> Iterator[tuple[int, tuple[str, ...], tuple[float, ...]]]:
        """Family's number, label values and values of each series that events changed."""
        numbers = {number for event in events for number in self._touched(event)}
        for number in sorted(numbers):
            known = self._known[number]
            for family in self._collectors[number].collect():
                series = family.series
                assert isinstance(series, TableSeries)
                for labels, mark in series.marks():
                    if labels not in known or known[labels] != mark:
                        known[labels] = mark
                        yield number, labels, _values(series.sample(labels))

    def _touched(self, event: str) -> list[int]:
        found = self._families.get(event)
        if found is None:
            fields = {f.name for f in self._catalog.events[event].fields} if event else set()
            kinds = {WITH_HEADER} if event in HEADERS else set()
            kinds |= {WITH_POLICY} if "policy" in fields else set()
            found = self._families[event] = [
                number
                for number, family in enumerate(self._catalog.families)
                if event in family.events
                or family.zeros in kinds
                or (event == _GONE and family.measure in (IN_PROGRESS, ABANDONED))
            ]
        return found


def _values(one: Point | Histogram) -> tuple[float, ...]:
    if isinstance(one, Histogram):
        return (*map(float, one.counts), float(one.sum))
    return (float(one.value),)
