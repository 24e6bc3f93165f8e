"""Timers, and the load that an event belongs to."""

# ruff: noqa: ARG001 - a fixture is asked for by naming it

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from mx_emitter import enable_metrics, get_logger, metrics
from mx_emitter.context import load
from mx_emitter.log.exceptions import describe, without_secrets
from tests.support.emitting import Log

TIMERS: list[tuple[str, tuple[Any, ...], str, dict[str, Any], str | None, str | None]] = [
    (
        "time_source_attempt_phase",
        ("random", "receive"),
        "source_attempt_phase",
        {"policy": "random", "phase": "receive"},
        "ok",
        "error",
    ),
    (
        "time_load",
        ("vllm", "m", "main"),
        "load",
        {"engine": "vllm", "model": "m", "model_role": "main"},
        "success",
        "error",
    ),
    (
        "time_load_phase",
        ("vllm", None, "chain"),
        "load_phase",
        {"engine": "vllm", "model": None, "phase": "chain"},
        None,
        None,
    ),
    (
        "time_artifact_install_step",
        ("triton_cache", "primary", "extract"),
        "artifact_install_step",
        {"artifact": "triton_cache", "archive": "primary", "step": "extract"},
        None,
        None,
    ),
]
by_timer = pytest.mark.parametrize(
    ("name", "arguments", "event", "fields", "good", "bad"), TIMERS, ids=[t[0] for t in TIMERS]
)


def _outcome(outcome: str | None) -> dict[str, str]:
    return {} if outcome is None else {"outcome": outcome}


@by_timer
def test_logs_the_start_and_the_end(
    name: str,
    arguments: tuple[Any, ...],
    event: str,
    fields: dict[str, Any],
    good: str | None,
    bad: str | None,
    log: Log,
) -> None:
    with getattr(metrics, name)(*arguments, more=1) as span:
        assert log.own_fields() == [{"event": f"{event}_started", **fields, "more": 1}]
    assert log.own_fields()[1] == {
        "event": f"{event}_finished",
        **fields,
        "more": 1,
        **_outcome(good),
        "seconds": span.seconds,
    }
    assert span.seconds > 0


class Exit(BaseException):
    pass


@by_timer
def test_what_the_body_raises_passes_and_is_logged(
    name: str,
    arguments: tuple[Any, ...],
    event: str,
    fields: dict[str, Any],
    good: str | None,
    bad: str | None,
    log: Log,
) -> None:
    raised = Exit("no peer at https://user:key@host:8/a/b?sig=1 today")
    with pytest.raises(Exit) as caught, getattr(metrics, name)(*arguments) as span:
        raise raised
    assert caught.value is raised
    assert log.own_fields()[1] == {
        "event": f"{event}_finished",
        **fields,
        **_outcome(bad),
        "seconds": span.seconds,
        "error_type": "Exit",
        "error": "no peer at https://host:8/a/b today",
    }


@by_timer
def test_a_timer_that_is_used_again_says_nothing_of_the_last_time(
    name: str,
    arguments: tuple[Any, ...],
    event: str,
    fields: dict[str, Any],
    good: str | None,
    bad: str | None,
    log: Log,
) -> None:
    timer = getattr(metrics, name)(*arguments)
    with contextlib.suppress(Exit), timer:
        raise Exit("no peer")
    with timer:
        pass
    assert log.own_fields()[2:] == [
        {"event": f"{event}_started", **fields},
        {
            "event": f"{event}_finished",
            **fields,
            **_outcome(good),
            "seconds": timer.seconds,
        },
    ]


@by_timer
def test_timers_time_while_metrics_are_off(
    name: str,
    arguments: tuple[Any, ...],
    event: str,
    fields: dict[str, Any],
    good: str | None,
    bad: str | None,
    undecided: None,
) -> None:
    with getattr(metrics, name)(*arguments) as span:
        assert span.seconds == 0.0
    assert span.seconds > 0


