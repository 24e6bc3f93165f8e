"""A thread beside the event loop, for what would hold it up."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds that a thread works before it lets others go on, for how long it does, and the longest
#: that it waits for them, as they may always be at work.
STEP_SECONDS, ASIDE_SECONDS, MOST_ASIDE_SECONDS = 0.0002, 0.00005, 0.1


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


class StepAside:
    """Called again and again by a thread for which no other one shall wait.

    Threads of Python take turns, and one that computes keeps its turn for milliseconds: longer than
    a scrape takes. So it gives its turn away each time that it is called, and waits while there is
    something more urgent.

    :param urgent: whether there is.
    """

    def __init__(self, urgent: Callable[[], bool]) -> None:
        self._urgent = urgent
        self._since = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._since < STEP_SECONDS:
            return
        time.sleep(ASIDE_SECONDS)
        while self._urgent() and time.monotonic() - now < MOST_ASIDE_SECONDS:
            time.sleep(ASIDE_SECONDS)
        self._since = time.monotonic()
