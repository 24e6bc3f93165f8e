"""Spreading the work on sources over several processes, where that pays."""

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
from .engine import Engine

_Result = TypeVar("_Result")

#: Less than this is read before other processes would have started.
WORTH_SPREADING = 8 * 1024 * 1024

#: Objects that a worker makes before it looks for cycles among them.
_ALLOCATIONS = 100_000


def processes(jobs: int | None) -> int:
    """How many processes to use.

    :param jobs: as many at most; None: one a core.
    """
    return len(os.sched_getaffinity(0)) if jobs is None else jobs


class ProcessPool:
    """An `Engine`: processes of this machine.

    :param jobs: as for `processes`.
    """

    most: int | None = None

    def __init__(self, jobs: int | None) -> None:
        self.jobs = processes(jobs)

    @property
    def worth(self) -> int:
        """See `Engine`."""
        return WORTH_SPREADING

    def spread(
        self, work: Callable[..., _Result], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, _Result]]:
        """See `Engine`."""
        given = list(tasks)
        return spread(work, given, min(self.jobs, len(given)))

    def merged(
        self,
        work: Callable[..., _Result],
        tasks: Iterable[tuple[Any, ...]],
        merge: Callable[[_Result, _Result], object],  # noqa: ARG002 - as `Engine` has it
    ) -> Iterator[tuple[list[int], _Result]]:
        """See `Engine`."""
        return (([at], result) for at, result in self.spread(work, tasks))


def engine_of(jobs: int | Engine | None) -> Engine:
    """The engine that is meant.

    :param jobs: processes at most; None: one a core; or an engine.
    """
    return ProcessPool(jobs) if jobs is None or isinstance(jobs, int) else jobs


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
