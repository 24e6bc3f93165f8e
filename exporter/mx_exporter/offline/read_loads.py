"""All loads of the logs that the arguments of a command name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.catalog import Catalog
from ..directory.generations import Generations
from ..loads.model import Load
from ..loads.pack import pack, unpack
from ..loads.selection import Selection
from ..loads.timeline import Timeline
from .engines.engine import Engine, group
from .engines.process_pool import engine_of
from .inputs import compacted, find_inputs
from .read_sources import Read, read_sources
from .reader import ignore
from .sources import Source
from .writers import Writers

#: Bytes of lines that a process reads before it hands over the loads in them.
_GROUP = 16 * 1024 * 1024

_Result = TypeVar("_Result")

#: Loads go from process to process as MessagePack, which takes less time than pickling them.
_encode_load = msgspec.msgpack.Encoder().encode
_unpack_load = msgspec.msgpack.Decoder(Load).decode


class LoadReader:
    """The loads of ``logs``, to be read once; in no order.

    :param catalog: the events there are.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param selection: which loads are given.
    :param now: timestamp up to which loads that run are told of; None: their newest event.
    :param jobs: processes at most; None: as many as there are cores; or the engine to use.
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
        selection: Selection | None = None,
        now: str | None = None,
        jobs: int | Engine | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.found, self.snapshots, self._writers = find_inputs(catalog, logs)
        #: What was read, when all loads were given.
        self.read = Read()
        #: Events of which only a snapshot is left, so that their loads cannot be listed.
        self.compacted = compacted(self.snapshots)
        self._catalog = catalog
        self._selection = Selection() if selection is None else selection
        self._now = now
        self._engine = engine_of(jobs)
        size = sum(source.size for source in self.found.sources)
        self._seen = ignore if progress is None else progress(size)

    def __iter__(self) -> Iterator[Load]:
        for packed in self.each(_pack_load):
            yield _unpack_load(packed)

    def each(self, work: Callable[[Load], _Result]) -> Iterator[_Result]:
        """What ``work`` makes of each load, which is done where the load was read.

        Raises `StartOver` when an exporter compacted one of the directories meanwhile: what was
        given until then is not all, and has to be forgotten.

        :param work: a function of a module, and what it returns, go from process to process.
        """
        sources = self.found.sources
        groups = group(sources, self._engine, _GROUP)
        timeline = Timeline()
        if self._engine.jobs > 1 and len(groups) > 1:
            tasks = (
                (
                    self._catalog,
                    given,
                    self._writers,
                    self.found.generations.of(source.path for source in given),
                    self._selection,
                    work,
                )
                for given in groups
            )
            for at, part in self._engine.spread(_read_group, tasks):
                yield from part.results
                rest = timeline.merge(unpack(part.rest, self._catalog.decoder))
                yield from map(work, filter(self._selection.admits, rest))
                self.read.add(part.read)
                self._writers.alive |= part.alive
                self._seen(sum(source.size for source in groups[at]))
            self.read.sort(chain.from_iterable(groups))
        else:
            loads = _read(
                self._catalog,
                sources,
                self._writers,
                self.found.generations,
                self.read,
                timeline,
                self._seen,
            )
            yield from map(work, filter(self._selection.admits, loads))
        yield from map(work, filter(self._selection.admits, self._left(timeline)))

    def _left(self, timeline: Timeline) -> Iterator[Load]:
        alive = self._writers.alive
        gone = {source.proc for source in self.found.sources if source.lockable} - alive
        for load in timeline.finish(alive, gone):
            if load.outcome == "running" and self._now is not None:
                load = replace(load, last=max(self._now, load.last))
            yield load


class _Part(NamedTuple):
    """What a process read of some writers."""

    #: What became of the loads that are complete.
    results: list[Any]
    #: What there is of the others, packed.
    rest: bytes
    read: Read
    #: Writers that live.
    alive: set[str]


def _pack_load(load: Load) -> bytes:
    # A function of the module: an encoder's own method cannot go from process to process.
    return _encode_load(load)


def _read_group(
    catalog: Catalog,
    sources: list[Source],
    writers: Writers,
    generations: Generations,
    selection: Selection,
    work: Callable[[Load], Any],
) -> _Part:
    timeline, read = Timeline(), Read()
    loads = _read(catalog, sources, writers, generations, read, timeline, ignore)
    results = [work(load) for load in loads if selection.admits(load)]
    return _Part(results, pack(timeline), read, writers.alive)


def _read(
    catalog: Catalog,
    sources: list[Source],
    writers: Writers,
    generations: Generations,
    read: Read,
    timeline: Timeline,
    seen: Callable[[int], None],
) -> Iterator[Load]:
    for events, procs in read_sources(catalog.decoder, sources, writers, read, generations, seen):
        yield from timeline.feed(events, procs)
