"""Folding sources one after the other, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..core.catalog import Catalog
from ..core.fold import Fold
from ..core.grouped import Group, GroupedFold
from ..core.state import State
from ..directory.generations import Generations
from .read_sources import Read, read_sources
from .reader import ignore
from .scope import WHOLE, Cutting, Scope
from .sources import Source
from .writers import Writers


@dataclass
class Outcome:
    """What a fold gave: the state of each group of processes, and what was read for it."""

    #: By the values of the labels that processes are grouped by; without such labels there is one.
    states: dict[Group, State]
    read: Read

    @property
    def state(self) -> State:
        """The state, where processes are not grouped."""
        return self.states[()]

    def add(self, other: Outcome) -> None:
        """Merge what a fold of other writers gave."""
        for group, state in other.states.items():
            if group in self.states:
                self.states[group].merge(state)
            else:
                self.states[group] = state
        self.read.add(other.read)


def fold_sources(
    catalog: Catalog,
    sources: Iterable[Source],
    writers: Writers,
    base: State | None = None,
    generations: Generations | None = None,
    max_series: int | None = None,
    seen: Callable[[int], None] = ignore,
    scope: Scope = WHOLE,
) -> Outcome:
    """Fold sources one after the other, and settle the writers that are gone."""
    grouped = GroupedFold(catalog, scope.group_by, base, max_series) if scope.group_by else None
    fold = Fold(catalog, None if grouped else base, max_series)
    feed = fold.feed if grouped is None else grouped.feed
    read, cutting = Read(), Cutting(scope, writers.alive)
    for events, procs in read_sources(catalog.decoder, sources, writers, read, generations, seen):
        if grouped is not None:
            grouped.meet(events)
        feed(cutting.cut(events, procs), procs)
    for events in cutting.rest(catalog.decoder):
        feed(events, set())
    if grouped is not None:
        return Outcome(grouped.settle(writers.alive), read)
    settle(fold, writers)
    return Outcome({(): fold.state}, read)


def settle(fold: Fold, writers: Writers) -> None:
    """Fold which writers live."""
    fold.settle(set(fold.state.books) - writers.alive)
