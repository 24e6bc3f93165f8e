"""Folding sources, in several processes where that pays.

Each process takes the files of some writers. Their states merge to the same bytes as one
process would give, since merging is exact.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess

from ...core.catalog import Catalog
from ...core.fold import Fold
from ...core.state import Overlap, State
from ...directory.generations import Generations
from ...errors import MxError
from ..fold_sources import Outcome, fold_sources, settle
from ..reader import ignore
from ..sources import Source
from ..writers import Writers

#: Less than this is folded before other processes would have started.
_WORTH_SPREADING = 8 * 1024 * 1024

#: Groups of writers a process, so that a slow one does not keep the others waiting.
_GROUPS_EACH = 4


def fold_all(
    catalog: Catalog,
    sources: list[Source],
    writers: Writers,
    *,
    base: State | None = None,
    generations: Generations | None = None,
    max_series: int | None = None,
    jobs: int | None = None,
    seen: Callable[[int], None] = ignore,
) -> Outcome:
    """Fold all sources, in several processes where that pays and changes nothing.

    :param base: the state to go on from; it is used up.
    :param generations: of the directories that may be compacted meanwhile.
    :param max_series: of each `Fold`.
    :param jobs: processes at most; None: one a core.
    :param seen: told the bytes that were read since it was told last.
    :raises StartOver: a source is gone, and its directory has another snapshot.
    """
    base = State(catalog) if base is None else base
    cores = len(os.sched_getaffinity(0)) if jobs is None else jobs
    groups = _groups(sources, cores * _GROUPS_EACH)
    if cores > 1 and len(groups) > 1:
        try:
            return _spread(
                catalog,
                groups,
                writers,
                copy.deepcopy(base),
                generations,
                max_series,
                min(cores, len(groups)),
                seen,
            )
        except Overlap:
            pass  # the files do not hold the writers that their names say
    return fold_sources(catalog, sources, writers, base, generations, max_series, seen)


def _groups(sources: list[Source], wanted: int) -> list[list[Source]]:
    """Sources by writer, in at most ``wanted`` groups of about equal size; one group when they
    are too small to be spread, or when some do not say whose they are."""
    if (
        any(source.segment is None for source in sources)
        or sum(source.weight for source in sources) < _WORTH_SPREADING
    ):
        return [sources]
    by_proc: dict[str, list[Source]] = {}
    for source in sources:
        by_proc.setdefault(source.proc, []).append(source)
    sized = sorted(
        ((sum(source.weight for source in given), given) for given in by_proc.values()),
        key=lambda each: -each[0],
    )
    groups: list[list[Source]] = [[] for _ in range(min(wanted, len(sized)))]
    sizes = [0] * len(groups)
    for size, given in sized:
        at = sizes.index(min(sizes))
        groups[at] += given
        sizes[at] += size
    return groups


def _spread(
    catalog: Catalog,
    groups: list[list[Source]],
    writers: Writers,
    base: State,
    generations: Generations | None,
    max_series: int | None,
    jobs: int,
    seen: Callable[[int], None],
) -> Outcome:
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    others = set(multiprocessing.active_children())
    parts = [base.split_off(catalog, {source.proc for source in group}) for group in groups]
    settle(Fold(catalog, base), writers)
    whole = Outcome(base)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_mind_parent) as pool:
        try:
            pending = {
                pool.submit(
                    fold_sources, catalog, group, writers, part, generations, max_series
                ): group
                for group, part in zip(groups, parts, strict=True)
            }
            for done in as_completed(pending):
                part = done.result()
                whole.add(part)
                seen(sum(source.size for source in pending[done]))
        except BaseException as error:
            # What they have in hand may take minutes.
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise MxError("a process that was folding died; try again with --jobs 1") from None
            raise
    order = {source.path: at for at, source in enumerate(s for group in groups for s in group)}
    whole.problems.sort(key=lambda problem: order[problem[0].path])
    return whole


def _mind_parent() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the parent, and end with it:
    a worker whose parent was killed would wait for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
