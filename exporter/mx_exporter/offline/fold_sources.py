"""Folding sources one after the other, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..core.catalog import Catalog
from ..core.fold import Fold
from ..core.state import State
from ..directory.generations import Generations
from .read_sources import Read, read_sources
from .reader import ignore
from .sources import Source
from .writers import Writers


@dataclass
class Outcome:
    """What a fold gave: the state, and what was read for it."""

    state: State
    read: Read

    def add(self, other: Outcome) -> None:
        """Merge what a fold of other writers gave."""
        self.state.merge(other.state)
        self.read.add(other.read)


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
    read = Read()
    for events, procs in read_sources(catalog.decoder, sources, writers, read, generations, seen):
        fold.feed(events, procs)
    settle(fold, writers)
    return Outcome(fold.state, read)


def settle(fold: Fold, writers: Writers) -> None:
    """Fold which writers live."""
    fold.settle(set(fold.state.books) - writers.alive)
