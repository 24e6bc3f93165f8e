"""All that the arguments of a command name, folded once into one state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

from ..core.catalog import Catalog
from ..core.fold import Fold
from ..core.state import Overlap, State
from ..directory.generations import Generations
from ..errors import MxError, UsageError
from ..loads.selection import EVERY
from .engines.engine import Engine, group
from .engines.process_pool import engine_of
from .fold_sources import Outcome, fold_sources, settle
from .inputs import SnapshotInput, find_inputs, merge_snapshots
from .read_sources import Read
from .reader import ignore
from .scope import WHOLE, Scope
from .sources import Found, Source
from .writers import Writers


class Folded(NamedTuple):
    """What a fold of logs gave, and from what."""

    found: Found
    snapshots: list[SnapshotInput]
    outcome: Outcome


def fold_logs(
    catalog: Catalog,
    logs: tuple[str, ...],
    *,
    max_series: int | None = None,
    jobs: int | Engine | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
    scope: Scope = WHOLE,
) -> Folded:
    """Fold ``logs`` once.

    :param catalog: what is derived from them.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param max_series: of each `Fold`.
    :param jobs: processes at most; None: as many as there are cores; or the engine to use.
    :param progress: told how many bytes there are to read; returns what is told, again and again,
        how many more were read.
    :param scope: what of them is folded.
    :raises UsageError: a path names nothing; a snapshot does not tell what of it is in the scope.
    :raises MxError: a snapshot cannot be used, or two of them know the same process.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """
    found, snapshots, writers = find_inputs(catalog, logs)
    for given in snapshots:
        if given.problem:
            raise MxError(
                f"{given.source.shown}: {given.problem}; all that it stands for would be missing. "
                "Put a good one in its place, or name the segments alone to go without it"
            )
    for given in snapshots:
        _cut(catalog, given, scope)
    seen = ignore if progress is None else progress(sum(s.size for s in found.sources))
    outcome = fold_all(
        catalog,
        found.sources,
        writers,
        base=merge_snapshots(catalog, snapshots),
        generations=found.generations,
        max_series=max_series,
        jobs=jobs,
        seen=seen,
        scope=scope,
    )
    return Folded(found, snapshots, outcome)


def fold_all(
    catalog: Catalog,
    sources: list[Source],
    writers: Writers,
    *,
    base: State | None = None,
    generations: Generations | None = None,
    max_series: int | None = None,
    jobs: int | Engine | None = None,
    seen: Callable[[int], None] = ignore,
    scope: Scope = WHOLE,
) -> Outcome:
    """Fold all sources, in several processes where that pays and changes nothing: their states
    merge to the same bytes as one process would give, since merging is exact.

    :param base: the state to go on from; it is used up.
    :param generations: of the directories that may be compacted meanwhile.
    :param max_series: of each `Fold`.
    :param jobs: as for `fold_logs`.
    :param seen: told the bytes that were read since it was told last.
    :raises StartOver: a source is gone, and its directory has another snapshot.
    """
    base = State(catalog) if base is None else base
    engine = engine_of(jobs)
    groups = group(sources, engine)
    if engine.jobs > 1 and len(groups) > 1:
        try:
            return _spread(
                catalog,
                groups,
                writers,
                copy.deepcopy(base),
                generations,
                max_series,
                engine,
                seen,
                scope,
            )
        except Overlap:
            pass  # the files do not hold the writers that their names say
    return fold_sources(catalog, sources, writers, base, generations, max_series, seen, scope)


def _cut(catalog: Catalog, given: SnapshotInput, scope: Scope) -> None:
    """Leave of a snapshot what is in the scope."""
    state = given.snapshot.state
    last = state.last_event
    cut = scope.window.cut_state(catalog, state)
    if cut is None:
        raise _cannot(given, f"events up to {last}, and keeps no times of them", "in that time")
    if cut.events and scope.selection != EVERY:
        raise _cannot(given, "events of all loads, and keeps none of them", "of these")
    given.snapshot.state = cut


def _cannot(given: SnapshotInput, holds: str, wanted: str) -> UsageError:
    return UsageError(
        f"{given.source.shown}: stands for {holds}, so what of it is {wanted} cannot be told: "
        "name the archive, or the segments alone to go without it"
    )


def _spread(
    catalog: Catalog,
    groups: list[list[Source]],
    writers: Writers,
    base: State,
    generations: Generations | None,
    max_series: int | None,
    engine: Engine,
    seen: Callable[[int], None],
    scope: Scope,
) -> Outcome:
    parts = [base.split_off(catalog, {source.proc for source in group}) for group in groups]
    settle(Fold(catalog, base), writers)
    whole = Outcome({scope.nobody: base}, Read())
    tasks = (
        (
            catalog,
            group,
            writers,
            part,
            None if generations is None else generations.of(source.path for source in group),
            max_series,
            ignore,
            scope,
        )
        for group, part in zip(groups, parts, strict=True)
    )
    for done, part in engine.merged(fold_sources, tasks, Outcome.add):
        whole.add(part)
        seen(sum(source.size for at in done for source in groups[at]))
    whole.read.sort(source for group in groups for source in group)
    return whole
