"""A replay prints the bytes that an exporter serves while real ranks log and are killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import Process, Spawner, serving, wait_until
from tests.support.pages import derived, replay, replayed

RANK = """
import sys, time
from mx_emitter import enable_metrics, metrics
enable_metrics(rank=int(sys.argv[1]))
for number in range(40):
    with metrics.time_load("vllm", "acme/7b", "main"):
        metrics.record_list_sources("random", "ok" if number % 3 else "empty")
        metrics.observe_candidates("random", "listed", number)
        with metrics.time_load_phase("vllm", "acme/7b", "chain"):
            metrics.record_selection("random", f"worker-{number % 4}")
            with metrics.time_source_attempt_phase("random", "receive"):
                metrics.record_nixl_receive("complete")
            metrics.observe_transfer_seconds("random", "success", number / 7)
with metrics.time_load("vllm", "acme/7b", "main"):
    with metrics.time_load_phase("vllm", "acme/7b", "chain"):
        print("stuck", flush=True)
        time.sleep(1000)
"""

OPENMETRICS = "application/openmetrics-text"


@pytest.fixture
def start_rank(spawn: Spawner, tmp_path: Path):
    def start(rank: int) -> Process:
        env = {
            "MX_METRICS_ENABLED": "1",
            "MX_METRICS_DIR": str(tmp_path / "log"),
            "MX_METRICS_SCHEME": "real",
            "MX_METRICS_SEGMENT_BYTES": "30000",
        }
        return spawn.python("-c", RANK, str(rank), env=env)

    return start


#: Bounds of retention: none that is reached, and such that all but a few segments are compacted.
BOUNDS = {
    "all segments stay": {},
    "compacted": {"MX_METRICS_MAX_BYTES": "120000", "MX_METRICS_RETAIN_BYTES": "40000"},
}


@pytest.mark.long
@pytest.mark.parametrize("bounds", BOUNDS)
def test_live_equals_replay_also_after_kills(
    bounds: str, tmp_path: Path, spawn: Spawner, start_rank
) -> None:
    exporter = serving.start(spawn, tmp_path / "log", env=BOUNDS[bounds], ready=False)
    running = [start_rank(rank) for rank in range(3)]
    wait_until(lambda: b"mx_" in derived(exporter.page().encode()))
    # Beside writers that write, a replay finds nothing wrong.
    while not all("stuck" in rank.output for rank in running):
        assert replay(spawn, tmp_path / "log").error_output == ""
        assert all(rank.poll() is None for rank in running)
    in_progress = b'mx_loads_in_progress{engine="vllm",model="acme/7b",phase="chain",scheme="real"}'
    abandoned = in_progress.replace(b"in_progress", b"abandoned_total")
    for alive in (3, 1):
        for rank in running[alive:]:
            rank.send_signal(signal.SIGKILL)
            assert rank.result() == -signal.SIGKILL
        # A rank is taken for gone ten seconds later.
        settled = abandoned + b" %d.0\n" % (3 - alive)
        wait_until(lambda settled=settled: settled in exporter.derived(), 60)
        page = exporter.derived()
        assert in_progress + b" %d.0\n" % alive in page
        assert page.count(b"mx_load_seconds_bucket") > 0
        assert replayed(spawn, tmp_path / "log") == page
        assert replayed(spawn, "--openmetrics", tmp_path / "log") == exporter.derived(
            Accept=OPENMETRICS
        )
    segments = list((tmp_path / "log").glob("events-*.jsonl"))
    if bounds == "compacted":
        assert (tmp_path / "log" / "mx-metrics.snapshot").exists()
        assert sum(path.stat().st_size for path in segments) <= 120_000
    else:
        assert len(segments) > 6
    check = spawn.python("-m", "mx_exporter", "check", tmp_path / "log")
    assert check.result() == 0
    assert check.output.endswith(" of 3 processes: nothing is faulty\n")
