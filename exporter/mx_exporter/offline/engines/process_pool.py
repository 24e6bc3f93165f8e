"""Spreading the work on sources over several processes, where that pays.

Each process takes the files of some writers at a time.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ...errors import MxError
from ..sources import Source

_Result = TypeVar("_Result")

#: Less than this is read before other processes would have started.
WORTH_SPREADING = 8 * 1024 * 1024

#: Groups of writers a process, so that a slow one does not keep the others waiting.
_GROUPS_EACH = 4

#: Objects that a worker makes before it looks for cycles among them.
_ALLOCATIONS = 100_000


def processes(jobs: int | None) -> int:
    """How many processes to use.

    :param jobs: as many at most; None: one a core.
    """
    return len(os.sched_getaffinity(0)) if jobs is None else jobs


def group(sources: list[Source], jobs: int, most: int | None = None) -> list[list[Source]]:
    """Sources by writer, in groups of about equal size for so many processes; one group when they
    are too small to be spread, or when some do not say whose they are.

    :param most: bytes of lines that a group of more than one writer has at most.
    """
    total = sum(source.weight for source in sources)
    if any(source.segment is None for source in sources) or total < WORTH_SPREADING:
        return [sources]
    wanted = jobs * _GROUPS_EACH
    if most is not None:
        wanted = max(wanted, total // most + 1)
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


def spread(
    work: Callable[..., _Result], tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[tuple[int, _Result]]:
    """Have processes work on tasks, and give the number and the result of each as it is done.

    Few more tasks than there are processes are under way at a time, so that results which nobody
    took yet need little room.

    :param work: called with each task's arguments.
    :raises MxError: a process died.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    others = set(multiprocessing.active_children())
    left = iter(enumerate(tasks))
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare) as pool:
        pending: dict[Future[_Result], int] = {}
        try:
            while True:
                while len(pending) < 2 * jobs and (task := next(left, None)) is not None:
                    pending[pool.submit(work, *task[1])] = task[0]
                if not pending:
                    return
                for done in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(done), done.result()
        except BaseException as error:
            # What they have in hand may take minutes.
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise MxError("a process that was reading died; try again with --jobs 1") from None
            raise


def _prepare() -> None:
    """What a worker begins with."""
    _mind_parent()
    # What it makes of lines has no cycles: to look for them often took a tenth of its time.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)


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
