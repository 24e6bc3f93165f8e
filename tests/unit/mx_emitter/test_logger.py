"""The structlog logger of engines' own events."""

# ruff: noqa: ARG001 - a fixture is asked for by naming it

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog

from mx_emitter import get_logger, metrics
from tests.support.emitting import Log


@pytest.mark.parametrize(
    ("method", "level"),
    [
        ("debug", "debug"),
        ("info", "info"),
        ("msg", "info"),
        ("warning", "warning"),
        ("warn", "warning"),
        ("error", "error"),
        ("critical", "critical"),
        ("fatal", "critical"),
        ("exception", "error"),
    ],
)
def test_levels(method: str, level: str, log: Log) -> None:
    getattr(get_logger(), method)("happened", answer=42)
    (event,) = log.events()
    assert (event["event"], event["level"], event["answer"]) == ("happened", level, 42)


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (logging.DEBUG, "debug"),
        (logging.ERROR, "error"),
        ("WARN", "warning"),
        ("critical", "critical"),
        (17, "info"),
        ("loud", "info"),
        (None, "info"),
    ],
)
def test_log_takes_numbers_and_names(given: Any, level: str, log: Log) -> None:
    get_logger().log(given, "happened")
    assert log.events()[0]["level"] == level


@pytest.mark.parametrize(
    ("args", "name", "kept"),
    [
        (("%s of %d", "a", 3), "a of 3", None),
        (("%(x)s", {"x": 1}), "1", None),
        (("100%",), "100%", None),
        (("100% sure", 1, 2), "100% sure", [1, 2]),
        (("100%!", 1), "100%!", [1]),
        (("%d", "text"), "%d", ["text"]),
        ((3, 4), "3", [4]),
        (("\udc80",), r"\udc80", None),
        (("",), "", None),
        ((), "None", None),
    ],
)
def test_names_are_formatted_and_never_raise(
    args: tuple[Any, ...], name: str, kept: Any, log: Log
) -> None:
    get_logger().info(*args)
    (event,) = log.events()
    assert event["event"] == name
    assert event.get("positional_args") == kept
    log.check_books()


def test_an_event_is_named_by_position_or_by_keyword(log: Log) -> None:
    get_logger().info(event="by_keyword")
    get_logger().info("by_position", event="field")
    first, second = log.events()
    assert first["event"] == "by_keyword"
    assert (second["event"], second["field_event"]) == ("by_position", "field")


def test_reserved_keys_are_kept_under_another_name(log: Log) -> None:
    get_logger().bind(proc="x", level=1).info(
        "happened", seq=-1, timestamp=None, scheme="s", rank=7
    )
    (event,) = log.events()
    assert event["level"] == "info"
    assert {key: value for key, value in event.items() if key.startswith("field_")} == {
        "field_proc": "x",
        "field_level": 1,
        "field_seq": -1,
        "field_timestamp": None,
        "field_scheme": "s",
        "field_rank": 7,
    }
    log.check_books()


def test_binding(log: Log) -> None:
    base = get_logger(engine="vllm")
    base.bind(model="m").info("bound")
    base.bind(model="m").unbind("engine").info("unbound")
    base.info("base")
    base.new(other=1).info("new")
    assert log.own_fields() == [
        {"event": "bound", "engine": "vllm", "model": "m"},
        {"event": "unbound", "model": "m"},
        {"event": "base", "engine": "vllm"},
        {"event": "new", "other": 1},
    ]


@pytest.mark.parametrize(
    "name",
    [
        "logger",
        "processors",
        "wrapper_class",
        "context_class",
        "cache_logger_on_first_use",
        "logger_factory_args",
        "self",
        "context",
        "level",
        "event",
    ],
)
def test_any_name_may_be_bound(name: str, log: Log) -> None:
    """Also those of structlog's own parameters."""
    get_logger(**{name: "x"}).info("first")
    get_logger().bind(**{name: "x"}).info("second")
    get_logger(other=1).new(**{name: "x"}).info("third")
    get_logger(**{name: "x"}).unbind(name, "missing").info("fourth")
    get_logger().info("fifth", **{name: "x"})
    shown = f"field_{name}" if name in ("level", "event") else name
    fields = [
        {key: event[key] for key in event.keys() & {shown, "other"}} for event in log.events()
    ]
    assert fields == [{shown: "x"}] * 3 + [{}, {shown: "x"}]


def test_a_new_context_leaves_the_old_one(log: Log) -> None:
    old = get_logger(engine="vllm")
    old.new(model="m")
    old.info("x")
    assert log.own_fields() == [{"event": "x", "engine": "vllm"}]


def test_log_without_a_level_or_a_name(log: Log) -> None:
    get_logger().log()
    get_logger().log("error")
    assert [(event["level"], event["event"]) for event in log.events()] == [
        ("info", "None"),
        ("error", "None"),
    ]


def test_values_that_json_cannot_hold(log: Log) -> None:
    get_logger().info("odd", nan=float("nan"), inside=[{"x": float("inf")}], raw=b"x", key={1: {2}})
    assert log.own_fields() == [
        {"event": "odd", "nan": "nan", "inside": [{"x": "inf"}], "raw": "b'x'", "key": {"1": "{2}"}}
    ]


def test_tracebacks(log: Log) -> None:
    try:
        raise ValueError("at https://u:p@h/x?key=1")
    except ValueError as error:
        get_logger().exception("failed")
        get_logger().error("failed", exc_info=error)
        get_logger().error("failed", exc_info=(type(error), error, None))
        get_logger().error("failed", exc_info=False)
    get_logger().exception("nothing is being handled")
    *with_text, without, nothing = log.events()
    for event in with_text:
        assert event["exception"].startswith("Traceback (most recent call last)")
        assert event["exception"].endswith("ValueError: at https://h/x")
    assert "exception" not in without
    assert "exception" not in nothing


def test_it_is_a_structlog_logger(log: Log) -> None:
    assert isinstance(get_logger(), structlog.BoundLoggerBase)


def test_neither_configuration_reaches_the_other(log: Log, capsys: Any) -> None:
    before = structlog.get_config()
    ours = get_logger(ours=1)
    assert structlog.get_config() == before

    def refuse(logger: Any, method: str, event: Any) -> Any:
        raise AssertionError("the application's processors got our event")

    try:
        structlog.configure(
            processors=[refuse],
            wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
            cache_logger_on_first_use=True,
        )
        with structlog.testing.capture_logs() as captured:
            structlog.contextvars.bind_contextvars(request="r")
            ours.info("old logger")
            get_logger().info("new logger")
            metrics.record_nixl_receive("empty")
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    assert captured == []
    assert log.own_fields() == [
        {"event": "old logger", "ours": 1, "request": "r"},
        {"event": "new logger", "request": "r"},
        {"event": "nixl_received", "result": "empty"},
    ]
    assert capsys.readouterr() == ("", "")


def test_while_metrics_are_off_events_go_nowhere(undecided: None, capsys: Any) -> None:
    get_logger().critical("nobody hears", exc_info=True)
    assert capsys.readouterr() == ("", "")
