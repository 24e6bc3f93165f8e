"""All that the arguments of a command name, folded once into one state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..core.catalog import Catalog
from ..errors import MxError
from .engines.process_pool import fold_all
from .fold_sources import Outcome
from .inputs import SnapshotInput, find_inputs, merge_snapshots
from .reader import ignore
from .sources import Found


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
    jobs: int | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> Folded:
    """Fold ``logs`` once.

    :param catalog: what is derived from them.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param max_series: of each `Fold`.
    :param jobs: processes at most; None: as many as there are cores.
    :param progress: told how many bytes there are to read; returns what is told, again and again,
        how many more were read.
    :raises UsageError: a path names nothing.
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
    )
    return Folded(found, snapshots, outcome)
