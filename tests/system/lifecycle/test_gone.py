"""Who is gone: real ranks that lose their descriptors or their segment, or are killed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import support
from tests.support import serving
from tests.support.log_lines import segments_in
from tests.support.pages import parse, replayed, total

#: Loads; says when it is in the middle, and takes what then happens to it from its standard input.
RANK = """
import os, sys, time
from mx_emitter import metrics
log = os.environ["MX_METRICS_DIR"]
with metrics.time_load("vllm", "m", "main"):
    with metrics.time_load_phase("vllm", "m", "chain"):
        print("loading", flush=True)
        if sys.stdin.readline() == "close\\n":
            os.closerange(3, 1 << 20)
        print("lost", flush=True)
        sys.stdin.readline()
        # A rank looks once a second whether its segment is still there.
        while not any(name.startswith("events-") for name in os.listdir(log)):
            metrics.record_nixl_receive("complete")
            time.sleep(0.01)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def rank(spawn: support.Spawner, log: Path) -> Callable[[], support.Process]:
    """Starts a rank that is in the middle of a load."""

    def start() -> support.Process:
        env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log)}
        process = spawn.python("-c", RANK, env=env, stdin=subprocess.PIPE)
        support.wait_until(lambda: process.output == "loading\n", 60)
        return process

    return start


def say(process: support.Process, word: str) -> None:
    assert process.stdin
    process.stdin.write(f"{word}\n".encode())
    process.stdin.flush()


def loads(page: str) -> tuple[float, float]:
    """Loads in progress and loads abandoned."""
    samples = parse(page)
    return total(samples, "mx_loads_in_progress"), total(samples, "mx_loads_abandoned_total")


@pytest.mark.parametrize("how", ["closed", "removed"])
def test_a_load_that_ends_well_after_its_segment_was_lost_is_not_abandoned(
    how: str, rank: Callable[[], support.Process], spawn: support.Spawner, log: Path
) -> None:
    exporter = serving.start(spawn, log)
    process = rank()
    assert loads(exporter.page()) == (1, 0)
    if how == "removed":
        (name,) = segments_in(log)
        (log / name).unlink()
    say(process, "close" if how == "closed" else "go on")
    support.wait_until(lambda: process.output == "loading\nlost\n", 60)
    # It is in progress for ten seconds; on a busy machine they may be over by now.
    assert sum(loads(exporter.page())) == 1
    say(process, "end")
    assert process.result() == 0, process.error_output
    assert segments_in(log)[-1].endswith("-1.jsonl")
    assert loads(exporter.page()) == (0, 0)
    exporter.process.send_signal(signal.SIGKILL)
    exporter.process.result()
    again = serving.start(spawn, log)
    assert loads(again.page()) == (0, 0)
    assert replayed(spawn, log) == again.derived()


@pytest.mark.long
def test_a_killed_rank_is_gone_after_ten_seconds_over_a_restart(
    rank: Callable[[], support.Process], spawn: support.Spawner, log: Path
) -> None:
    exporter = serving.start(spawn, log)
    process = rank()
    assert loads(exporter.page()) == (1, 0)
    process.kill()
    process.result()
    assert sum(loads(exporter.page())) == 1
    for _ in range(2):
        exporter.process.send_signal(signal.SIGKILL)
        exporter.process.result()
        exporter = serving.start(spawn, log)
        assert sum(loads(exporter.page())) == 1
        support.wait_until(lambda exporter=exporter: loads(exporter.page()) == (0, 1), 60)
    assert replayed(spawn, log) == exporter.derived()
