"""Real ranks, a real exporter, and a replay beside it: the same bytes."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support import Process, Spawner, free_port, wait_until

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

ACCEPT = {"text": "text/plain", "openmetrics": "application/openmetrics-text"}


class Exporter:
    def __init__(self, spawn: Spawner, directory: Path, **env: str) -> None:
        self.port = free_port()
        listen = f"127.0.0.1:{self.port}"
        self.process = spawn.python(
            *("-m", "mx_exporter", "serve", "--dir", directory, "--listen", listen), env=env
        )

    def page(self, output: str = "text") -> bytes:
        """The families that are derived from the log; empty while there is no page."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/metrics", headers={"Accept": ACCEPT[output]}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            return b""
        except OSError:
            assert self.process.poll() is None, self.process.error_output
            return b""
        return b"".join(line for line in text.splitlines(keepends=True) if is_derived(line))


def is_derived(line: bytes) -> bool:
    name = line.split(b" ")[2] if line.startswith((b"# HELP", b"# TYPE", b"# UNIT")) else line
    own = name.startswith(b"mx_exporter_")
    return line.startswith(b"# EOF") or (name.startswith(b"mx_") and not own)


def replayed(spawn: Spawner, directory: Path, *options: str) -> bytes:
    process = spawn.python("-m", "mx_exporter", "replay", *options, directory)
    assert process.result() == 0
    assert process.error_output == ""
    return process.output.encode()


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


@pytest.mark.parametrize("bounds", BOUNDS)
def test_live_equals_replay_also_after_kills(
    bounds: str, tmp_path: Path, spawn: Spawner, start_rank
) -> None:
    exporter = Exporter(spawn, tmp_path / "log", **BOUNDS[bounds])
    running = [start_rank(rank) for rank in range(3)]
    wait_until(exporter.page)
    # Beside writers that write, a replay finds nothing wrong.
    while not all("stuck" in rank.output for rank in running):
        replayed(spawn, tmp_path / "log")
        assert all(rank.poll() is None for rank in running)
    in_progress = b'mx_loads_in_progress{engine="vllm",model="acme/7b",phase="chain",scheme="real"}'
    abandoned = in_progress.replace(b"in_progress", b"abandoned_total")
    for alive in (3, 2, 0):
        for rank in running[alive:]:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL)
                assert rank.result() == -signal.SIGKILL
        page = exporter.page()
        assert in_progress + b" %d.0\n" % alive in page
        assert abandoned + b" %d.0\n" % (3 - alive) in page
        assert page.count(b"mx_load_seconds_bucket") > 0
        assert replayed(spawn, tmp_path / "log") == page
        assert replayed(spawn, tmp_path / "log", "--openmetrics") == exporter.page("openmetrics")
    segments = list((tmp_path / "log").glob("events-*.jsonl"))
    if bounds == "compacted":
        assert (tmp_path / "log" / "mx-metrics.snapshot").exists()
        assert sum(path.stat().st_size for path in segments) <= 120_000
    else:
        assert len(segments) > 6
    check = spawn.python("-m", "mx_exporter", "check", tmp_path / "log")
    assert check.result() == 0
    assert check.output.endswith(" of 3 processes: nothing is faulty\n")
