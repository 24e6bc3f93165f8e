"""That every event goes through the one structlog logger, and comes out as readers accept it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from mx_emitter import copy_to_log, get_logger, metrics, processors
from mx_exporter.core.decode import Decoder, Rejected
from mx_log.schema import EVENTS, HEADERS
from tests.benchmarks import one_load
from tests.support.emitting import Log

#: What may stand for any field, and fits none or few of the schema's.
ODD: list[Any] = [None, 404, 1.5, True, "", "text", [], [1], {"a": 1}, float("nan"), b"x", object()]


Replace = Callable[[int, Callable[..., Any]], None]


@pytest.fixture
def replace() -> Iterator[Replace]:
    """Replaces one of the processors."""
    before = list(processors.PROCESSORS)
    yield processors.PROCESSORS.__setitem__  # type: ignore[misc]
    processors.PROCESSORS[:] = before


def rejected(log: Log) -> list[Any]:
    """What the exporter's reader says of lines that it does not take."""
    lines = [line for path in log.segments() for line in path.read_bytes().splitlines() if line]
    return [each for each in Decoder(EVENTS.values()).decode(lines) if isinstance(each, Rejected)]


def test_one_list_of_processors_sees_every_event_of_a_load(log: Log, replace: Replace) -> None:
    seen: list[str] = []
    first = processors.PROCESSORS[0]

    def counting(logger: Any, method_name: str, event_dict: Any) -> Any:
        seen.append(event_dict["event"])
        return first(logger, method_name, event_dict)

    replace(0, counting)
    one_load.load(metrics)
    get_logger().info("own")
    metrics.record_of_a_newer_client()  # type: ignore[attr-defined]
    assert seen == log.names()
    assert len(seen) == 36


def test_recorders_events_are_event_dicts(log: Log, replace: Replace) -> None:
    captured = structlog.testing.LogCapture()
    replace(0, captured)
    metrics.record_attempt("random", 1, peer="a")
    with metrics.time_load_phase("vllm", None, "chain"):
        pass
    get_logger(engine="vllm").error("own")
    seconds = captured.entries[2].pop("seconds")
    assert seconds > 0
    assert captured.entries == [
        {"event": "source_attempted", "policy": "random", "result": 1, "peer": "a", **INFO},
        {"event": "load_phase_started", "engine": "vllm", "model": None, "phase": "chain", **INFO},
        {"event": "load_phase_finished", "engine": "vllm", "model": None, "phase": "chain", **INFO},
        {"event": "own", "engine": "vllm", "log_level": "error"},
    ]
    assert not log.directory.exists()


INFO = {"log_level": "info"}


