"""A log to the history of its series: at which step each shows something else.

A step is a moment of a scrape: so many seconds since 1970 are a multiple of the interval. The
events of all processes are put in order of pods and time, and folded; what differs after a step is
put in order of families and series. Both orders are made on disk, so memory grows with the state of
one pod alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from mx_log.schema import HEADERS

from ..core.catalog import ABANDONED, IN_PROGRESS, WITH_HEADER, WITH_POLICY, Catalog
from ..core.decode import Event, Rejected, name_of
from ..core.fold import Fold
from ..core.grouped import Group, group_of
from ..directory.settling import GRACE_SECONDS
from ..errors import UsageError
from ..exposition.samples import FamilySamples, Histogram, Point, TableSeries, derived_collectors
from ..loads.model import microseconds
from ..offline.inputs import find_inputs
from ..offline.read_sources import Read, read_sources
from ..offline.reader import ignore
from ..offline.sorted_runs import SortedRuns, decoded

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


class SeriesHistory(NamedTuple):
    """One series, and what it showed from which step on, up to its pod's last one.

    :ivar labels: names and values, those of the pod first; none is empty.
    :ivar runs: first step, step after the last, and values; they follow each other.
    """

    family: FamilySamples
    labels: tuple[tuple[str, str], ...]
    bounds: tuple[float, ...]
    runs: Iterator[tuple[int, int, tuple[float, ...]]]


_decode = msgspec.json.Decoder(Change).decode


class History:
    """The history of all series of ``logs``, to be gone through once.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param step: seconds between two scrapes.
    :param labels: header labels (`grouped.HEADER_LABELS`) by which pods are told apart.
    :param fixed: labels of all series, which stand for those of the same names.
    :param since: timestamp of the first step that is given; None: the log's first.
    :param until: timestamp that all steps come before.
    :param progress: told how many bytes there are to read; returns what is told how many were.
    :raises UsageError: a path names nothing; a snapshot is among the logs.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """

    def __init__(
        self,
        catalog: Catalog,
        logs: tuple[str, ...],
        *,
        step: int,
        labels: Sequence[str],
        fixed: dict[str, str],
        since: str | None = None,
        until: str | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.found, self.snapshots, self._writers = find_inputs(catalog, logs)
        for given in self.snapshots:
            raise UsageError(
                f"{given.source.shown}: a snapshot keeps no times, so what it stands for cannot be "
                "placed: name the archive, or the segments alone to go without it"
            )
        self.read = Read()
        self.step = step
        #: Series that were given, and the times of the first and the last step in seconds.
        self.series = 0
        self.first = self.last = 0
        self._catalog = catalog
        self._labels = tuple(label for label in labels if label not in fixed)
        self._fixed = fixed
        self._since = -(-microseconds(since) // (step * 1_000_000)) if since else None
        self._until = -(-microseconds(until) // (step * 1_000_000)) if until else None
        #: proc -> its group, and microseconds of its last event
        self._groups: dict[str, Group] = {}
        self._newest: dict[str, int] = {}
        #: group -> its last step
        self._ends: dict[Group, int] = {}
        self._changes = SortedRuns()
        size = sum(source.size for source in self.found.sources)
        self._follow(self._in_order(ignore if progress is None else progress(size)))

    # ----------------------------------------------------------------------------------
    # Events in order of pods and time

    def _in_order(self, seen: Callable[[int], None]) -> Iterator[tuple[Group, Iterator[Event]]]:
        events, waiting = SortedRuns(), SortedRuns()
        catalog = self._catalog
        wanted = {name for family in catalog.families for name in family.events} | HEADERS
        batches = read_sources(
            catalog.decoder,
            self.found.sources,
            self._writers,
            self.read,
            self.found.generations,
            seen,
        )
        for batch, procs in batches:
            for event in batch:
                if isinstance(event, Rejected):
                    continue
                proc, when = event.proc, event.timestamp
                procs.add(proc)
                name = name_of(event)
                if name in HEADERS and proc not in self._groups:
                    self._groups[proc] = group_of(event, self._labels)
                time = microseconds(when)
                if time > self._newest.get(proc, 0):
                    self._newest[proc] = time
                if name in wanted:
                    group = self._groups.get(proc)
                    if group is None:
                        waiting.add(b"", _encode(event))
                    else:
                        events.add(_key(group, event), _encode(event))
        for event in _decoded(catalog, waiting):
            group = self._groups.setdefault(event.proc, ("",) * len(self._labels))
            events.add(_key(group, event), _encode(event))
        ordered = _decoded(catalog, events)
        return groupby(ordered, lambda event: self._groups[event.proc])

    # ----------------------------------------------------------------------------------
    # Folding step by step

    def _follow(self, pods: Iterable[tuple[Group, Iterator[Event]]]) -> None:
        for group, events in pods:
            self._follow_pod(group, events)

    def _follow_pod(self, group: Group, events: Iterator[Event]) -> None:
        fold = Fold(self._catalog)
        watched = _Watched(self._catalog, fold)
        interval = self.step * 1_000_000
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
        self._ends[group] = last

    def _note(
        self, group: Group, step: int, changes: Iterator[tuple[int, tuple[str, ...], Any]]
    ) -> None:
        for family, labels, values in changes:
            change = Change(family, group, labels, step, values)
            key = b"%04d%b%b%020d" % (family, _encode(group), _encode(labels), step)
            self._changes.add(key, _encode(change))

    # ----------------------------------------------------------------------------------
    # Series by series

    def __iter__(self) -> Iterator[SeriesHistory]:
        changes = (_decode(line) for line in self._changes)
        families = self._catalog.families
        for (number, group, labels), given in groupby(changes, itemgetter(0, 1, 2)):
            family = families[number]
            names = (*self._labels, *self._fixed, *family.label_names())
            values = (*group, *self._fixed.values(), *labels)
            shown = tuple((name, value) for name, value in zip(names, values, strict=True) if value)
            self.series += 1
            yield SeriesHistory(
                FamilySamples(family.name, family.type, family.help, (), ()),
                shown,
                family.buckets,
                self._runs(given, self._ends[group], rises=family.type != "gauge"),
            )

    def _runs(
        self, changes: Iterator[Change], end: int, *, rises: bool
    ) -> Iterator[tuple[int, int, tuple[float, ...]]]:
        """The runs of a series. What only grows was zero one step before it came."""
        first = next(changes)
        step, values = first.step, first.values
        if rises and any(values):
            yield from self._within(step - 1, step, (0.0,) * len(values))
        for change in changes:
            yield from self._within(step, change.step, values)
            step, values = change.step, change.values
        yield from self._within(step, end + 1, values)

    def _within(
        self, begin: int, end: int, values: tuple[float, ...]
    ) -> Iterator[tuple[int, int, tuple[float, ...]]]:
        begin = begin if self._since is None else max(begin, self._since)
        end = end if self._until is None else min(end, self._until)
        if begin < end:
            self.first = min(self.first or begin * self.step, begin * self.step)
            self.last = max(self.last, (end - 1) * self.step)
            yield begin, end, values


def sample_values(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The values of so many samples of a series; of a histogram whose sum is negative, which
    OpenMetrics has no place for, the buckets alone."""
    if count == 1:
        return values
    *counts, total = values
    return (*counts, counts[-1], total) if total >= 0 else tuple(counts)


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
