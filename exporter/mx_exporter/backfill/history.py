"""A log to the history of its series: at which step each shows something else.

A step is a moment of a scrape: so many seconds since 1970 are a multiple of the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ..core.catalog import Catalog
from ..core.grouped import Group
from ..core.state import Overlap
from ..errors import UsageError
from ..exposition.samples import FamilySamples
from ..loads.model import microseconds
from ..offline.engines.engine import Engine, group
from ..offline.inputs import find_inputs
from ..offline.read_sources import Read
from ..offline.reader import ignore
from ..offline.sorted_runs import SortedRuns
from .following import Change, Following, follow_group, pods_of

#: Bytes of lines that a worker reads before it hands over what changed.
_GROUP = 16 * 1024 * 1024


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
    :param jobs: has workers read the logs; None: this process does.
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
        jobs: Engine | None = None,
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
        #: group -> its last step
        self._ends: dict[Group, int] = {}
        self._changes = SortedRuns()
        size = sum(source.size for source in self.found.sources)
        self._seen = ignore if progress is None else progress(size)
        self._follow(jobs)

    def _follow(self, engine: Engine | None) -> None:
        """Follow all pods."""
        try:
            if engine is not None and self._spread(engine):
                return
        except Overlap:  # a pod, or a process, is in more than one of the groups
            self._ends, self._changes, self.read = {}, SortedRuns(), Read()
        whole = Following(self._catalog, self.step, self._labels, self._writers)
        whole.follow(self.found.sources, self.found.generations, self._seen)
        self._ends, self._changes, self.read = whole.ends, whole.changes, whole.read

    def _spread(self, engine: Engine) -> bool:
        """Have workers follow pods; returns whether that is worth it."""
        sources, generations = self.found.sources, self.found.generations
        groups = group(sources, engine, _GROUP)
        if len(groups) < 2:
            return False
        pods: dict[str, Group | None] = {}
        for _, told in engine.spread(
            pods_of, ((self._catalog, given, self._labels) for given in groups)
        ):
            pods.update(told)
        groups = group(sources, engine, _GROUP, lambda source: pods[source.proc])
        tasks = (
            (
                self._catalog,
                self.step,
                self._labels,
                self._writers,
                given,
                generations.of(source.path for source in given),
            )
            for given in groups
        )
        met: set[str] = set()
        for at, part in engine.spread(follow_group, tasks):
            if met & part.procs or self._ends.keys() & part.ends.keys():
                raise Overlap("a pod is in files of others")
            met |= part.procs
            self._ends.update(part.ends)
            for row in part.changes:
                self._changes.add_row(row)
            self.read.add(part.read)
            self._writers.alive |= part.alive
            self._seen(sum(source.size for source in groups[at]))
        self.read.sort(chain.from_iterable(groups))
        return True

    # ----------------------------------------------------------------------------------
    # Series by series

    def __iter__(self) -> Iterator[SeriesHistory]:
        changes = (_decode(line) for line in self._changes)
        families = self._catalog.families
        for (number, pod, labels), given in groupby(changes, itemgetter(0, 1, 2)):
            family = families[number]
            names = (*self._labels, *self._fixed, *family.label_names())
            values = (*pod, *self._fixed.values(), *labels)
            shown = tuple((name, value) for name, value in zip(names, values, strict=True) if value)
            self.series += 1
            yield SeriesHistory(
                FamilySamples(family.name, family.type, family.help, (), ()),
                shown,
                family.buckets,
                self._runs(given, self._ends[pod], rises=family.type != "gauge"),
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
