"""When the directory is drained: for scrapes, for wake-ups, and every few seconds.

A scrape reads its own past, so it waits for a drain that *starts* after it arrived. All scrapes
that arrive before that start share the drain, and the page that is made after it. A thread of its
own drains and renders; the event loop only waits, so that it always answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from ..worker import Worker

logger = logging.getLogger(__name__)

#: Shortest pause, in seconds, between two drains that wake-ups asked for. A busy rank wakes the
#: exporter thousands of times a second, and a scrape drains anyway. The first is done at once:
#: whatever else drained just before, an event of a quiet directory is folded within milliseconds.
SPACING = 0.1

#: Longest drain, in seconds, that no scrape asked for: a scrape that comes meanwhile waits for it.
#: The very first has no limit, since there is no page before its end.
BACKGROUND_SECONDS = 1.0

T = TypeVar("T")


class Drainable(Protocol):
    """What is drained. Used from one thread at a time."""

    def drain(self, deadline: float | None) -> bool:
        """Fold what is there now; stop at ``deadline`` (monotonic seconds) where one is given.

        Returns whether everything was read.
        """

    def hurry(self, deadline: float) -> None:
        """Have the drain in hand stop by ``deadline``. Called by another thread."""

    def period(self) -> float:
        """Seconds after which to drain though nothing asked for it."""


class _Round:
    """One drain and what shall be made after it, by key."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.wanted: dict[Hashable, Callable[[], Any]] = {}
        self.done: asyncio.Future[dict[Hashable, Any]] = asyncio.get_running_loop().create_future()

    def ask(self, key: Hashable, make: Callable[[], Any], deadline: float | None) -> None:
        self.wanted.setdefault(key, make)
        if deadline is not None:
            self.limit(deadline)

    def limit(self, deadline: float) -> None:
        self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)


class Scheduler:
    """Runs the drains of one :class:`Drainable`. All methods belong to the event loop, but for
    `wake_soon`."""

    def __init__(self, source: Drainable) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._woken = False
        self._next: _Round | None = None
        self._present: _Round | None = None
        self._worker = Worker(self._loop, "mx-drain")
        self._trouble = ""
        #: Set once the first drain is done: before that, totals would be a counter's reset.
        self.ready = asyncio.Event()

    async def after_drain(
        self, key: Hashable, make: Callable[[], T], deadline: float | None = None
    ) -> T:
        """Return what ``make`` returns in the worker, after a drain that starts from now on.

        :param key: callers of the same key share what the first one's ``make`` returned.
        :param deadline: monotonic seconds at which the drain stops; the earliest of all that
            share it counts.
        """
        if self._next is None:
            self._next = _Round()
        round_ = self._next
        round_.ask(key, make, deadline)
        self._changed.set()
        if deadline is not None:
            self._hurry(deadline)
        # The future is shared: one caller that is cancelled must not cancel it for the others.
        made = (await asyncio.shield(round_.done))[key]
        if isinstance(made, Exception):
            raise made
        return cast(T, made)

    def wake(self) -> None:
        """Drain soon: something changed in the directory."""
        self._woken = True
        self._changed.set()

    async def run_forever(self) -> None:
        """Drain until cancelled. Nothing that a drain raises ends it."""
        last = woken = -float("inf")
        while True:
            await self._wait(last, woken)
            for_wake_up = self._next is None and self._woken
            round_ = self._next or self._background()
            self._next, self._present, self._woken = None, round_, False
            try:
                everything, made = await self._worker.call(partial(self._work, round_))
            except Exception as error:  # noqa: BLE001 - each scrape that waits raises it
                self._log_once(error)
                made = dict.fromkeys(round_.wanted, error)
            else:
                self._trouble = ""
                self.ready.set()
                self._woken = self._woken or not everything
            self._present = None
            round_.done.set_result(made)
            last = self._loop.time()
            if for_wake_up:
                woken = last

    def wake_soon(self) -> None:
        """The same from any thread; thousands of calls between two drains cost nothing."""
        if not self._woken:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.wake)

    def close(self, last: Callable[[], None]) -> asyncio.Future[None]:
        """Let the worker end after what it does now and one ``last`` call, which is returned."""
        called = self._worker.call(last)
        self._worker.close()
        return called

    def _hurry(self, deadline: float) -> None:
        """Give the drain in hand half of the new scrape's time; the other half is for its own."""
        if self._present is not None and self.ready.is_set():
            now = time.monotonic()
            half = now + max(0.0, deadline - now) / 2
            self._present.limit(half)
            self._source.hurry(half)

    async def _wait(self, last: float, woken: float) -> None:
        while self._next is None:
            due = last + self._source.period()
            if self._woken and self.ready.is_set():
                due = min(due, woken + SPACING)
            left = due - self._loop.time()
            if left <= 0:
                return
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                return

    def _background(self) -> _Round:
        round_ = _Round()
        if self.ready.is_set():
            round_.deadline = time.monotonic() + BACKGROUND_SECONDS
        return round_

    def _log_once(self, error: Exception) -> None:
        """Log an error with its traceback, once as long as it stays the same."""
        if repr(error) != self._trouble:
            self._trouble = repr(error)
            logger.error("draining the directory failed", exc_info=error)

    def _work(self, round_: _Round) -> tuple[bool, dict[Hashable, Any]]:
        everything = self._source.drain(round_.deadline)
        made: dict[Hashable, Any] = {}
        for key, make in round_.wanted.items():
            try:
                made[key] = make()
            except Exception as error:
                logger.exception("a page could not be made")
                made[key] = error
        return everything, made
