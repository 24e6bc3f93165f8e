"""Loads as a trace."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import mx_exporter
from mx_demo.fleet import write_fleet
from mx_demo.loads import SCENARIOS
from tests.support.commands import Run
from tests.support.log_lines import Lines
from tests.support.simulated_loads import changed, simulate

NAMED = {"engine": "vllm", "model": "m", "model_role": "main"}


def trace_of(mx_metrics: Run, *logs: Path) -> list[dict[str, Any]]:
    code, out, err = mx_metrics("trace", *logs)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["displayTimeUnit"] == "ms"
    check(found["traceEvents"])
    return found["traceEvents"]


def check(events: list[dict[str, Any]]) -> None:
    """The rules of the format: slices nest, nothing is negative, ids and names are unique."""
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    names: dict[tuple[str, int, int], str] = {}
    flows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        thread = (event["pid"], event["tid"])
        if event["ph"] == "M":
            assert names.setdefault((event["name"], *thread), event["args"]["name"])
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            threads[thread].append(event)
        elif event["ph"] in "sf":
            flows[event["id"]].append(event)
        else:
            assert (event["ph"], event["s"]) == ("i", "t")
    for (pid, tid), slices in threads.items():
        assert ("process_name", pid, 0) in names
        assert ("thread_name", pid, tid) in names
        open_ends: list[int] = []
        for each in slices:  # as they were written: whoever holds others comes first
            end = each["ts"] + each["dur"]
            while open_ends and open_ends[-1] <= each["ts"] and end > open_ends[-1]:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], each
            open_ends.append(end)
    for pair in flows.values():
        assert [event["ph"] for event in pair] == ["s", "f"]
        for event in pair:
            slices = threads[event["pid"], event["tid"]]
            assert any(s["ts"] <= event["ts"] <= s["ts"] + s["dur"] for s in slices)


def slices(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["name"].startswith(name)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_is_a_trace(scenario: str, tmp_path: Path, mx_metrics: Run) -> None:
    simulate([scenario]).write(tmp_path)
    (load,) = mx_exporter.timeline(str(tmp_path))
    events = trace_of(mx_metrics, tmp_path)
    (whole,) = slices(events, "load ")
    assert whole["dur"] == pytest.approx(load.elapsed * 1e6, abs=1)
    assert whole["args"]["outcome"] == load.outcome
    assert len(slices(events, "attempt ")) == len(load.attempts)
    for span in load.phases:
        assert slices(events, span.name)
    killed = [event for event in events if event["ph"] == "i"]
    assert len(killed) == (load.outcome == "killed")


def test_a_fleet_is_a_trace(tmp_path: Path, mx_metrics: Run) -> None:
    write_fleet(tmp_path, 12, start=1_767_225_600.0)
    pods = sorted(tmp_path.iterdir())
    events = trace_of(mx_metrics, *pods)
    named = [event for event in events if event["name"] == "process_name"]
    assert sorted(event["args"]["name"] for event in named) == sorted(
        f"models/{pod.name}" for pod in pods
    )
    assert len(slices(events, "load ")) == 48


def test_loads_at_the_same_time_have_threads_of_their_own(tmp_path: Path, mx_metrics: Run) -> None:
    log = Lines()
    lines = [log.header()]
    ends = ["load_started", "load_started", "load_finished", "load_finished"]
    for event, load_id in zip(ends, "abab", strict=True):
        end = {"outcome": "success", "seconds": 2.0} if event == "load_finished" else {}
        lines.append(log(event, load_id=load_id, **NAMED, **end))
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines))
    events = trace_of(mx_metrics, tmp_path / "log.jsonl")
    assert len({event["tid"] for event in slices(events, "load ")}) == 2


def test_attempts_that_overlap_do_not_break_the_nesting(tmp_path: Path, mx_metrics: Run) -> None:
    log = Lines()
    lines = [log.header(), log("load_started", load_id="a", **NAMED)]
    for event in ("started", "started", "finished", "finished"):
        more = {"outcome": "ok", "seconds": 2.0} if event == "finished" else {}
        lines.append(
            log(f"source_attempt_phase_{event}", load_id="a", policy="p", phase="receive", **more)
        )
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines))
    assert len(slices(trace_of(mx_metrics, tmp_path / "log.jsonl"), "attempt ")) == 2


def test_arrows_lead_from_the_pod_of_a_peer_that_the_log_knows(
    tmp_path: Path, mx_metrics: Run
) -> None:
    for n in range(3):
        peer = simulate(["alone"], pod=f"peer-{n}", seed=n)
        peer.lines[0] = changed(peer.lines[0], worker_id=f"worker-{n}")
        peer.write(tmp_path)
    simulate(["retry"], pod="late", start=1_767_229_200.0).write(tmp_path)
    events = trace_of(mx_metrics, tmp_path)
    flows = [event for event in events if event["ph"] == "s"]
    assert len(flows) == 2
    assert len(slices(events, "serves models/late rank 0")) == 2


def test_a_clock_that_was_set_breaks_nothing(tmp_path: Path, mx_metrics: Run) -> None:
    lines = simulate(["retry"]).lines
    half = len(lines) // 2
    back = [
        line.replace(b"2026-01-01", b"2025-12-31") if at >= half else line
        for at, line in enumerate(lines)
    ]
    (tmp_path / "log.jsonl").write_bytes(b"".join(back))
    trace_of(mx_metrics, tmp_path / "log.jsonl")


def test_no_load_is_a_trace_without_slices(tmp_path: Path, mx_metrics: Run) -> None:
    log = Lines()
    (tmp_path / "log.jsonl").write_bytes(log.header())
    assert trace_of(mx_metrics, tmp_path / "log.jsonl") == []


def test_a_file_is_there_whole(tmp_path: Path, mx_metrics: Run) -> None:
    simulate(["peer"]).write(tmp_path)
    _, out, _ = mx_metrics("trace", tmp_path)
    target = tmp_path / "trace.json"
    assert mx_metrics("trace", tmp_path, "-o", target)[:2] == (0, b"")
    assert target.read_bytes() == out
