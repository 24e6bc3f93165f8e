"""Which load an event belongs to: across threads, and beside OpenTelemetry's traces."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mx_emitter import metrics
from tests.support.emitting import Log, Program


def in_a_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


class Steps:
    """A thread that does what it is told, and may live for longer than a load."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self(lambda: None)

    def __call__(self, function: Callable[[], Any]) -> Any:
        return self._pool.submit(function).result()

    def end(self) -> None:
        self._pool.shutdown()


def loads_of(log: Log) -> dict[str, str | None]:
    """The load's model by the result of each receive; None where it belongs to none."""
    models = {event["load_id"]: event["model"] for event in log.events("load_started")}
    receives = log.events("nixl_received")
    return {event["result"]: models.get(event.get("load_id", "")) for event in receives}


def received(result: str) -> Callable[[], None]:
    return lambda: metrics.record_nixl_receive(result)


def test_threads_that_a_load_starts_are_its_own(log: Log) -> None:
    with metrics.time_load("vllm", "a", "main"):
        in_a_thread(received("thread"))
        with ThreadPoolExecutor(2) as pool:
            pool.submit(received("pool")).result()
        with metrics.time_load_phase("vllm", "a", "artifact_install"):
            in_a_thread(lambda: in_a_thread(received("of a thread")))
    in_a_thread(received("after"))
    assert loads_of(log) == {"thread": "a", "pool": "a", "of a thread": "a", "after": None}


def test_threads_that_were_there_before_are_not(log: Log) -> None:
    """The publisher of an earlier load reports while the next one runs."""
    before = Steps()
    with metrics.time_load("vllm", "a", "main"):
        during = Steps()
        before(received("before"))
        during(received("during"))
    during(received("after"))
    with metrics.time_load("vllm", "b", "draft"):
        during(received("the next"))
    before.end()
    during.end()
    assert loads_of(log) == {"before": None, "during": "a", "after": None, "the next": None}


def test_of_two_loads_at_once_none_is_taken(log: Log) -> None:
    with metrics.time_load("vllm", "a", "main"):
        loading = Steps()
        other = metrics.time_load("vllm", "b", "draft")
        context = loading(contextvars.copy_context)
        loading(lambda: context.run(other.__enter__))
        in_a_thread(received("either"))
        metrics.record_nixl_receive("mine")
        loading(lambda: context.run(received("theirs")))
        loading(lambda: context.run(other.__exit__, None, None, None))
        in_a_thread(received("mine alone"))
    loading.end()
    assert loads_of(log) == {"either": None, "mine": "a", "theirs": "b", "mine alone": "a"}


def test_a_load_that_fails_is_over_too(log: Log) -> None:
    with pytest.raises(KeyboardInterrupt), metrics.time_load("vllm", "a", "main"):
        raise KeyboardInterrupt
    in_a_thread(received("after"))
    assert loads_of(log) == {"after": None}


def test_threads_of_a_forked_child_are_not_its_parents(program: Program) -> None:
    program.run(
        """
import os, threading
from mx_emitter import metrics
with metrics.time_load("vllm", "a", "main"):
    pid = os.fork()
    if pid == 0:
        metrics.record_nixl_receive("child")
        thread = threading.Thread(target=metrics.record_nixl_receive, args=("its thread",))
        thread.start(); thread.join()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    )
    assert loads_of(program.log) == {"child": "a", "its thread": None}


# --------------------------------------------------------------------------------------
# OpenTelemetry


class Trace:
    """What stands for ``opentelemetry.trace``: its current span, or what is wrong with it."""

    is_valid = True
    trace_id = 0xABC
    span_id = 0x12

    def get_current_span(self) -> Any:
        return self

    def get_span_context(self) -> Any:
        return self


def test_events_of_a_load_name_the_current_span(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", Trace())  # type: ignore[arg-type]
    metrics.record_nixl_receive("before")
    with metrics.time_load("vllm", "a", "main"):
        metrics.record_nixl_receive("within", span_id="theirs")
    before, started, within, finished = log.events()
    assert "trace_id" not in before
    assert started["trace_id"] == within["trace_id"] == finished["trace_id"] == f"{0xABC:032x}"
    assert started["span_id"] == finished["span_id"] == "0000000000000012"
    assert within["span_id"] == "theirs"


@pytest.mark.parametrize("kind", ["no span", "half imported", "raising"])
def test_without_a_span_events_name_none(
    kind: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace: Any = Trace()
    if kind == "no span":
        trace.is_valid = False
    elif kind == "half imported":
        trace = object()
    else:
        trace.trace_id = "abc"
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    with metrics.time_load("vllm", "a", "main"):
        pass
    assert all("trace_id" not in event for event in log.events())
    assert log.names() == ["load_started", "load_finished"]


def test_the_keys_of_a_line_stand_in_the_order_of_the_format(log: Log) -> None:
    metrics.record_attempt("random", "success")
    with metrics.time_load("vllm", "a", "main"):
        metrics.record_attempt("random", "success")
    outside, inside = log.events("source_attempted")
    every = ["event", "timestamp", "level", "proc", "seq", "rank", "scheme"]
    assert list(outside) == [*every, "policy", "result"]
    assert list(inside) == [*every, "policy", "result", "load_id"]
