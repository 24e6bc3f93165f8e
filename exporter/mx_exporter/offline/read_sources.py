"""Reading sources one after the other, whatever becomes of their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..core.decode import Decoder, Event, Rejected
from ..directory.generations import Generations
from .lookup import close_seams
from .parts import Seams
from .reader import files, ignore, read_file
from .sources import Source
from .stores import Unreadable
from .tally import Tally
from .writers import Writers

#: The events of some lines, and the set in which the processes that they name are to be noted.
Batch: TypeAlias = tuple[list[Event | Rejected], set[str]]


@dataclass
class Read:
    """What was read: the lines of each argument, and the sources that could not be read to their
    end."""

    problems: list[tuple[Source, Unreadable]] = field(default_factory=list)
    #: By the argument that named the files.
    tallies: dict[str, Tally] = field(default_factory=dict)

    def add(self, other: Read) -> None:
        """Add what was read of other sources."""
        self.problems += other.problems
        for argument, tally in other.tallies.items():
            self.tallies.setdefault(argument, Tally()).add(tally)

    def sort(self, sources: Iterable[Source]) -> None:
        """Put the problems in the order of the sources."""
        order = {source.path: at for at, source in enumerate(sources)}
        self.problems.sort(key=lambda problem: order[problem[0].path])

    @property
    def short(self) -> bool:
        """Whether one of them holds events of ours, which are missing now.

        One of a directory that somebody removed meanwhile is as if it had never been there.
        """
        return any(
            error.ours and not (error.vanished and source.listed) for source, error in self.problems
        )


def read_sources(
    decoder: Decoder,
    sources: Iterable[Source],
    writers: Writers,
    read: Read,
    generations: Generations | None = None,
    seen: Callable[[int], None] = ignore,
) -> Iterator[Batch]:
    """The events of sources.

    :param writers: which writers live; whoever is named in a segment that is being written is to
        be added to them.
    :param read: gets what was read.
    :param generations: of the directories that may be compacted meanwhile.
    :param seen: told the bytes that were read since it was told last.
    :raises StartOver: a source is gone, and its directory has another snapshot.
    """
    seams = Seams()
    named: dict[str, Tally] = {}
    for source in sources:
        tally = read.tallies.setdefault(source.argument, Tally())
        try:
            writing = source.path in writers.open
            procs = writers.alive if writing else set()
            for file, content in files(source, seen):
                named[file.name] = tally
                for _, events in read_file(file, content, decoder, tally, seams, writing=writing):
                    yield events, procs
        except Unreadable as error:
            if error.vanished and generations is not None:
                generations.check()
            read.problems.append((source, error))
    for _, _, events in close_seams(seams, decoder, named.__getitem__):
        yield events, set()