def test_structlogs_own_loggers_can_use_the_processors_and_the_sink(log: Log) -> None:
    from mx_emitter.log.sink import sink

    logger = structlog.wrap_logger(
        sink,
        processors=processors.PROCESSORS,
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    logger.bind(answer=42).warning("own")
    assert [(each["event"], each["level"], each["answer"]) for each in log.events()] == [
        ("own", "warning", 42)
    ]


def test_a_processor_that_raises_costs_its_event_which_is_counted(
    log: Log, replace: Replace
) -> None:
    def refuse(*_args: Any) -> Any:
        raise ValueError("no")

    before = list(processors.PROCESSORS)
    replace(0, refuse)
    metrics.record_attempt("random", "success")
    processors.PROCESSORS[:] = before
    metrics.record_nixl_receive("complete")
    assert log.dropped() == {"unencodable": 1}
    assert log.names() == ["events_dropped", "nixl_received"]


# --------------------------------------------------------------------------------------
# Fields that a caller adds


@pytest.mark.parametrize(
    "name", sorted({field.name for event in EVENTS.values() for field in event.fields})
)
def test_a_further_field_of_any_name_of_the_schema_breaks_no_line(name: str, log: Log) -> None:
    for value in ODD:
        further = {name: value}
        for call in (
            lambda more: metrics.record_attempt("random", "success", **more),
            lambda more: metrics.observe_load_seconds("vllm", "m", "main", "error", 1, **more),
            lambda more: metrics.observe_load_phase_seconds("vllm", "m", "chain", 1, **more),
            lambda more: metrics.record_artifact_install_bytes("a", "b", 1, **more),
            lambda more: metrics.observe_candidate_loads([one_load.PEERS[0]], **more),
            lambda more: metrics.time_load("vllm", "m", "main", **more).__call__(int)(),
            lambda more: metrics.time_source_attempt_phase("p", "receive", **more)(int)(),
            lambda more: metrics.time_unknown(**more)(int)(),
        ):
            call(further)
    assert rejected(log) == []
    names = log.names()
    assert names.count("load_started") + names.count("recorder_called") >= len(ODD)


def test_a_field_named_as_one_of_the_events_own_is_renamed(log: Log) -> None:
    metrics.observe_load_seconds("vllm", "m", "main", "success", 1, error=404, peer="a")
    metrics.record_artifact_install_bytes("a", "b", 10, bytes=99, field_bytes=98)
    metrics.record_attempt("random", "success", model="m")
    with metrics.time_load("vllm", "m", "main", error=None, seconds=5, timed=True):
        pass
    finished, extracted, attempted, start, end = log.own_fields()
    assert (finished["field_error"], finished["peer"]) == (404, "a")
    assert "error" not in finished
    assert extracted["bytes"] == 10
    assert (extracted["field_bytes"], extracted["field_field_bytes"]) == (98, 99)
    assert attempted["model"] == "m"
    for event in (start, end):
        assert (event["field_error"], event["field_seconds"], event["field_timed"]) == (
            None,
            5,
            True,
        )
        assert "timed" not in event
    assert "seconds" not in start
    assert end["seconds"] < 5


# --------------------------------------------------------------------------------------
# Events of an engine that take a name of ours


@pytest.mark.parametrize("name", EVENTS)
def test_no_event_of_an_engine_breaks_a_line(name: str, log: Log) -> None:
    logger = get_logger()
    logger.info(name)
    for value in ODD:
        logger.info(name, **{field.name: value for field in EVENTS[name].fields})
        logger.info(name, **{field.name: value for field in EVENTS[name].fields if field.required})
    assert rejected(log) == []
    assert len(log.lines()) == 2 + 2 * len(ODD)
    if name in HEADERS or name == "events_dropped":
        assert set(log.names()) == {"engine_event"}
        assert {event["field_event"] for event in log.events()} == {name}


def test_an_event_of_an_engine_that_fits_goes_by_our_name(log: Log) -> None:
    get_logger(engine="sglang").info("load_started", model="", model_role=1, own=[1])
    get_logger().info("load_started", model="m")
    get_logger().info("candidate_loads_seen", loads=({"source_worker_id": "a", "load": None},))
    get_logger().info("candidate_loads_seen", loads=[{"source_worker_id": "a", "load": 0.5}])
    get_logger().info("load_phase_finished", engine="e", phase="p", error=None, error_type="E")
    assert log.own_fields() == [
        {"event": "load_started", "engine": "sglang", "model": None, "model_role": "1", "own": [1]},
        {"event": "engine_event", "field_event": "load_started", "model": "m"},
        {
            "event": "engine_event",
            "field_event": "candidate_loads_seen",
            "loads": [{"source_worker_id": "a", "load": None}],
        },
        {"event": "candidate_loads_seen", "loads": [{"source_worker_id": "a", "load": 0.5}]},
        {
            "event": "load_phase_finished",
            "engine": "e",
            "phase": "p",
            "field_error": None,
            "error_type": "E",
        },
    ]


# --------------------------------------------------------------------------------------
# What structlog's users know


def test_methods_for_coroutines(log: Log) -> None:
    async def main() -> None:
        logger = get_logger(engine="vllm")
        structlog.contextvars.bind_contextvars(request="r")
        for level in ("debug", "info", "warning", "error", "critical"):
            await getattr(logger, f"a{level}")("%s", level)
        await logger.alog("warn", "log")
        for name in ("amsg", "awarn", "afatal"):
            await getattr(logger, name)(name)
        try:
            raise ValueError("no")
        except ValueError:
            await logger.aexception("failed", attempt=1)

    asyncio.run(main())
    *events, failed = log.events()
    assert [(event["event"], event["level"]) for event in events] == [
        ("debug", "debug"),
        ("info", "info"),
        ("warning", "warning"),
        ("error", "error"),
        ("critical", "critical"),
        ("log", "warning"),
        ("amsg", "info"),
        ("awarn", "warning"),
        ("afatal", "critical"),
    ]
    assert failed["exception"].endswith("ValueError: no")
    assert (failed["level"], failed["attempt"]) == ("error", 1)
    assert all(event["request"] == "r" for event in log.events())


def test_only_an_engines_events_carry_what_is_bound_to_the_context(log: Log) -> None:
    with structlog.contextvars.bound_contextvars(request="r", level=1, own="context", event="e"):
        metrics.record_nixl_receive("complete")
        with metrics.time_load("vllm", "m", "main"):
            get_logger().info("own", own="event")
    received, started, own, finished = log.own_fields()
    assert received == {"event": "nixl_received", "result": "complete"}
    assert "request" not in {**started, **finished}
    assert own == {"event": "own", "own": "event", "request": "r", "field_level": 1}


def test_an_engines_own_chain_can_copy_its_events_to_the_log(log: Log, capsys: Any) -> None:
    logger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stdout),
        processors=[
            structlog.contextvars.merge_contextvars,
            copy_to_log,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            copy_to_log,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    try:
        raise ValueError("at https://u:p@h/x")
    except ValueError:
        logger.bind(engine="vllm").exception("failed", load_id=7)
    logger.info("load_finished")
    early, late, misfit, _ = log.own_fields()
    shown = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (shown["event"], shown["engine"], shown["load_id"]) == ("failed", "vllm", 7)
    for event in (early, late):
        assert (event["event"], event["engine"], event["field_load_id"]) == ("failed", "vllm", 7)
        assert event["exception"].endswith("ValueError: at https://h/x")
    assert late["field_timestamp"] == shown["timestamp"]
    assert [event["level"] for event in log.events()] == ["error", "error", "info", "info"]
    assert misfit == {"event": "engine_event", "field_event": "load_finished"}


def test_a_chain_that_gives_the_processor_anything_goes_on(log: Log) -> None:
    for odd in ({}, {"event": None}, {"event": "x", "level": object()}, {1: 2, "event": "x"}):
        assert copy_to_log(None, "odd", dict(odd)) == odd  # type: ignore[arg-type]
    assert rejected(log) == []
    assert len(log.names()) + sum(log.dropped().values()) >= 4
