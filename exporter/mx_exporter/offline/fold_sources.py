"""Folding sources one after the other, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..core.catalog import Catalog
from ..core.fold import Fold
from ..core.state import State
from ..directory.generations import Generations
from .lookup import close_seams
from .parts import Seams
from .reader import files, ignore, read_file
from .sources import Source, Unreadable
from .tally import Tally
from .writers import Writers


@dataclass
class Outcome:
    """What a fold gave: the state, what the lines of each argument were, and the sources that could
    not be read to their end."""

    state: State
    problems: list[tuple[Source, Unreadable]] = field(default_factory=list)
    #: By the argument that named the files.
    tallies: dict[str, Tally] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Merge what a fold of other writers gave."""
        self.state.merge(other.state)
        self.problems += other.problems
        for argument, tally in other.tallies.items():
            self.tallies.setdefault(argument, Tally()).add(tally)

    @property
    def short(self) -> bool:
        """Whether one of them holds events of ours, which are missing now.

        One of a directory that somebody removed meanwhile is as if it had never been there.
        """
        return any(
            error.ours and not (error.vanished and source.listed) for source, error in self.problems
        )


def fold_sources(
    catalog: Catalog,
    sources: Iterable[Source],
    writers: Writers,
    base: State | None = None,
    generations: Generations | None = None,
    max_series: int | None = None,
    seen: Callable[[int], None] = ignore,
) -> Outcome:
    """Fold sources one after the other, and settle the writers that are gone."""
    fold = Fold(catalog, base, max_series)
    outcome = Outcome(fold.state)
    seams = Seams()
    named: dict[str, Tally] = {}
    for source in sources:
        tally = outcome.tallies.setdefault(source.argument, Tally())
        try:
            writing = source.path in writers.open
            procs = writers.alive if writing else set()
            for file, content in files(source, seen):
                named[file.shown] = tally
                for _, events in read_file(
                    file, content, catalog.decoder, tally, seams, writing=writing
                ):
                    fold.feed(events, procs)
        except Unreadable as error:
            if error.vanished and generations is not None:
                generations.check()
            outcome.problems.append((source, error))
    for _, _, events in close_seams(seams, catalog.decoder, named.__getitem__):
        fold.feed(events)
    settle(fold, writers)
    return outcome


def settle(fold: Fold, writers: Writers) -> None:
    """Fold which writers live."""
    fold.settle(set(fold.state.books) - writers.alive)
