"""The demo works, and its ranks record what real loads do."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from tests import support

HERE = Path(__file__).parent


@pytest.fixture
def in_tmp(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return {"TMPDIR": str(tmp_path / "tmp")}


def test_the_demo_of_one_load_each(spawn: support.Spawner, in_tmp: dict[str, str]) -> None:
    demo = spawn.python(HERE / "demo.py", "--once", env=in_tmp)
    assert demo.result(180) == 0, demo.error_output
    said = dict(re.findall(r"^(\S.*?)  +(.*?)$", demo.output, re.MULTILINE))
    assert said["loads ended"] == "error 1  success 6"  # the one that hung was told to stop
    assert said["in progress, by phase"] == "none"
    assert said["abandoned, by phase"] == "chain 1"
    assert said["sources listed"] == "empty 1  ok 7"
    assert said["attempts"] == "metadata_miss 1  success 4  transfer_fallback 2  transfer_retry 2"
    assert said["data-plane errors"] == "timeout 3"
    assert re.search(r"^replay of the log: the same \d+ samples, byte for byte$", demo.output, re.M)
    assert os.listdir(in_tmp["TMPDIR"]) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_demo_ends_all_that_it_started(
    how: signal.Signals, spawn: support.Spawner, in_tmp: dict[str, str]
) -> None:
    port = support.free_port()
    demo = spawn.python(HERE / "demo.py", "--port", str(port), env=in_tmp)

    def page() -> str:
        assert demo.poll() is None, demo.error_output
        return demo.output if "Ctrl-C" in demo.output else ""

    shown = support.wait_until(page, 60)
    assert f"http://127.0.0.1:{port}/metrics" in shown
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
    assert len(children) == 9
    os.kill(demo.pid, how)
    assert demo.result() == 0, demo.error_output
    assert os.listdir(in_tmp["TMPDIR"]) == []
    for pid in children:
        assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


# --------------------------------------------------------------------------------------
# What a load records

#: Events that only say that something began, and headers, are no observations.
NO_OBSERVATION = ("process_started", "segment_continued")


def observations(spawn: support.Spawner, log: Path, scenario: str) -> list[str]:
    """Run one load and give the names of the events that are observations, in order."""
    rank = spawn.python(
        HERE / "rank.py",
        scenario,
        "--speed",
        "600",
        env={"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log)},
    )
    assert rank.result() == 0, rank.error_output
    (segment,) = log.glob("events-*.jsonl")
    events = [json.loads(line)["event"] for line in segment.read_bytes().splitlines()]
    return [
        event for event in events if not event.endswith("_started") and event not in NO_OBSERVATION
    ]


@pytest.mark.parametrize(("scenario", "count"), [("alone", 9), ("peer", 22)])
def test_a_load_records_as_many_as_a_real_one(
    scenario: str, count: int, spawn: support.Spawner, tmp_path: Path
) -> None:
    assert len(observations(spawn, tmp_path / "log", scenario)) == count


def test_a_retry_records_two_attempts(spawn: support.Spawner, tmp_path: Path) -> None:
    counts = Counter(observations(spawn, tmp_path / "log", "retry"))
    assert counts["source_selected"] == counts["source_attempted"] == 2
    assert counts["transfer_finished"] == 2
    assert counts["nixl_failed"] == counts["nixl_received"] == 1


def test_durations_have_the_magnitude_of_real_loads(spawn: support.Spawner, tmp_path: Path) -> None:
    observations(spawn, tmp_path / "log", "peer")
    (segment,) = (tmp_path / "log").glob("events-*.jsonl")
    seconds = {
        event["phase"]: event["seconds"]
        for event in map(json.loads, segment.read_bytes().splitlines())
        if event["event"] == "source_attempt_phase_finished"
    }
    assert 15 < seconds["receive"] < 120
    assert seconds["receive"] > seconds["register"]


def test_the_rank_needs_nothing_of_the_exporter() -> None:
    assert "mx_exporter" not in (HERE / "rank.py").read_text()