def test_timers_are_decorators_too(log: Log) -> None:
    @metrics.time_load("vllm", "m", "main")
    def load(size: int) -> int:
        """Loads."""
        return size * 2

    assert (load(2), load(size=3)) == (4, 6)
    assert load.__doc__ == "Loads."
    assert log.names() == ["load_started", "load_finished"] * 2
    assert len({event["load_id"] for event in log.events()}) == 2


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_errors_are_bounded_and_never_raise() -> None:
    assert describe(ValueError("x" * 10**6)) == {"error_type": "ValueError", "error": "x" * 500}
    assert describe(Unprintable())["error"] == "<unprintable Unprintable>"
    assert describe(ValueError("\udc80"))["error"] == "\udc80"


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("no url here? none", "no url here? none"),
        ("https://h/p?token=abc&x=1", "https://h/p"),
        ("https://h?token=abc", "https://h"),
        ("'https://u:p@h:1/p'", "'https://h:1/p'"),
        ("https://token@h/p: 403", "https://h/p: 403"),
        ("https://u:p?q@h/p", "https://h/p"),
        ("s3://key:secret@bucket/a/b?v=1 and http://h/c?d", "s3://bucket/a/b and http://h/c"),
        (
            "exceeded with url: /path/x?token=abc (Caused by",
            "exceeded with url: /path/x (Caused by",
        ),
        ("https://h/org/model@main", "https://h/org/model@main"),
        ("mail me@host", "mail me@host"),
        ("https://h/p#token=abc", "https://h/p"),
        ("https://h/p?a=1#access_token=abc", "https://h/p"),
        ("https://h#token=abc", "https://h"),
        ("at h.example?sig=abc&x=1 now", "at h.example now"),
        ('{"url": "https://h/p?x=a", "status": 403}', '{"url": "https://h/p", "status": 403}'),
        ("https://h/p?token=a'b", "https://h/p"),
        ("https://user:p@ss@h/p", "https://h/p"),
        ("https://user:p'w\"@h/p", "https://h/p"),
        ("https://user:p/w@h/p", "https://h/p"),
        ("https://user:my pass@h/p", "https://h/p"),
        ("https:/user:pw@h/p", "https:/h/p"),
        ("https:///user:pw@h/p", "https:///h/p"),
        ("https:\\\\user:pw@h", "https:\\\\h"),
        ("https:user:pw@h/p", "h/p"),
        ("proxy user:pw@h:3128 refused", "proxy h:3128 refused"),
        ("https://user:pw@[::1]:8/p", "https://[::1]:8/p"),
        ("https://h:8080/org/model@main", "https://h:8080/org/model@main"),
        ("https://h: refused, mail me@host", "https://h: refused, mail me@host"),
        ("image nvcr.io/a/b:1@sha256:00ff", "image nvcr.io/a/b:1@sha256:00ff"),
        ("is a == b? c = d & e", "is a == b? c = d & e"),
        ("step 3/4 # of 7", "step 3/4 # of 7"),
    ],
)
def test_queries_and_credentials_of_urls_are_stripped(message: str, kept: str) -> None:
    assert without_secrets(message) == kept


# --------------------------------------------------------------------------------------
# load_id


def test_events_of_a_load_carry_its_id(log: Log) -> None:
    metrics.record_attempt("random", "before")
    with metrics.time_load("vllm", "m", "main"):
        metrics.record_attempt("random", "in")
        get_logger().info("own")
        with metrics.time_load("vllm", "m", "draft"):
            metrics.record_attempt("random", "in_inner")
        metrics.record_attempt("random", "in_again")
    metrics.record_attempt("random", "after")
    ids = [event.get("load_id") for event in log.events()]
    outer, inner = ids[1], ids[4]
    assert None not in (outer, inner)
    assert outer != inner
    assert ids == [None, outer, outer, outer, inner, inner, inner, outer, outer, None]


