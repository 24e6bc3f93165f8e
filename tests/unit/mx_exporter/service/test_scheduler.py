"""When the directory is drained, and which scrapes share a drain.

The source is a small real one: it counts its drains, and is held up as long as a test likes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from mx_exporter.service import scheduler as module
from mx_exporter.service.scheduler import Scheduler


class Source:
    """Counts its drains, and waits in each for a permit."""

    def __init__(self) -> None:
        self.started = 0
        self.deadlines: list[float | None] = []
        self.hurried: list[float] = []
        self.permits = threading.Semaphore(0)
        self.failing: Exception | None = None
        self.everything = True
        self.seconds = 3600.0

    def drain(self, deadline: float | None) -> bool:
        self.started += 1
        self.deadlines.append(deadline)
        assert self.permits.acquire(timeout=30)
        if self.failing is not None:
            raise self.failing
        return self.everything

    def hurry(self, deadline: float) -> None:
        self.hurried.append(deadline)

    def period(self) -> float:
        return self.seconds


async def until(condition: Any) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), 30)


def with_scheduler(test: Any, *, ready: bool = True) -> None:
    """Run ``test(source, scheduler)`` in a loop, after the first drain."""

    async def main() -> None:
        source = Source()
        scheduler = Scheduler(source)
        task = asyncio.ensure_future(scheduler.run_forever())
        try:
            if ready:
                source.permits.release()
                await asyncio.wait_for(scheduler.ready.wait(), 30)
                assert source.started == 1
            coroutine: Coroutine[Any, Any, None] = test(source, scheduler)
            await coroutine
        finally:
            source.permits.release(1000)
            task.cancel()
            await scheduler.close(lambda: None)
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_scrapes_that_came_before_a_drain_share_it() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        def ask(key: str) -> asyncio.Future[Any]:
            return asyncio.ensure_future(scheduler.after_drain(key, lambda: (key, source.started)))

        first = ask("a")
        await until(lambda: source.started == 2)
        # It has started: those who come now cannot be served by it, and share the next.
        later = [ask("a"), ask("a"), ask("b")]
        await asyncio.sleep(0)
        assert source.started == 2
        source.permits.release()
        assert await first == ("a", 2)
        source.permits.release()
        assert await asyncio.gather(*later) == [("a", 3), ("a", 3), ("b", 3)]
        assert source.started == 3

    with_scheduler(test)


def test_a_page_is_made_once_for_all_that_share_it() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        made: list[str] = []

        def make() -> list[str]:
            made.append(threading.current_thread().name)
            return list(made)

        source.permits.release()
        pages = await asyncio.gather(*(scheduler.after_drain("a", make) for _ in range(5)))
        assert pages == [["mx-drain"]] * 5
        assert all(page is pages[0] for page in pages)

    with_scheduler(test)


def test_a_scrape_during_a_drain_shortens_it() -> None:
    """The drain in hand gets half of the time that the newcomer has, the newcomer's the rest."""

    async def test(source: Source, scheduler: Scheduler) -> None:
        first = asyncio.ensure_future(scheduler.after_drain("a", int))
        await until(lambda: source.started == 2)
        assert source.hurried == []
        before = time.monotonic()
        second = asyncio.ensure_future(scheduler.after_drain("a", int, before + 10.0))
        await until(lambda: source.hurried)
        after = time.monotonic()
        assert before + 5.0 <= source.hurried[0] <= after + 5.0
        source.permits.release(2)
        await asyncio.gather(first, second)
        assert source.deadlines == [None, None, before + 10.0]

    with_scheduler(test)


def test_the_first_drain_is_not_shortened() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        await until(lambda: source.started == 1)
        waiting = asyncio.ensure_future(scheduler.after_drain("a", int, time.monotonic()))
        await asyncio.sleep(0)
        source.permits.release(2)
        await waiting
        assert source.hurried == []

    with_scheduler(test, ready=False)


def test_the_earliest_deadline_counts() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        source.permits.release()
        asked = [30.0, None, 10.0, 20.0]
        await asyncio.gather(*(scheduler.after_drain("a", int, deadline) for deadline in asked))
        assert source.deadlines == [None, 10.0]

    with_scheduler(test)


