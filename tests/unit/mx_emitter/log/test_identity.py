"""What an engine says of itself, on the headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mx_emitter import enable_metrics, metrics
from mx_emitter.settings import read_settings
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Event
from mx_log.schema import EVENTS
from mx_log.variables import IDENTITY
from tests import support
from tests.support.emitting import HEADERS, Log, Program


def headers(log: Log) -> list[dict[str, Any]]:
    return [line for line in log.lines() if line["event"] in HEADERS]


class Hostile:
    def __str__(self) -> str:
        raise ValueError


def test_what_an_engine_says_is_on_each_header_as_text(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "1")
    assert enable_metrics(3, worker_id=17, engine_version="0.11.0", tensor_parallel_size=8, x=None)
    metrics.record_nixl_receive("empty")
    found = headers(log)
    assert [line["event"] for line in found] == [*HEADERS]
    for line in found:
        assert (line["rank"], line["worker_id"]) == (3, "17")
        assert (line["engine_version"], line["tensor_parallel_size"]) == ("0.11.0", "8")
        assert "x" not in line
        assert "gpu_type" not in line


def test_what_is_said_later_is_on_the_header_of_a_further_segment(log: Log) -> None:
    assert enable_metrics()
    for _ in range(2):  # the same again is nothing new
        assert enable_metrics(worker_id="a")
        metrics.record_nixl_receive("empty")
    assert [line.get("worker_id") for line in headers(log)] == [None, "a"]
    assert log.names() == ["nixl_received"] * 2
    log.check_books()


VALUES: dict[str, object] = {
    "long": "x" * 10_000,
    "surrogate": "\udcff",
    "nul": "\0",
    "bytes": b"\xff",
    "large": 2**80,
    "nan": float("nan"),
    "list": [1] * 9999,
    "hostile": Hostile(),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_value_raises_or_makes_a_header_that_is_rejected(value: object, log: Log) -> None:
    assert enable_metrics(worker_id=value, gpu_type=value, another=value)
    metrics.record_nixl_receive("empty")
    (line,) = headers(log)
    assert all(len(line[name]) <= 100 for name in ("worker_id", "gpu_type", "another"))
    for segment in log.segments():
        for text in segment.read_bytes().splitlines():
            assert isinstance(CATALOG.decoder.decode_line(text), Event)
    assert len(log.events()) == 1


def test_names_that_a_header_has_already_and_too_many_of_them(log: Log) -> None:
    taken = {"pid": 1, "format": "x", "proc": "x", "seq": -1, "event": "x", "\udcff" * 99: 2}
    assert enable_metrics(**taken, **{f"n{n}": n for n in range(100)})  # type: ignore[arg-type]
    (line,) = headers(log)
    assert (line["event"], line["format"], line["seq"]) == ("process_started", 1, 0)
    assert (line["field_pid"], line["field_seq"], line["field_event"]) == ("1", "-1", "x")
    assert sum(name.startswith("n") and name[1:].isdigit() for name in line) == 16 - len(taken)
    assert len(json.dumps(line)) < 16 * 1024


def test_what_the_environment_states_is_found(program: Program) -> None:
    env = {
        "LWS_WORKER_INDEX": "2",
        "TRT_LLM_VERSION": "1.0",
        "TP_SIZE": " 4 ",
        "GPU_TYPE": "x" * 999,
    }
    program.run("from mx_emitter import enable_metrics as e; e(engine_version='1.1')", **env)
    (line,) = headers(program.log)
    assert [line[field] for field in IDENTITY] == ["2", "1.1", "4", "x" * 100]
    both = {"WORKER_ID": "a", "LWS_WORKER_INDEX": "2"}
    assert read_settings(both).identity == {"worker_id": "a"}


def test_a_forked_child_says_the_same(program: Program) -> None:
    program.run(
        """
import os
from mx_emitter import enable_metrics, metrics
enable_metrics(worker_id="a")
if not os.fork():
    metrics.record_nixl_receive("empty")
    os._exit(0)
os.wait()
"""
    )
    assert [line["worker_id"] for line in headers(program.log)] == ["a", "a"]


def test_readers_reject_no_header_for_its_identity() -> None:
    """Neither for fields that they do not know, nor for what those may hold that they do."""
    given: list[dict[str, object]] = [{"new": {"a": [1]}}, {"worker_id": 7}, {"gpu_type": None}]
    for fields in given:
        line = json.loads(support.Lines().header())
        text = json.dumps({**line, **fields}).encode()
        assert isinstance(CATALOG.decoder.decode_line(text), Event)
    known = {field.name for field in EVENTS["process_started"].fields}
    assert IDENTITY.keys() <= known
