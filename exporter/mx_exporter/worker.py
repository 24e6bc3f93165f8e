"""A thread beside the event loop, for what would hold it up."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """One thread for all calls, one after the other. A daemon: a call that hangs on a dead file
    system must not keep the process from ending, as the threads of an executor would.

    :param name: of the thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """What ``function`` returns or raises, called after all that was asked for before."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put((function, future))
        return future

    def close(self) -> None:
        """Let the thread end after the calls that were asked for."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                result: Any = function()
            except Exception as error:  # noqa: BLE001 - raised where the call is awaited
                self._settle(future, None, error)
            else:
                self._settle(future, result, None)
            # Held until the next call, the last round's pages would stay in memory.
            del call, function, future
            result = None

    def _settle(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        def settle() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        # The loop may have closed under a drain that took too long to wait for.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle)
