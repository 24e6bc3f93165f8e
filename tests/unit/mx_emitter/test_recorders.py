"""Every recorder: what it logs, and that it never raises, whatever it is given."""

# ruff: noqa: ARG001 - a fixture is asked for by naming it

from __future__ import annotations

import contextlib
import copy
import decimal
import fractions
import inspect
import logging
import os
import pickle
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mx_emitter import get_logger, metrics
from mx_emitter.modelexpress.log_capture import Capture
from mx_emitter.recorders import Recorders
from mx_log import schema
from mx_log.schema import EVENTS, TEXT
from tests.support.emitting import Log

INF = float("inf")
NAN = float("nan")


class Candidate:
    """As a protobuf message with an optional ``source_load``."""

    def __init__(self, worker_id: Any, load: Any = None) -> None:
        self.worker_id = worker_id
        self.source_load = 0.0 if load is None else load
        self._published = load is not None

    def HasField(self, name: str) -> bool:
        assert name == "source_load"
        return self._published


# recorder, arguments by name, event, fields that it logs
RECORDERS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "record_selection",
        {"policy": "random", "source_worker_id": "ab12"},
        "source_selected",
        {"policy": "random", "source_worker_id": "ab12"},
    ),
    (
        "record_attempt",
        {"policy": "random", "result": "success"},
        "source_attempted",
        {"policy": "random", "result": "success"},
    ),
    (
        "record_metadata_failure",
        {"policy": "random"},
        "metadata_lookup_failed",
        {"policy": "random"},
    ),
    (
        "record_list_sources",
        {"policy": "random", "result": "ok"},
        "sources_listed",
        {"policy": "random", "result": "ok"},
    ),
    ("record_nixl_error", {"kind": "timeout"}, "nixl_failed", {"kind": "timeout"}),
    ("record_nixl_receive", {"result": "partial"}, "nixl_received", {"result": "partial"}),
    (
        "observe_candidates",
        {"policy": "random", "stage": "listed", "count": 3},
        "candidates_counted",
        {"policy": "random", "stage": "listed", "count": 3},
    ),
    (
        "observe_selection_seconds",
        {"policy": "random", "seconds": 1e-5},
        "sources_ordered",
        {"policy": "random", "seconds": 1e-5},
    ),
    (
        "observe_candidate_loads",
        {"ordered": [Candidate("a", 0.25), Candidate("b"), Candidate(7, 1)]},
        "candidate_loads_seen",
        {
            "loads": [
                {"source_worker_id": "a", "load": 0.25},
                {"source_worker_id": "b", "load": None},
                {"source_worker_id": "7", "load": 1.0},
            ]
        },
    ),
    (
        "observe_transfer_seconds",
        {"policy": "random", "outcome": "retry", "seconds": 2.5},
        "transfer_finished",
        {"policy": "random", "outcome": "retry", "seconds": 2.5},
    ),
    (
        "observe_source_attempt_phase_seconds",
        {"policy": "random", "phase": "receive", "outcome": "ok", "seconds": 2.5},
        "source_attempt_phase_finished",
        {"policy": "random", "phase": "receive", "outcome": "ok", "seconds": 2.5},
    ),
    (
        "observe_load_seconds",
        {
            "engine": "vllm",
            "model": "org/m",
            "model_role": "main",
            "outcome": "success",
            "seconds": 40,
        },
        "load_finished",
        {
            "engine": "vllm",
            "model": "org/m",
            "model_role": "main",
            "outcome": "success",
            "seconds": 40,
            "timed": False,
        },
    ),
    (
        "observe_load_phase_seconds",
        {"engine": "vllm", "model": "org/m", "phase": "chain", "seconds": 30},
        "load_phase_finished",
        {"engine": "vllm", "model": "org/m", "phase": "chain", "seconds": 30, "timed": False},
    ),
    (
        "observe_artifact_install_step_seconds",
        {"artifact": "triton_cache", "archive": "primary", "step": "extract", "seconds": 1.5},
        "artifact_install_step_finished",
        {"artifact": "triton_cache", "archive": "primary", "step": "extract", "seconds": 1.5},
    ),
    (
        "record_artifact_install_bytes",
        {"artifact": "triton_cache", "archive": "primary", "nbytes": 4096},
        "artifact_extracted",
        {"artifact": "triton_cache", "archive": "primary", "bytes": 4096},
    ),
]
by_name = pytest.mark.parametrize(
    ("name", "arguments", "event", "fields"), RECORDERS, ids=[each[0] for each in RECORDERS]
)