def test_a_cancelled_scrape_leaves_the_others_alone() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        one = asyncio.ensure_future(scheduler.after_drain("a", lambda: 1))
        other = asyncio.ensure_future(scheduler.after_drain("a", lambda: 2))
        await until(lambda: source.started == 2)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        source.permits.release()
        assert await other == 1

    with_scheduler(test)


def test_a_page_that_fails_fails_alone() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        source.permits.release()
        good = asyncio.ensure_future(scheduler.after_drain("good", lambda: 1))
        with pytest.raises(ZeroDivisionError):
            await scheduler.after_drain("bad", lambda: 1 // 0)
        assert await good == 1

    with_scheduler(test)


def test_a_failed_drain_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        source.failing = ValueError("broken")
        for _ in range(2):
            source.permits.release()
            with pytest.raises(ValueError, match="broken"):
                await scheduler.after_drain("a", int)
        assert caplog.text.count("draining the directory failed") == 1
        source.failing = None
        source.permits.release()
        assert await scheduler.after_drain("a", lambda: 7) == 7

    with_scheduler(test)


def test_not_ready_until_a_drain_has_succeeded() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        source.seconds = 0.001
        source.failing = ValueError("broken")
        source.permits.release()
        await until(lambda: source.started == 2)
        assert not scheduler.ready.is_set()
        source.failing = None
        source.permits.release()
        await asyncio.wait_for(scheduler.ready.wait(), 30)
        # No page before it is done, so it had no limit; the background's later ones have.
        assert source.deadlines[:2] == [None, None]
        source.permits.release()
        await until(lambda: source.started == 4)
        assert source.deadlines[2] is not None
        assert source.deadlines[2] <= time.monotonic() + module.BACKGROUND_SECONDS

    with_scheduler(test, ready=False)


def test_wake_ups_are_spaced_and_never_lost() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        source.permits.release(100)
        start = time.monotonic()
        for _ in range(1000):
            await asyncio.to_thread(scheduler.wake_soon)
        await until(lambda: source.started >= 2)
        # One more may follow, since a wake-up came during the last; never one a wake-up.
        assert source.started <= 2 + (time.monotonic() - start) / module.SPACING
        # A wake-up while a drain runs asks for another.
        while source.permits.acquire(blocking=False):
            pass
        before = source.started
        asked = asyncio.ensure_future(scheduler.after_drain("a", int))
        await until(lambda: source.started > before)
        running = source.started
        scheduler.wake()
        source.permits.release(2)
        await asked
        await until(lambda: source.started > running)

    with_scheduler(test)


def test_only_wake_ups_delay_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPACING", 3600.0)

    async def test(source: Source, scheduler: Scheduler) -> None:
        source.permits.release(100)
        # Each follows upon a drain: the very first, and a scrape's.
        scheduler.wake()
        await until(lambda: source.started == 2)
        await scheduler.after_drain("a", int)
        scheduler.wake()
        await asyncio.sleep(0)
        await scheduler.after_drain("a", int)
        assert source.started == 4

    async def after_a_scrape(source: Source, scheduler: Scheduler) -> None:
        source.permits.release(100)
        await scheduler.after_drain("a", int)
        scheduler.wake()
        await until(lambda: source.started == 3)

    with_scheduler(test)
    with_scheduler(after_a_scrape)


def test_what_a_drain_left_unread_is_read_by_the_next_one() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:
        source.everything = False
        source.permits.release()
        await scheduler.after_drain("a", int, 1.0)
        source.everything = True
        source.permits.release()
        await until(lambda: source.started == 3)

    with_scheduler(test)


def test_time_alone_drains_too() -> None:
    async def test(source: Source, scheduler: Scheduler) -> None:  # noqa: ARG001
        source.permits.release(10)
        await until(lambda: source.started >= 4)

    async def quick(source: Source, scheduler: Scheduler) -> None:
        source.seconds = 0.001
        scheduler.wake()  # the wait for the old period is over
        await test(source, scheduler)

    with_scheduler(quick)
