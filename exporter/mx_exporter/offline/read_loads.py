"""All loads of the logs that the arguments of a command name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from ..core.catalog import Catalog
from ..core.decode import Decoder
from ..loads.model import Load
from ..loads.pack import pack, unpack
from ..loads.timeline import Timeline
from .engines.process_pool import group, processes, spread
from .inputs import find_inputs
from .read_sources import Read, read_sources
from .reader import ignore
from .sources import Source
from .writers import Writers

#: Bytes of lines that a process reads before it hands over the loads in them.
_GROUP = 16 * 1024 * 1024

#: Loads that are handed over at a time by the process that read them.
_pack_loads = msgspec.msgpack.Encoder().encode
_unpack_loads = msgspec.msgpack.Decoder(list[Load]).decode


class LoadReader:
    """The loads of ``logs``, by iteration, once; in no order.

    :param catalog: the events there are.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param jobs: processes at most; None: as many as there are cores.
    :param progress: told how many bytes there are to read; returns what is told, again and again,
        how many more were read.
    :raises UsageError: a path names nothing.
    """

    def __init__(
        self,
        catalog: Catalog,
        logs: tuple[str, ...],
        *,
        jobs: int | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
    ) -> None:
        self.found, self.snapshots, self._writers = find_inputs(catalog, logs)
        #: What was read, when all loads were given.
        self.read = Read()
        #: Events of which only a snapshot is left, so that their loads cannot be listed.
        self.compacted = sum(
            book.end for given in self.snapshots for book in given.snapshot.state.books.values()
        )
        self._catalog = catalog
        self._decoder = catalog.decoder
        self._jobs = processes(jobs)
        size = sum(source.size for source in self.found.sources)
        self._seen = ignore if progress is None else progress(size)

    def __iter__(self) -> Iterator[Load]:
        sources = self.found.sources
        groups = group(sources, self._jobs, _GROUP)
        timeline = Timeline()
        if self._jobs > 1 and len(groups) > 1:
            yield from self._spread(groups, timeline)
        else:
            yield from _read(self._decoder, sources, self._writers, self.read, timeline, self._seen)
        gone = {source.proc for source in sources if source.lockable} - self._writers.alive
        yield from timeline.finish(self._writers.alive, gone)

    def _spread(self, groups: list[list[Source]], timeline: Timeline) -> Iterator[Load]:
        tasks = ((self._catalog, group, self._writers) for group in groups)
        for at, part in spread(_read_group, tasks, min(self._jobs, len(groups))):
            yield from _unpack_loads(part.loads)
            yield from timeline.merge(unpack(part.rest, self._decoder))
            self.read.add(part.read)
            self._writers.alive |= part.alive
            self._seen(sum(source.size for source in groups[at]))
        self.read.sort(chain.from_iterable(groups))


class _Part(NamedTuple):
    """What a process read of some writers."""

    #: Its loads that are complete, packed.
    loads: bytes
    #: What there is of the others, packed.
    rest: bytes
    read: Read
    #: Writers that live.
    alive: set[str]


def _read_group(catalog: Catalog, sources: list[Source], writers: Writers) -> _Part:
    timeline, read = Timeline(), Read()
    loads = list(_read(catalog.decoder, sources, writers, read, timeline, ignore))
    return _Part(_pack_loads(loads), pack(timeline), read, writers.alive)


def _read(
    decoder: Decoder,
    sources: list[Source],
    writers: Writers,
    read: Read,
    timeline: Timeline,
    seen: Callable[[int], None],
) -> Iterator[Load]:
    for events, procs in read_sources(decoder, sources, writers, read, seen=seen):
        yield from timeline.feed(events, procs)
