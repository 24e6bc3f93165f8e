"""A real cluster of Dask reads logs: the bytes of one process, also when a worker is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support import ROOT, Spawner, free_port, wait_until
from tests.support.commands import Run
from tests.support.folding import compact
from tests.support.load_logs import ranks
from tests.support.simulated_loads import simulate

PROGRAMS = ROOT / "tests" / "support" / "programs"


def workers_of(spawn: Spawner, address: str, hold: Path, count: int) -> None:
    for _ in range(count):
        spawn.python(
            *("-m", "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1"),
            *("--host", "127.0.0.1", "--no-dashboard", "--preload", PROGRAMS / "hold_workers.py"),
            env={"HOLD": str(hold), "PYTHONPATH": str(ROOT)},
        )


@pytest.mark.long
def test_a_killed_worker_changes_nothing(tmp_path: Path, spawn: Spawner, mx_metrics: Run) -> None:
    """The strong reason to take seconds: processes of a real cluster, and what they load."""
    address, hold, log = f"tcp://127.0.0.1:{free_port()}", tmp_path / "hold", tmp_path / "log"
    hold.mkdir()
    spawn.python(
        *("-m", "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"),
    )
    workers_of(spawn, address, hold, 2)
    ranks(log, processes=5)
    for rank in range(3):
        simulate(["peer", "retry"], rank=rank).write(log)
    compacted = tmp_path / "compacted"
    ranks(compacted, processes=3)
    compact(compacted)
    packed, out = tmp_path / "x", str(tmp_path / "out")
    commands = [
        ["replay", str(log)],
        ["replay", str(log), str(compacted), "--openmetrics", "--source-id-label"],
        ["replay", str(log), "--group-by", "proc", "--until", "2026-01-01T00:00:04Z"],
        ["loads", str(log), "--json"],
        ["diff", str(log), str(log), "--json"],
        ["events", str(log), "--model", "acme/große-7b", "-o", out],
        ["backfill", str(log), "-o", out],
    ]
    right = []
    for command in commands:
        code, printed, err = mx_metrics(*command)
        right.append([code, printed.decode(), err])
        if out in command:
            right[-1].append(Path(out).read_text())
            os.unlink(out)
    given = []
    for number, command in enumerate(commands):
        place = str(packed) + str(number)
        given.append([place if each == out else each for each in command])
        given[-1] += ["--engine", "dask", "--scheduler", address]
    (tmp_path / "commands").write_text(json.dumps(given))
    client = spawn.python(PROGRAMS / "commands.py", tmp_path / "commands")
    wait_until(lambda: len(list(hold.iterdir())) == 2 or client.poll() is not None)
    os.kill(int(next(hold.iterdir()).name), signal.SIGKILL)
    (hold / "go").touch()
    assert client.result() == 0, client.error_output
    found = json.loads(client.output)
    for number, (command, was) in enumerate(zip(given, right, strict=True)):
        place = str(packed) + str(number)
        if place in command:
            found[number].append(Path(place).read_text())
            found[number][1] = found[number][1].replace(place, out)
        assert found[number] == was, command
    assert client.error_output == ""


def test_options_that_do_not_go_together(tmp_path: Path, mx_metrics: Run) -> None:
    ranks(tmp_path)
    for options, said in (
        (["replay", "--scheduler", "tcp://x:1"], "--scheduler goes with --engine dask"),
        (["loads", "--engine", "vllm", "--scheduler", "tcp://x:1"], "--scheduler goes with"),
        (
            ["loads", "--engine", "dask", "--scheduler", "tcp://x:1", "--jobs", "2"],
            "--scheduler and --jobs exclude each other",
        ),
        (["backfill", "-o", "-", "--engine", "vllm"], "--engine: bad value 'vllm': expected dask"),
    ):
        command, *rest = options
        code, out, err = mx_metrics(command, tmp_path, *rest)
        assert (code, out) == (2, b"")
        assert said in err