@by_name
def test_logs_its_event(
    name: str, arguments: dict[str, Any], event: str, fields: dict[str, Any], log: Log
) -> None:
    record = getattr(metrics, name)
    record(*arguments.values())
    record(**arguments)
    expected = {"event": event, **fields}
    assert log.own_fields() == [expected, expected]
    assert list(fields) == [field.name for field in EVENTS[event].fields][: len(fields)]


@by_name
def test_arguments_may_be_given_by_position_or_by_name_or_both(
    name: str, arguments: dict[str, Any], event: str, fields: dict[str, Any], log: Log
) -> None:
    for count in range(len(arguments) + 1):
        by_name = dict(list(arguments.items())[count:])
        getattr(metrics, name)(*list(arguments.values())[:count], **by_name)
    assert log.own_fields() == [{"event": event, **fields}] * (len(arguments) + 1)


@by_name
def test_takes_the_clients_arguments_by_the_clients_names(
    name: str, arguments: dict[str, Any], event: str, fields: dict[str, Any]
) -> None:
    parameters = list(inspect.signature(getattr(metrics, name)).parameters.values())
    assert [each.name for each in parameters[:-1]] == list(arguments)
    assert parameters[-1].kind is inspect.Parameter.VAR_KEYWORD


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Hostile(Unprintable):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    __index__ = __len__ = __iter__ = __float__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")


class Text(str):
    def __str__(self) -> str:
        return "text of its own"


