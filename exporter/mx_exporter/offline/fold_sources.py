"""Folding sources one after the other, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..core.catalog import Catalog
from ..core.fold import Fold
from ..core.state import State
from ..directory.generations import Generations
from .reader import ignore, read
from .sources import Source, Unreadable
from .writers import Writers


@dataclass
class Outcome:
    """What a fold gave: the state, and the sources that could not be read to their end."""

    state: State
    problems: list[tuple[Source, Unreadable]] = field(default_factory=list)

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
    for source in sources:
        try:
            writing = source.path in writers.open
            procs = writers.alive if writing else set()
            for _, events in read(source, catalog.decoder, writing=writing, seen=seen):
                fold.feed(events, procs)
        except Unreadable as error:
            if error.vanished and generations is not None:
                generations.check()
            outcome.problems.append((source, error))
    settle(fold, writers)
    return outcome


def settle(fold: Fold, writers: Writers) -> None:
    """Fold which writers live."""
    fold.settle(set(fold.state.books) - writers.alive)
