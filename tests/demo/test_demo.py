"""The demo works, and its ranks record what real loads do."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import urllib.request
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest

import mx_exporter
from mx_demo.fleet import RANKS, RELEASES, TROUBLE, write_fleet
from mx_demo.loads import SCENARIOS, Loader
from mx_demo.simulated import SimulatedClock, SimulatedRank, Stopped
from mx_exporter.exposition.samples import Point
from tests import support
from tests.support import DEPLOY

DEMO = ("-m", "mx_exporter", "demo")


@pytest.fixture
def in_tmp(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return {"TMPDIR": str(tmp_path / "tmp")}


def test_the_demo_of_one_load_each(
    spawn: support.Spawner, in_tmp: dict[str, str], tmp_path: Path
) -> None:
    keep = tmp_path / "kept" / "log"
    demo = spawn.python(*DEMO, "--once", "--keep", keep, env=in_tmp)
    assert demo.result(180) == 0, demo.error_output
    said = dict(re.findall(r"^(\S.*?)  +(.*?)$", demo.output, re.MULTILINE))
    assert said["loads ended"] == "error 1  success 6"  # the one that hung was told to stop
    assert said["processes by release"] == "0.7.0 1  0.7.1 1"
    assert said["in progress, by phase"] == "none"
    assert said["abandoned, by phase"] == "chain 1"
    assert said["sources listed"] == "empty 1  ok 7"
    assert said["attempts"] == "metadata_miss 1  success 4  transfer_fallback 2  transfer_retry 2"
    assert said["data-plane errors"] == "timeout 3"
    assert re.search(r"^replay of the log: the same \d+ samples, byte for byte$", demo.output, re.M)
    assert os.listdir(in_tmp["TMPDIR"]) == []

    # The log stays, says which pods and nodes it is of, and the commands that are named work.
    logs = [events(path) for path in keep.glob("events-*.jsonl")]
    headers = [log[0] for log in logs]
    assert len(headers) == 8
    where = {(one["pod_name"], one["node_name"], one["version"]) for one in headers}
    assert where == {("demo-0", "node-a", "0.7.0"), ("demo-1", "node-b", "0.7.1")}
    for log in logs:
        assert_one_time(log)
    for command in re.findall(r"^  mx-metrics (\w+ .*?)(?:  +#.*)?$", demo.output, re.MULTILINE):
        done = spawn.python("-m", "mx_exporter", *command.split())
        assert done.result() == 0, done.error_output


def events(segment: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in segment.read_bytes().splitlines()]


def assert_one_time(log: list[dict[str, Any]]) -> None:
    """Between the event that a span starts with and the one of its end lies what it took."""
    open_: dict[tuple[str, Any], list[datetime]] = {}
    spans = 0
    for event in log:
        at = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00"))
        kind, _, edge = event["event"].rpartition("_")
        key = (kind, event.get("phase") or event.get("step"))
        # A transfer has no event of its own that it starts with: the choice of its source is it.
        if event["event"] == "source_selected":
            open_["transfer", None] = [at]
        if edge == "started" and kind != "process":
            open_.setdefault(key, []).append(at)
        elif edge == "finished" and open_.get(key):
            took = (at - open_[key].pop()).total_seconds()
            # A process that had to wait for a core between the clock and the line.
            assert took == pytest.approx(event["seconds"], rel=0.5, abs=1.0), event
            spans += 1
    assert spans > 3


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_demo_ends_all_that_it_started(
    how: signal.Signals, spawn: support.Spawner, in_tmp: dict[str, str]
) -> None:
    port = support.free_port()
    demo = spawn.python(*DEMO, "--port", str(port), "--speed", "60", env=in_tmp)

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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--keep", "full"], "--keep: full is not empty"),
        (["--pods", "3", "--out", "full"], "--out: full is not empty"),
        (["--pods", "3"], "--pods and --out"),
        (["--out", "new"], "--pods and --out"),
        (["--pods", "3", "--out", "new", "--once"], "--once"),
        (["--keep", "file/log"], "--keep: file/log cannot be made"),
    ],
)
def test_used_wrongly(
    options: list[str], said: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    for name in ("file", "full/events-aaaaaaaaaaaa-0.jsonl"):
        (tmp_path / name).touch()
    done = spawn.python(*DEMO, *options, cwd=tmp_path)
    assert done.result() == 2
    assert done.error_output.startswith(f"mx-metrics: {said}")
    assert len(done.error_output.splitlines()) == 1


def test_it_shows_the_same_where_there_is_only_the_wheel(
    bare_venv: Path, spawn: support.Spawner, in_tmp: dict[str, str], tmp_path: Path
) -> None:
    """Beside the packages of its extra, which are lent to it; nothing of this clone is."""
    lent = {"PYTHONPATH": str(Path(click.__file__).parent.parent)}
    demo = spawn(
        *(bare_venv.with_name("mx-metrics"), "demo", "--once"), env=in_tmp | lent, cwd=tmp_path
    )
    assert demo.result(180) == 0, demo.error_output
    assert "byte for byte" in demo.output
    where = spawn(bare_venv, "-c", "import mx_demo; print(mx_demo.__file__)", env=lent)
    assert where.result() == 0
    assert where.output.startswith(str(bare_venv.parent.parent))


# --------------------------------------------------------------------------------------
# What a load records

#: Events that only say that something began, and headers, are no observations.
NO_OBSERVATION = ("process_started", "segment_continued")

#: What no two loads have in common.
VOLATILE = {
    "timestamp", "proc", "load_id", "seconds", "pid", "hostname", "emitter_version", "loads",
    "source_worker_id",
}  # fmt: skip


def logged(spawn: support.Spawner, log: Path, scenario: str) -> list[dict[str, Any]]:
    """The events of one load, by the emitter."""
    pipe = {"stdout": subprocess.PIPE} if scenario == "hang" else {}
    rank = spawn.python(
        *("-m", "mx_demo.rank", scenario, "--speed", "600", "--release", "0.7.1"),
        env={"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log), "RANK": "3"},
        **pipe,
    )
    if scenario == "hang":
        assert rank.stdout
        assert rank.stdout.readline() == b"receiving\n"
        rank.send_signal(signal.SIGKILL)
    killed = scenario in ("hang", "killed")
    assert rank.result() == (-signal.SIGKILL if killed else 0), rank.error_output
    (segment,) = log.glob("events-*.jsonl")
    return events(segment)


def simulated(folder: Path, scenario: str) -> list[dict[str, Any]]:
    """The same, written down afterwards."""
    dice = random.Random(0)
    clock = SimulatedClock(1_767_225_600.0)
    process = SimulatedRank(clock, dice, rank=3, release="0.7.1")
    with contextlib.suppress(Stopped):
        Loader(process, clock, random.Random(0)).load(scenario)
    return events(process.write(folder))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_simulated_log_is_what_the_emitter_logs(
    scenario: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    """Event by event and key by key, in their order, down to each value that is not of chance."""
    real = logged(spawn, tmp_path / "log", scenario)
    ours = simulated(tmp_path, scenario)
    assert [list(one) for one in ours] == [list(one) for one in real]
    for one, other in zip(ours, real, strict=True):
        assert {k: v for k, v in one.items() if k not in VOLATILE} == {
            k: v for k, v in other.items() if k not in VOLATILE
        }
        assert {k: type(v) for k, v in one.items()}.items() >= {
            k: type(v) for k, v in other.items() if v is not None and k != "hostname"
        }.items()
    assert_one_time(ours)


def observations(log: list[dict[str, Any]]) -> list[str]:
    names = [event["event"] for event in log]
    return [one for one in names if not one.endswith("_started") and one not in NO_OBSERVATION]


@pytest.mark.parametrize(("scenario", "count"), [("alone", 9), ("peer", 22)])
def test_a_load_records_as_many_as_a_real_one(scenario: str, count: int, tmp_path: Path) -> None:
    assert len(observations(simulated(tmp_path, scenario))) == count


def test_a_retry_records_two_attempts(tmp_path: Path) -> None:
    counts = Counter(observations(simulated(tmp_path, "retry")))
    assert counts["source_selected"] == counts["source_attempted"] == 2
    assert counts["transfer_finished"] == 2
    assert counts["nixl_failed"] == counts["nixl_received"] == 1


def test_durations_have_the_magnitude_of_real_loads(tmp_path: Path) -> None:
    seconds = {
        event["phase"]: event["seconds"]
        for event in simulated(tmp_path, "peer")
        if event["event"] == "source_attempt_phase_finished"
    }
    assert 15 < seconds["receive"] < 120
    assert seconds["receive"] > seconds["register"]


def test_the_rank_needs_nothing_of_the_exporter() -> None:
    for name in ("rank", "loads"):
        text = (DEPLOY.parent / "exporter" / "mx_demo" / f"{name}.py").read_text()
        assert "mx_exporter" not in text


# --------------------------------------------------------------------------------------
# A fleet


def test_a_fleet_has_what_is_looked_for(tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path, 12, start=1_767_225_600.0, seed=1)
    assert (fleet.pods, fleet.ranks, fleet.loads) == (12, 12 * RANKS, 12 * RANKS)
    # What docs/deploying.md says that a load costs.
    assert 8_000 < fleet.size / fleet.loads < 12_000
    state = mx_exporter.replay(*sorted(map(str, tmp_path.iterdir())))
    assert not state.refused
    assert not state.rejected
    page = {family.name: family.series for family in mx_exporter.samples(state)}

    def value(name: str, *labels: str) -> float:
        """The sum of what carries these labels; of histograms what they count."""
        return sum(
            one.value if isinstance(one, Point) else one.counts[-1]
            for one in page[name]
            if set(labels) <= set(one.labels)
        )

    assert value("mx_loads_abandoned_total") == 2  # the one that hung, and the one killed
    assert value("mx_nixl_receive_total", "partial") == 1
    assert value("mx_load_seconds", "success") == 12 * RANKS - 2
    assert {label for one in page["mx_build_info"] for label in one.labels} >= {*RELEASES}
    logs = [events(path) for path in tmp_path.rglob("events-*.jsonl")]
    assert len({log[0]["node_name"] for log in logs}) == 4
    assert len({log[0]["pod_uid"] for log in logs}) == 12
    assert len({log[0]["proc"] for log in logs}) == len(logs)
    for log in logs:
        assert_one_time(log)


def test_a_fleet_is_drawn_by_its_seed(tmp_path: Path) -> None:
    def written(name: str, seed: int) -> dict[str, bytes]:
        write_fleet(tmp_path / name, len(TROUBLE) + 1, start=1_767_225_600.0, seed=seed)
        paths = (tmp_path / name).rglob("*.jsonl")
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in paths}

    once = written("once", 3)
    assert once == written("again", 3)
    assert once != written("other", 4)


def test_one_node_of_a_fleet_is_slow(tmp_path: Path) -> None:
    write_fleet(tmp_path, 9, start=1_767_225_600.0)
    took: dict[str, list[float]] = {}
    for path in tmp_path.rglob("*.jsonl"):
        header, *rest = events(path)
        took.setdefault(header["node_name"], []).extend(
            one["seconds"]
            for one in rest
            if one["event"] == "load_phase_finished" and one["phase"] == "model_init"
        )
    means = {node: sum(some) / len(some) for node, some in took.items()}
    assert means["node-2"] > 2 * max(means["node-0"], means["node-1"])


def test_logs_of_a_fleet_are_written_and_read(spawn: support.Spawner, tmp_path: Path) -> None:
    out = tmp_path / "new" / "fleet"
    done = spawn.python(*DEMO, "--pods", "6", "--out", out)
    assert done.result() == 0, done.error_output
    assert re.match(r"24 loads of 6 pods with 24 ranks: \d+ kB in ", done.output)
    commands = re.findall(r"^  mx-metrics (\w+) '(.*)'", done.output, re.MULTILINE)
    assert [name for name, _ in commands] == ["replay", "check"]
    for name, logs in commands:
        read = spawn.python("-m", "mx_exporter", name, logs)
        assert read.result() == 0, read.error_output
