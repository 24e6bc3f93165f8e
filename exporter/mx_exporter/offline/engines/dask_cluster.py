"""A Dask cluster as an engine: workers of this machine, or of a scheduler that has an address.

Each task is a value, and what it gives depends on nothing else: one whose worker dies is worked on
again by another. The scheduler is told of few tasks at a time, and keeps none that is done, so its
memory does not grow with the number of files.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from types import TracebackType
from typing import Any, TypeVar

from mx_log.schema import VERSION

from ...errors import MxError
from .process_pool import processes

_Result = TypeVar("_Result")

#: Results that a worker merges before they come here.
_BATCH = 8

#: Seconds in which a scheduler has to answer, and in which it needs a worker.
_SECONDS = 20

#: Objects that a worker makes before it looks for cycles among them: what it makes has none.
_ALLOCATIONS = 100_000


class DaskCluster:
    """An `Engine`. As a context manager it is connected; a cluster of its own ends with it.

    :param address: of a scheduler; None: a cluster of this machine's.
    :param jobs: workers of the latter; None: one a core.
    """

    worth = 0
    most: int | None = 32 * 1024 * 1024

    def __init__(self, address: str | None, jobs: int | None) -> None:
        self._address = address
        self._own = processes(jobs)
        self._opened = contextlib.ExitStack()
        self.jobs = 0

    def __enter__(self) -> DaskCluster:
        import dask
        from distributed import Client, LocalCluster

        # A worker that dies is replaced, and nobody has to know.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with self._opened as opened:
            opened.enter_context(dask.config.set({"distributed.comm.timeouts.connect": _SECONDS}))
            where: Any = self._address
            if where is None:
                where = opened.enter_context(
                    LocalCluster(
                        n_workers=self._own,
                        threads_per_worker=1,
                        memory_limit=0,
                        host="127.0.0.1",
                        dashboard_address=None,
                        silence_logs=logging.CRITICAL,
                    )
                )
            try:
                self._client = opened.enter_context(Client(where, timeout=_SECONDS))
                self._client.wait_for_workers(1, timeout=_SECONDS)
                self._check_release()
            except (OSError, ValueError) as error:
                raise MxError(
                    f"{self._named}: no scheduler of Dask with workers: {error}"
                ) from None
            # One worker alone has work for two, so that it does not wait for us.
            self.jobs = max(2, sum(self._client.nthreads().values()))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def spread(
        self, work: Callable[..., _Result], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, _Result]]:
        """See `Engine`."""
        futures = ((at, self._begin(work, task)) for at, task in enumerate(tasks))
        for at, packed in self._results(futures, 2 * self.jobs):
            yield at, pickle.loads(packed)

    def merged(
        self,
        work: Callable[..., _Result],
        tasks: Iterable[tuple[Any, ...]],
        merge: Callable[[_Result, _Result], object],
    ) -> Iterator[tuple[list[int], _Result]]:
        """See `Engine`."""
        left, numbers = iter(tasks), count()

        def batches() -> Iterator[tuple[list[int], Any]]:
            while leaves := [self._begin(work, task) for task in islice(left, _BATCH)]:
                top = self._client.submit(_merged, merge, leaves, pure=False)
                yield list(islice(numbers, len(leaves))), top

        for done, packed in self._results(batches(), 1 + -(-2 * self.jobs // _BATCH)):
            yield done, pickle.loads(packed)

    def _begin(self, work: Callable[..., Any], task: tuple[Any, ...]) -> Any:
        return self._client.submit(_packed, work, pickle.dumps(task), pure=False)

    def _results(
        self, futures: Iterator[tuple[_Result, Any]], most: int
    ) -> Iterator[tuple[_Result, bytes]]:
        """The results of futures as they are done; ``most`` of them are asked for at a time."""
        from distributed import CancelledError, KilledWorker, wait

        pending: dict[Any, _Result] = {}
        try:
            while True:
                for key, future in islice(futures, most - len(pending)):
                    pending[future] = key
                if not pending:
                    return
                for future in wait(list(pending), return_when="FIRST_COMPLETED").done:
                    yield pending.pop(future), future.result()
        except KilledWorker as error:
            raise MxError(
                f"{self._named}: workers that had one task in hand died, one after the other "
                f"({error.last_worker.address} was the last): give them more memory, or try "
                "without --engine"
            ) from None
        except (CancelledError, OSError) as error:
            raise MxError(f"{self._named}: the scheduler of Dask was lost: {error}") from None
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel(list(pending), force=True)

    def _check_release(self) -> None:
        """See that workers have this release: a state of another one may be another."""
        try:
            releases = self._client.run(_release)
        except ImportError as error:
            raise MxError(
                f"{self._named}: a worker lacks what is needed ({error}); install mx-metrics "
                f"{VERSION} there, with the same extras"
            ) from None
        for worker, release in releases.items():
            if release != VERSION:
                raise MxError(
                    f"{self._named}: the worker {worker} has mx-metrics {release}, and {VERSION} "
                    "is needed"
                )

    @property
    def _named(self) -> str:
        return self._address or "--engine dask"


def _release() -> str:
    return VERSION


def _packed(work: Callable[..., Any], task: bytes) -> bytes:
    """What a task gives, as bytes: nobody changes what a worker holds for others."""
    before = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS)
    try:
        return pickle.dumps(work(*pickle.loads(task)))
    finally:
        gc.set_threshold(*before)


def _merged(merge: Callable[[Any, Any], object], parts: list[bytes]) -> bytes:
    first, *others = parts
    if not others:
        return first
    whole = pickle.loads(first)
    for part in others:
        merge(whole, pickle.loads(part))
    return pickle.dumps(whole)