def test_loads_of_two_threads_are_told_apart(log: Log) -> None:
    both = threading.Barrier(2)

    def load(name: str) -> None:
        with metrics.time_load("vllm", name, "main"):
            both.wait()
            metrics.record_attempt("random", name)
            both.wait()

    threads = [threading.Thread(target=load, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loads = {event["model"]: event["load_id"] for event in log.events("load_started")}
    attempts = {event["result"]: event["load_id"] for event in log.events("source_attempted")}
    assert loads == attempts
    assert loads["a"] != loads["b"]


def test_loads_of_two_tasks_are_told_apart(log: Log) -> None:
    async def load(name: str) -> None:
        with metrics.time_load("vllm", name, "main"):
            await asyncio.sleep(0)
            metrics.record_attempt("random", name)

    async def both() -> None:
        await asyncio.gather(load("a"), load("b"))

    asyncio.run(both())
    loads = {event["model"]: event["load_id"] for event in log.events("load_started")}
    assert loads == {event["result"]: event["load_id"] for event in log.events("source_attempted")}


def test_a_load_may_end_in_another_context(log: Log) -> None:
    timer = metrics.time_load("vllm", "m", "main")
    threading_context = threading.Thread(target=timer.__enter__)
    threading_context.start()
    threading_context.join()
    timer.__exit__(None, None, None)
    metrics.record_attempt("random", "after")
    started, finished, after = log.events()
    assert started["load_id"] == finished["load_id"]
    assert "load_id" not in after


def test_close_to_the_recursion_limit_no_load_is_left_running(log: Log) -> None:
    raised: list[Any] = []

    def descend() -> None:
        nonlocal raised
        timer = metrics.time_load("vllm", "m", "main")
        try:
            with timer:
                pass
        except RecursionError as error:
            # There was no room to call it at all. Once it is called, it raises nothing.
            raised += (error.__traceback__,)
        descend()

    with contextlib.suppress(RecursionError):
        descend()
    metrics.record_nixl_receive("complete")
    in_a_thread = threading.Thread(target=metrics.record_nixl_receive, args=("complete",))
    in_a_thread.start()
    in_a_thread.join()
    assert [trace.tb_next for trace in raised] == [None] * len(raised)
    assert all("load_id" not in event for event in log.events("nixl_received"))
    assert set(log.dropped()) == {"unencodable"}
    log.check_books()


# --------------------------------------------------------------------------------------
# Timers that are used as nobody should


def left_running() -> set[load.Load]:
    return {each for each in load._running if each.running}


def by_load(log: Log) -> list[tuple[str, int | None]]:
    """Events, and the number of the load that they belong to."""
    numbers: dict[str, int] = {}
    found = []
    for event in log.events():
        load_id = event.get("load_id")
        number = None if load_id is None else numbers.setdefault(load_id, len(numbers))
        found.append((event["event"].removeprefix("load_"), number))
    return found


def test_a_load_within_itself(log: Log) -> None:
    timer = metrics.time_load("vllm", "m", "main")
    with timer:
        with timer:
            get_logger().info("inner")
        get_logger().info("outer")
    get_logger().info("after")
    assert by_load(log) == [
        ("started", 0),
        ("started", 1),
        ("inner", 1),
        ("finished", 1),
        ("outer", 0),
        ("finished", 0),
        ("after", None),
    ]
    assert left_running() == set()


@pytest.mark.parametrize("name", ["time_load", "time_load_phase", "time_unknown"])
def test_a_timer_that_is_left_twice_or_was_not_entered(name: str, log: Log) -> None:
    timer = getattr(metrics, name)("vllm", "m", "main")
    timer.__exit__(None, None, None)
    assert log.segments() == []
    with timer:
        pass
    count, seconds = len(log.events()), timer.seconds
    timer.__exit__(None, None, None)
    timer.__exit__(ValueError, ValueError("no"), None)
    get_logger().info("after")
    assert len(log.events()) == count + 1
    assert timer.seconds == seconds
    assert "load_id" not in log.events()[-1]
    assert left_running() == set()


def test_loads_that_are_left_in_another_order(log: Log) -> None:
    first, second = (metrics.time_load("vllm", name, "main") for name in "ab")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    get_logger().info("second")
    second.__exit__(None, None, None)
    get_logger().info("after")
    assert by_load(log) == [
        ("started", 0),
        ("started", 1),
        ("finished", 0),
        ("second", 1),
        ("finished", 1),
        ("after", None),
    ]
    assert left_running() == set()


def test_one_timer_in_two_threads_ends_the_load_of_each(log: Log) -> None:
    timer = metrics.time_load("vllm", "m", "main")
    entered, ended = threading.Barrier(2), threading.Event()

    def other() -> None:
        timer.__enter__()
        entered.wait(30)
        ended.wait(30)
        timer.__exit__(None, None, None)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(30)
    with timer:
        get_logger().info("mine")
    ended.set()
    thread.join(30)
    assert by_load(log) == [
        ("started", 0),
        ("started", 1),
        ("mine", 1),
        ("finished", 1),
        ("finished", 0),
    ]
    assert left_running() == set()


def test_a_task_that_outlives_its_load_is_none_of_it(log: Log) -> None:
    async def main() -> None:
        over = asyncio.Event()

        async def later() -> None:
            await over.wait()
            get_logger().info("later")

        with metrics.time_load("vllm", "m", "main"):
            task = asyncio.create_task(later())
            await asyncio.sleep(0)
        over.set()
        await task

    asyncio.run(main())
    assert by_load(log)[-1] == ("later", None)


def test_a_load_that_was_interrupted_as_it_began_has_ended(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the handler of a signal that raises."""
    begin = load.begin

    def interrupted(each: load.Load) -> None:
        begin(each)
        raise KeyboardInterrupt

    monkeypatch.setattr(load, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        metrics.time_load("vllm", "m", "main").__enter__()
    get_logger().info("after")
    (finished, after) = log.events()
    assert (finished["event"], finished["error_type"]) == ("load_finished", "KeyboardInterrupt")
    assert "load_id" not in after
    assert left_running() == set()


def test_fields_of_a_timer_are_its_own_each_time(log: Log) -> None:
    timer = metrics.time_source_attempt_phase("random", "receive")
    with pytest.raises(ValueError, match="no"), timer:
        raise ValueError("no")
    with timer:
        pass
    *_, good = log.own_fields()
    assert good["outcome"] == "ok"
    assert "error" not in good


def test_switched_off_within_a_load_it_is_over(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with metrics.time_load("vllm", "m", "main"):
        monkeypatch.setenv("MX_METRICS_ENABLED", "0")
        assert enable_metrics() is False
    assert left_running() == set()
    assert log.names() == ["load_started"]