class Faceless:
    """As a proxy that cannot reach what it stands for: ``isinstance`` raises."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no class")

    def __str__(self) -> str:
        return "faceless"


class RaisingText(str):
    """What a ``__str__`` may return."""

    def _refuse(self, *_args: Any) -> Any:
        raise RuntimeError("no")

    isascii = encode = strip = __mod__ = __hash__ = __eq__ = _refuse  # type: ignore[assignment]


class Subtle:
    def __str__(self) -> str:
        return RaisingText("subtle")


class NamelessKind(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise RuntimeError("no name")


class Nameless(Unprintable, metaclass=NamelessKind):
    pass


class Endless(dict[Any, Any]):
    """Its text and its items call themselves."""

    def items(self) -> Any:
        return self.items()

    def __str__(self) -> str:
        return str(self)

    __repr__ = __str__


class RaisingItems(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")

    def __str__(self) -> str:
        return "no items"


class raising_bool(Unprintable):
    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


raising_bool.__name__ = "bool_"


def dead() -> Any:
    """A proxy of what is no more: whatever is asked of it raises, its class included."""
    return weakref.proxy(Unprintable())


INSIDE = {"a": [dead()], "b": 1}
DEAD = f"<unprintable {type(dead()).__name__}>"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def shared() -> list[Any]:
    value: list[Any] = [1]
    for _ in range(100):
        value = [value, value]
    return value


# Values, and their text where ``str`` gives one. All are legal anywhere.
HOSTILE: dict[str, tuple[Any, str | None]] = {
    "none": (None, "None"),
    "true": (True, "True"),
    "nan": (NAN, "nan"),
    "inf": (INF, "inf"),
    "minus-inf": (-INF, "-inf"),
    "negative": (-1, "-1"),
    "beyond-64-bits": (2**64, str(2**64)),
    "below-64-bits": (-(2**63) - 1, str(-(2**63) - 1)),
    "int-of-5000-digits": (10**5000, "<unprintable int>"),
    "empty": ("", ""),
    "blank": (" \t\n", " \t\n"),
    "lone-surrogate": ("a\udc80b", r"a\udc80b"),
    "controls": ("\0\x1b\u2028\\\"'\r\n", "\0\x1b\u2028\\\"'\r\n"),
    "percent": ("100% %s %d %(x)s {} {x}", "100% %s %d %(x)s {} {x}"),
    "bytes": (b"\xff\n", r"b'\xff\n'"),
    "str-subclass": (Text("x"), "text of its own"),
    "decimal": (decimal.Decimal("0.1"), "0.1"),
    "decimal-nan": (decimal.Decimal("NaN"), "NaN"),
    "fraction": (fractions.Fraction(1, 3), "1/3"),
    "complex": (1 + 2j, "(1+2j)"),
    "list": ([1, "a"], "[1, 'a']"),
    "dict": ({1: 2}, "{1: 2}"),
    "exception": (ValueError("x"), "x"),
    "class": (int, "<class 'int'>"),
    "unprintable": (Unprintable(), "<unprintable Unprintable>"),
    "hostile": (Hostile(), "<unprintable Hostile>"),
    "hostile-inside": ([{"x": Hostile()}], "<unprintable list>"),
    "dead": (dead(), DEAD),
    "dead-inside": (INSIDE, str(INSIDE)),
    "faceless": (Faceless(), "faceless"),
    "subtle": (Subtle(), "subtle"),
    "nameless": (Nameless(), "<unprintable Nameless>"),
    "endless-items": (Endless(a=1), "<unprintable Endless>"),
    "raising-items": (RaisingItems(a=1), "no items"),
    "raising-bool": (raising_bool(), "<unprintable bool_>"),
    "deep": (nested(100_000), "<unprintable list>"),
    "endless": (endless(), "[1, [...]]"),
}


@pytest.mark.parametrize("key", HOSTILE)
def test_no_value_makes_a_recorder_raise_or_lose_its_event(key: str, log: Log) -> None:
    value, text = HOSTILE[key]
    count = 0
    for name, arguments, event, _ in RECORDERS:
        if name == "observe_candidate_loads":
            continue
        kinds = [field.kind for field in EVENTS[event].fields]
        for position, argument in enumerate(arguments):
            getattr(metrics, name)(**{**arguments, argument: value})
            logged = log.own_fields()[count]
            count += 1
            assert logged["event"] == event
            if kinds[position] == TEXT:
                assert logged[argument] == text
    assert len(log.events()) == count
    log.check_books()


@pytest.mark.parametrize("key", HOSTILE)
def test_no_value_makes_a_further_field_or_an_unknown_recorder_lose_its_event(
    key: str, log: Log
) -> None:
    value, _ = HOSTILE[key]
    metrics.record_attempt("random", "success", more=value)
    metrics.record_something(value, more=[value])
    with metrics.time_load("vllm", value, "main", more=value):
        pass
    assert log.names() == ["source_attempted", "recorder_called", "load_started", "load_finished"]
    log.check_books()


@pytest.mark.parametrize("key", HOSTILE)
def test_no_value_makes_a_logger_raise_or_lose_an_event(key: str, log: Log) -> None:
    value, text = HOSTILE[key]
    logger = get_logger(engine=value)
    logger.info("engine_ready", worker=value, other=1)
    logger.bind(worker=value).unbind(value).info(value, more=[1, value, {"x": value}])
    logger.new().log(value, "%s", value)
    logger.log(17, "x", event=value)
    logger.error("failed", exc_info=value)
    logger.exception(event=value)
    ready, named, *_ = events = log.events()
    assert len(events) == 6
    assert (ready["event"], ready["other"]) == ("engine_ready", 1)
    assert named["event"] == str(text)
    assert named["more"][0] == 1
    log.check_books()


def test_only_the_member_that_cannot_be_said_is_a_placeholder(log: Log) -> None:
    get_logger().info("x", good=[1, {"a": dead(), "b": [dead(), 2]}], bad=dead(), other=1.5)
    metrics.record_selection("random", "w", peer=dead(), size=3)
    metrics.observe_transfer_seconds("random", "ok", dead())
    assert log.own_fields() == [
        {"event": "x", "good": [1, {"a": DEAD, "b": [DEAD, 2]}], "bad": DEAD, "other": 1.5},
        {
            "event": "source_selected",
            "policy": "random",
            "source_worker_id": "w",
            "peer": DEAD,
            "size": 3,
        },
        {"event": "transfer_finished", "policy": "random", "outcome": "ok", "seconds": DEAD},
    ]


Call = tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]

CALLS: dict[str, Call] = {
    "recorder": (metrics.record_attempt, ("random", "success"), {}),
    "fields": (metrics.observe_transfer_seconds, ("r", Faceless(), 1.5), {"more": [{"a": [1]}]}),
    "surrogate": (metrics.record_attempt, ("random", "\udc80"), {}),
    "unknown": (metrics.record_something, ([1, {"a": "b"}],), {}),
    "logger": (get_logger(engine="vllm").info, ("%s", "x"), {"more": [1, {"a": "b"}]}),
    "log": (get_logger().log, ("error", "x"), {}),
    "record": (Capture(logging.INFO).handle, (logging.makeLogRecord({"msg": "x"}),), {}),
    "exception": (get_logger().exception, (), {"event": "x"}),
}


@pytest.mark.parametrize("way", ["down", "up"])
@pytest.mark.parametrize("key", CALLS)
def test_close_to_the_recursion_limit_an_event_is_logged_or_counted(
    key: str, way: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "2000")
    record, args, kwargs = CALLS[key]
    returned = 0
    raised: list[Any] = []

    def descend() -> None:
        nonlocal returned, raised
        if way == "up":
            try:  # noqa: SIM105 - it would be a call
                descend()
            except RecursionError:
                pass
        try:
            record(*args, **kwargs)
        except RecursionError as error:
            # There was no room to call it at all. Once it is called, it raises nothing.
            raised += (error.__traceback__,)
        else:
            returned += 1
        if way == "down":
            descend()

    with contextlib.suppress(RecursionError):
        descend()
    metrics.record_nixl_receive("complete")
    assert [trace.tb_next for trace in raised] == [None] * len(raised)
    events = log.events()
    dropped = log.dropped()
    assert set(dropped) == {"unencodable"}
    named = [event for event in events if event["event"] != "events_dropped"]
    assert len(named) + dropped["unencodable"] == returned + 1
    log.check_books()


def test_one_part_many_times_over_ends(log: Log) -> None:
    metrics.record_something(shared())
    (event,) = log.events("recorder_called", "events_dropped")
    assert event["event"] == "recorder_called"


class _Float:
    def __float__(self) -> float:
        return 2.5


class _Index:
    def __index__(self) -> int:
        return 7

    def __float__(self) -> float:
        return 7.5


class _Int(int):
    pass


class bool_:
    def __float__(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("given", "logged"),
    [
        (0, 0),
        (-0.0, 0.0),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, str(2**64)),
        (5e-324, 5e-324),
        (1.7976931348623157e308, 1.7976931348623157e308),
        (NAN, "nan"),
        (INF, "inf"),
        (-INF, "-inf"),
        (True, True),
        (None, None),
        ("1.5", "1.5"),
        (b"1", "b'1'"),
        (_Int(3), 3),
        (_Float(), 2.5),
        (_Index(), 7),
        (bool_(), True),
        (decimal.Decimal("1.5"), 1.5),
        (decimal.Decimal("1e400"), "1E+400"),
        (fractions.Fraction(10**400), str(10**400)),
        ([1], "[1]"),
    ],
    ids=lambda value: re.sub(r"<[\w.]+\.(\w+) object at 0x\w+>", r"<\1>", repr(value))[:40],
)
def test_numbers_are_logged_as_numbers_where_json_has_a_place(
    given: object, logged: object, log: Log
) -> None:
    metrics.observe_selection_seconds("random", given)
    (event,) = log.events()
    assert event["seconds"] == logged
    assert type(event["seconds"]) is type(logged)


@pytest.mark.parametrize("model", [None, "", 0, False, []])
def test_falsy_models_and_selected_sources_are_null(model: object, log: Log) -> None:
    metrics.record_selection("random", model)
    metrics.record_selection("random")
    metrics.observe_load_seconds("vllm", model, "main", "success", 1)
    metrics.observe_load_phase_seconds("vllm", model, "chain", 1)
    selected, default, load, phase = log.events()
    assert selected["source_worker_id"] is default["source_worker_id"] is None
    assert load["model"] is phase["model"] is None


def test_a_model_whose_bool_raises_is_not_null(log: Log) -> None:
    metrics.observe_load_seconds("vllm", Hostile(), "main", "success", 1)
    assert log.events()[0]["model"] == "<unprintable Hostile>"


# --------------------------------------------------------------------------------------
# Calls that do not fit


def test_arguments_that_do_not_fit_are_logged_as_a_call(log: Log) -> None:
    metrics.record_attempt("random")  # type: ignore[call-arg]
    metrics.record_attempt("random", "success", "more")  # type: ignore[call-arg]
    metrics.record_attempt("random", "success", policy=NAN)  # type: ignore[misc]
    with metrics.time_load("vllm") as span:  # type: ignore[call-arg]
        pass
    *calls, timer = log.own_fields()
    called = {"event": "recorder_called", "recorder": "record_attempt"}
    assert calls == [
        {**called, "args": ["random"], "kwargs": {}},
        {**called, "args": ["random", "success", "more"], "kwargs": {}},
        {**called, "args": ["random", "success"], "kwargs": {"policy": "nan"}},
    ]
    assert timer == {
        "event": "recorder_called",
        "recorder": "time_load",
        "args": ["vllm"],
        "kwargs": {},
        "seconds": span.seconds,
    }


def test_recorders_of_newer_clients_are_logged_with_their_arguments(log: Log) -> None:
    metrics.record_checkpoint("x", 3, size=[1.5, INF], seq=9)
    metrics.observe_bandwidth(2.5)
    with pytest.raises(KeyError), metrics.time_checkpoint("x", level=1) as span:
        raise KeyError("k")
    assert log.own_fields() == [
        {
            "event": "recorder_called",
            "recorder": "record_checkpoint",
            "args": ["x", 3],
            "kwargs": {"size": [1.5, "inf"], "seq": 9},
        },
        {
            "event": "recorder_called",
            "recorder": "observe_bandwidth",
            "args": [2.5],
            "kwargs": {},
        },
        {
            "event": "recorder_called",
            "recorder": "time_checkpoint",
            "args": ["x"],
            "kwargs": {"level": 1},
            "seconds": span.seconds,
            "error_type": "KeyError",
            "error": "'k'",
        },
    ]


def test_any_public_name_is_a_recorder_of_a_newer_client(log: Log) -> None:
    metrics.mark_source_stale("a", reason="old")  # type: ignore[attr-defined]
    metrics.set_queue_depth(3)  # type: ignore[attr-defined]
    assert log.own_fields() == [
        {
            "event": "recorder_called",
            "recorder": "mark_source_stale",
            "args": ["a"],
            "kwargs": {"reason": "old"},
        },
        {"event": "recorder_called", "recorder": "set_queue_depth", "args": [3], "kwargs": {}},
    ]


def test_private_names_are_no_recorders() -> None:
    with pytest.raises(AttributeError, match="no attribute '_selections'"):
        _ = metrics._selections  # type: ignore[attr-defined]
    assert not hasattr(metrics, "__wrapped__")


def test_further_fields_are_logged_and_reserved_ones_renamed(log: Log) -> None:
    metrics.record_attempt("random", "success", peer="a", rank=3, event="x", load_id=NAN, self=1)
    (event,) = log.events()
    assert event["event"] == "source_attempted"
    assert event["rank"] is None
    assert {key: event[key] for key in ("peer", "field_rank", "field_event", "self")} == {
        "peer": "a",
        "field_rank": 3,
        "field_event": "x",
        "self": 1,
    }
    assert event["field_load_id"] == "nan"
    assert "load_id" not in event


def test_a_further_field_never_replaces_an_events_own(log: Log) -> None:
    metrics.record_artifact_install_bytes("triton_cache", "primary", 10, bytes=99)
    assert log.events()[0]["bytes"] == 10


def test_what_no_timer_logged_says_so_and_only_that(log: Log) -> None:
    """Within a timed load, it carries the load's id; a reader must not take the load as ended."""
    with metrics.time_load("vllm", "m", "main", timed=False):
        metrics.observe_load_seconds("vllm", "m", "draft", "success", 1, timed=True)
        with metrics.time_load_phase("vllm", "m", "chain", timed=False):
            metrics.observe_load_phase_seconds("vllm", "m", "chain", 1)
    assert [event.get("timed", "") for event in log.events()] == ["", False, "", False, "", ""]
    assert len({event["load_id"] for event in log.events()}) == 1
    for name in ("load_finished", "load_phase_finished"):
        assert "timed" in [field.name for field in EVENTS[name].fields]


