"""What a real Prometheus makes of the page: the same numbers as a replay, exemplars, no counter
that falls when the exporter is started again, and the first event of a pod counted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.support import Prometheus, Spawner, serving, wait_until
from tests.support.pages import replayed

#: Does what it reads: so many receives for each line. Says when it has begun, and when it did.
RANK = """
import sys
from mx_emitter import enable_metrics, metrics
enable_metrics()
print("begun", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        with metrics.time_load("vllm", "acme/7b", "main"):
            metrics.record_nixl_receive("complete")
    print(int(line), flush=True)
"""

CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
- job_name: pod
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

#: Everything that is derived from the log, as an instant query asks for it.
DERIVED = '{job="pod",__name__=~"mx_.+",__name__!~"mx_exporter_.+"}'

RECEIVED = 'mx_nixl_receive_total{result="complete"}'

Series = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture
def server(
    spawn: Spawner, prometheus: str, tmp_path: Path
) -> Callable[[serving.Exporter], Prometheus]:
    def scraping(exporter: serving.Exporter) -> Prometheus:
        config = CONFIG.format(port=exporter.port)
        option = "--enable-feature=exemplar-storage"
        return Prometheus(spawn, prometheus, tmp_path / "prometheus", config, option)

    return scraping


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.mkdir()
    return path


def labels(given: dict[str, str]) -> frozenset[tuple[str, str]]:
    """Labels as Prometheus keeps them: an empty one is none. Without those of the target."""
    own = {"__name__", "job", "instance"}
    return frozenset((name, value) for name, value in given.items() if value and name not in own)


def asked(server: Prometheus, expression: str) -> dict[Series, float]:
    found = server.query(expression)
    return {
        (one["metric"].get("__name__", ""), labels(one["metric"])): float(one["value"][1])
        for one in found
    }


def expected_series(spawn: Spawner, log: Path) -> dict[Series, float]:
    """The series that Prometheus should have, from ``replay --json``."""
    found: dict[Series, float] = {}
    for one in map(json.loads, replayed(spawn, "--json", log).splitlines()):
        name = one["name"]
        base = name.removesuffix("_total")
        key = labels(one["labels"])
        if "created" in one:
            found[f"{base}_created", key] = one["created"]
        if one["type"] == "histogram":
            for bound, count in one["buckets"].items():
                # Prometheus writes boundaries as the page of OpenMetrics has them.
                found[f"{name}_bucket", key | {("le", bound)}] = count
            found[f"{name}_count", key] = one["count"]
            found[f"{name}_sum", key] = one["sum"]
        else:
            found[name, key] = one["value"]
    return found


def value(server: Prometheus, expression: str) -> float | None:
    """The one value of an expression; None while there is none."""
    found = list(asked(server, expression).values())
    assert len(found) <= 1, expression
    return found[0] if found else None


def start(spawn: Spawner, log: Path, port: int, **env: str) -> serving.Exporter:
    """An exporter at a given address, so that one after another is the same target."""
    return serving.start(spawn, log, "--retain-seconds", "0", port=port, env=env)


class Rank:
    """A rank that does what it is told."""

    def __init__(self, spawn: Spawner, log: Path, **env: str) -> None:
        env["MX_METRICS_DIR"] = str(log)
        self._process = spawn.python(
            "-c", RANK, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._says("begun")

    def receive(self, count: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"%d\n" % count)
        self._process.stdin.flush()
        self._says(str(count))

    def _says(self, word: str) -> None:
        assert self._process.stdout
        assert self._process.stdout.readline().decode() == f"{word}\n", self._process.error_output


def start_loads(spawn: Spawner, log: Path, *scenarios: str, **more: Any) -> support.Process:
    env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log), "RANK": "3"}
    return spawn.python("-m", "mx_demo.rank", *scenarios, "--speed", "300", env=env, **more)


def test_answers_are_those_of_a_replay_and_exemplars_arrive(
    server: Callable[[serving.Exporter], Prometheus], spawn: Spawner, log: Path
) -> None:
    begun = time.time()
    prometheus = server(start(spawn, log, support.free_port()))
    usual = start_loads(spawn, log, "alone", "peer", "artifacts", "retry", "miss", "fallback")
    killed = start_loads(spawn, log, "killed", stdout=subprocess.PIPE)
    assert killed.stdout
    assert killed.stdout.readline() == b"receiving\n"
    killed.kill()
    assert killed.result() == -signal.SIGKILL
    assert usual.result() == 0, usual.error_output

    expected = expected_series(spawn, log)
    assert len(expected) > 300
    wait_until(lambda: asked(prometheus, DERIVED).keys() == expected.keys(), limit=60)
    wait_until(lambda: asked(prometheus, DERIVED) == expected, limit=60)

    # Of the ranks' loads one has no end.
    assert value(prometheus, "sum(mx_load_seconds_count)") == 6
    assert value(prometheus, "sum(mx_loads_abandoned_total)") == 1

    # Exemplars: those of the page, which say which rank and load a long one was.
    window = {"start": f"{begun - 60:.0f}", "end": f"{time.time() + 60:.0f}"}

    def exemplars() -> list[dict[str, Any]]:
        found = prometheus.ask("query_exemplars", query="mx_load_seconds_bucket", **window)
        return [one for series in found or [] for one in series["exemplars"]]

    found = wait_until(exemplars)
    logged = [
        json.loads(line) for path in log.glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    loads = {(one["load_id"], one["seconds"]) for one in logged if one["event"] == "load_finished"}
    assert {(one["labels"]["load_id"], float(one["value"])) for one in found} <= loads
    assert {one["labels"]["rank"] for one in found} == {"3"}


COMPACTING = {
    "MX_METRICS_ENABLED": "1",
    "MX_METRICS_SEGMENT_BYTES": "8192",
    "MX_METRICS_RETAIN_BYTES": "16384",
}


@pytest.mark.long
def test_no_counter_falls_when_the_exporter_is_started_again(
    server: Callable[[serving.Exporter], Prometheus], spawn: Spawner, log: Path
) -> None:
    rank = Rank(spawn, log, **COMPACTING)
    exporter = start(spawn, log, support.free_port(), **COMPACTING)
    prometheus = server(exporter)

    total = 0
    for end in (signal.SIGKILL, signal.SIGTERM, None):
        # More than is retained: what this exporter leaves is a snapshot and some segments.
        total += 100
        rank.receive(100)
        wait_until(lambda: value(prometheus, RECEIVED) == total, 60)  # noqa: B023
        wait_until(lambda: (value(prometheus, "mx_exporter_segments_removed_total") or 0) > 0, 60)
        if end is not None:
            exporter.process.send_signal(end)
            assert exporter.process.result() == (-end if end is signal.SIGKILL else 0)
            exporter = start(spawn, log, exporter.port, **COMPACTING)
    assert value(prometheus, "changes(process_start_time_seconds[10m])") == 2

    counters = {
        name
        for name, _ in asked(prometheus, DERIVED)
        if re.search("_(total|count|sum|bucket)$", name)
    }
    assert {"mx_nixl_receive_total", "mx_load_seconds_sum", "mx_load_seconds_bucket"} <= counters
    for name in counters:
        resets = asked(prometheus, f"resets({name}[10m])")
        assert resets
        assert set(resets.values()) == {0}, name
    # Nor do they begin anew.
    assert value(prometheus, RECEIVED.replace("_total", "_created")) is not None
    assert set(asked(prometheus, "changes(mx_nixl_receive_created[10m])").values()) == {0}


@pytest.mark.long
def test_increase_sees_the_first_event_of_a_fresh_pod(
    server: Callable[[serving.Exporter], Prometheus], spawn: Spawner, log: Path
) -> None:
    prometheus = server(start(spawn, log, support.free_port()))
    rank = Rank(spawn, log, MX_METRICS_ENABLED="1")
    # The rank has said who it is, and nothing else: that is a series, at zero.
    wait_until(lambda: value(prometheus, RECEIVED) == 0, 60)
    rank.receive(1)
    wait_until(lambda: value(prometheus, RECEIVED) == 1, 60)
    seen = value(prometheus, f"increase({RECEIVED}[10m])")
    assert seen is not None
    assert seen >= 1
    # A series that is born with its first event is not seen so: there was no zero before it.
    assert value(prometheus, "increase(mx_load_seconds_count[10m])") in (None, 0)