def test_what_is_set_on_the_class_is_what_is_called(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tests and tools do it, on every Python."""
    calls: list[tuple[Any, ...]] = []
    metrics.record_attempt("random", "first")
    with monkeypatch.context() as patched:
        patched.setattr(Recorders, "record_attempt", lambda *args: calls.append(args))
        metrics.record_attempt("random", "second")
    metrics.record_attempt("random", "third")
    with monkeypatch.context() as patched:
        patched.setattr(metrics, "record_attempt", lambda *args: calls.append(args))
        metrics.record_attempt("random", "fourth")
    metrics.record_attempt("random", "fifth")
    assert calls == [(metrics, "random", "second"), ("random", "fourth")]
    assert [event["result"] for event in log.events()] == ["first", "third", "fifth"]


def test_a_type_checker_finds_a_misspelt_recorder(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "from mx_emitter import metrics\n"
        "metrics.record_attempt('random', 'success', peer='a')\n"
        "metrics.record_atempt('random', 'success')\n"
    )
    options = ["--no-incremental", "--strict", "--config-file", os.devnull]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    (error,) = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert ":3: error:" in error
    assert "record_atempt" in error


def test_copies_and_pickles_are_the_one_object() -> None:
    assert copy.deepcopy({"m": metrics})["m"] is metrics
    assert pickle.loads(pickle.dumps(metrics)) is metrics


# --------------------------------------------------------------------------------------
# Loads of candidates


class NoField:
    worker_id = "n"
    source_load = 0.5


class RaisingField(Candidate):
    def HasField(self, name: str) -> bool:
        raise ValueError(name)


class RaisingAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class RaisingIterable(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize("ordered", [None, [], (), "", 0])
def test_no_candidates_log_nothing(ordered: object, log: Log) -> None:
    metrics.observe_candidate_loads(ordered)
    metrics.record_nixl_receive("empty")
    assert log.names() == ["nixl_received"]


@pytest.mark.parametrize(
    ("candidate", "load"),
    [
        (Candidate("n", 0), 0.0),
        (Candidate("n"), None),
        (Candidate("n", "0.5"), 0.5),
        (Candidate("n", "much"), None),
        (Candidate("n", NAN), "nan"),
        (NoField(), None),
        (RaisingField("n", 0.5), None),
    ],
)
def test_a_load_is_known_only_where_it_was_published(
    candidate: object, load: object, log: Log
) -> None:
    metrics.observe_candidate_loads([candidate])
    assert log.events()[0]["loads"] == [{"source_worker_id": "n", "load": load}]


@pytest.mark.parametrize(
    "ordered",
    [RaisingIterable([1]), 7, object(), Hostile(), RaisingAttributes()],
    ids=["raising", "int", "object", "hostile", "raising-attributes"],
)
def test_what_is_no_sequence_of_candidates_is_logged_as_a_call(ordered: object, log: Log) -> None:
    metrics.observe_candidate_loads(ordered)
    (event,) = log.events()
    assert (event["event"], event["recorder"]) == ("recorder_called", "observe_candidate_loads")


def test_candidates_that_are_none(log: Log) -> None:
    metrics.observe_candidate_loads([None, RaisingAttributes(), Candidate("")])
    assert [each["source_worker_id"] for each in log.events()[0]["loads"]] == ["None", "None", ""]


def test_an_iterator_is_left_to_its_owner(log: Log) -> None:
    ordered = iter([Candidate("a", 0.5)])
    metrics.observe_candidate_loads(ordered)
    assert len(list(ordered)) == 1
    assert not log.directory.exists()


def test_the_schema_names_all_recorders() -> None:
    """By which a misspelt one is told from one of a newer client."""
    prefixes = ("record_", "observe_", "time_")
    assert {name for name in dir(Recorders) if name.startswith(prefixes)} == schema.RECORDERS
