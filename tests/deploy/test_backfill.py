"""What a real Prometheus answers of a time in which nobody scraped: what a replay says of it."""

from __future__ import annotations

import math
import random
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from mx_demo.fleet import write_fleet
from mx_exporter.cli.deriving import window_of
from mx_exporter.cli.main import main
from mx_exporter.core.builtin import CATALOG
from mx_exporter.exposition.grouped import grouped_collectors
from mx_exporter.exposition.text import render
from mx_exporter.offline.fold_logs import fold_logs
from mx_exporter.offline.scope import Scope
from mx_exporter.push import remote_write
from mx_exporter.push.remote_write import RemoteWriter
from tests.support import Prometheus, Spawner, serving, wait_until
from tests.support.pages import Samples, parse, replayed

STEP = 15
START = 1_767_225_600

#: Moments of each pod that are asked for.
COUNT = 3
POD = ("pod", "namespace", "node")

Key = tuple[str, tuple[tuple[str, str], ...]]

CONFIG = "global: {scrape_interval: 1m}\n"


def stamp(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def at(folder: Path, seconds: float) -> Samples:
    """What a replay of one pod says of that time, with the labels of the pod; zeros that Prometheus
    keeps as no label left out."""
    folded = fold_logs(
        CATALOG,
        (str(folder),),
        scope=Scope(window_of(None, None, stamp(seconds)), group_by=POD),
        jobs=1,
    )
    collectors = grouped_collectors(CATALOG, POD, folded.outcome.states)
    page = render(family for each in collectors for family in each.collect())
    return {
        (name, tuple(pair for pair in labels if pair[1])): value
        for (name, labels), value in parse(page.decode()).items()
    }


def expected(folder: Path, seconds: float) -> Samples:
    """What an instant query gives: the last step's samples, and a zero where what only grows
    begins at the next step."""
    step = math.floor(seconds / STEP) * STEP
    now, then = at(folder, step), at(folder, step + STEP)
    coming = {key: value for key, value in then.items() if key not in now and grows(key[0])}
    begun = {series_of(key) for key, value in coming.items() if value}
    return now | {key: 0.0 for key in coming if series_of(key) in begun}


def grows(name: str) -> bool:
    return name.endswith(("_total", "_bucket", "_count", "_sum"))


def series_of(key: Key) -> Key:
    name, labels = key
    bare = re.sub("_(bucket|count|sum)$", "", name)
    return bare, tuple(pair for pair in labels if pair[0] != "le")


def labels_of(metric: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in metric.items() if k not in ("__name__", "job", "pod")))


def asked(server: Prometheus, pod: str, seconds: float) -> Samples:
    query = f'{{__name__=~"mx_.+",pod="{pod}"}}'
    found = {}
    for one in server.query(query, time=f"{seconds:.3f}"):
        labels = {k: v for k, v in one["metric"].items() if k not in ("__name__", "job")}
        found[one["metric"]["__name__"], tuple(sorted(labels.items()))] = float(one["value"][1])
    return found


def instants(folder: Path, rng: random.Random, count: int) -> Iterator[float]:
    """Times between the first and the last event of a pod."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    times = sorted(line.partition('"timestamp":"')[2][:26] for line in lines)
    first, last = (
        datetime.fromisoformat(time).replace(tzinfo=timezone.utc).timestamp()
        for time in (times[0], times[-1])
    )
    for _ in range(count):
        yield round(rng.uniform(first + STEP, last), 3)


def agrees(server: Prometheus, pods: list[Path]) -> None:
    """Moments of each pod are answered as a replay has them."""
    rng = random.Random(11)
    families: set[str] = set()
    for folder in pods:
        for seconds in instants(folder, rng, COUNT):
            right = expected(folder, seconds)
            assert asked(server, folder.name, seconds) == right, (folder.name, seconds)
            families |= {name for name, _ in right}
    shown = {name.partition("_seconds")[0] for name in families}
    assert {"mx_load", "mx_loads_in_progress", "mx_build_info"} <= shown


@pytest.mark.long
def test_instant_queries_of_blocks_are_those_of_a_replay(
    spawn: Spawner,
    prometheus: str,
    promtool: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_fleet(tmp_path / "fleet", 8, start=START, seed=3)
    pods = sorted((tmp_path / "fleet").iterdir())
    out = tmp_path / "out.om"
    assert main(["backfill", *map(str, pods), "-o", str(out), "--label", "job=mx"]) == 0
    said = capsys.readouterr().out
    assert said == (
        f"promtool tsdb create-blocks-from openmetrics --max-block-duration=720h {out} DATADIR\n"
    )
    place = tmp_path / "prometheus"
    place.mkdir()
    _, *arguments = said.replace("DATADIR", f"{place}/data").split()
    subprocess.run([promtool, *arguments], check=True, capture_output=True)
    server = Prometheus(spawn, prometheus, place, CONFIG, "--storage.tsdb.retention.time=100y")
    wait_until(lambda: server.query("vector(1)"), 60)
    agrees(server, pods)
    # What only grows began at zero, so nothing that happened is missed.
    name = "mx_load_seconds_count"
    grown = server.query(
        f"sum(max_over_time({name}[30d]) - min_over_time({name}[30d]))",
        time=str(START + 20 * 86_400),
    )
    loads = [
        value
        for folder in pods
        for key, value in at(folder, START + 10**7).items()
        if key[0] == name
    ]
    assert float(grown[0]["value"][1]) == sum(loads) > 0


class Interrupted(RemoteWriter):
    """Ctrl-C after so many requests."""

    left = 0

    def flush(self) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        super().flush()


@pytest.mark.long
def test_remote_write_that_was_interrupted_and_run_again_doubles_nothing(
    spawn: Spawner,
    prometheus: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_fleet(tmp_path / "fleet", 4, start=START, seed=5)
    pods = sorted((tmp_path / "fleet").iterdir())
    server = Prometheus(
        spawn,
        prometheus,
        tmp_path / "prometheus",
        CONFIG + "storage: {tsdb: {out_of_order_time_window: 36500d}}\n",
        "--storage.tsdb.retention.time=100y",
        "--web.enable-remote-write-receiver",
    )
    wait_until(lambda: server.query("vector(1)"), 60)
    monkeypatch.setattr(remote_write, "BATCH", 100)
    url = f"http://{server.address}/api/v1/write"
    command = ["backfill", *map(str, pods), "--label", "job=mx", "--remote-write", url]
    with monkeypatch.context() as patched:
        patched.setattr(remote_write, "RemoteWriter", Interrupted)
        for left in (1, 30, 11):
            patched.setattr(Interrupted, "left", left)
            assert main(command) == 130
    assert main(command) == 0
    sent, *_ = capsys.readouterr().out.split()
    agrees(server, pods)
    held = server.query('{job="mx"}[30d]', time=str(START + 20 * 86_400))
    assert sum(len(one["values"]) for one in held) == int(sent) > 1_000
    for one in held:
        times = [time for time, _ in one["values"]]
        assert times == sorted(set(times))


def test_one_push_by_remote_write(spawn: Spawner, prometheus: str, tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet", 1, start=START)
    (pod,) = (tmp_path / "fleet").iterdir()
    receiver = "--web.enable-remote-write-receiver"
    server = Prometheus(spawn, prometheus, tmp_path / "prometheus", CONFIG, receiver)
    wait_until(lambda: server.query("vector(1)"), 60)
    url = f"http://{server.address}/api/v1/write"
    push = spawn.python(
        *("-m", "mx_exporter", "push", pod, "--remote-write", url, "--job", "j"),
        env={"POD_NAME": "p"},
    )
    assert push.result() == 0, push.error_output
    assert f"pushed to {url}, as pod p" in push.error_output
    found = {
        (one["metric"]["__name__"], labels_of(one["metric"])): float(one["value"][1])
        for one in server.query('{job="j",pod="p",__name__!~"mx_exporter_.+"}')
    }
    page = parse(replayed(spawn, pod).decode())
    assert found == {
        (name, tuple(pair for pair in labels if pair[1])): value
        for (name, labels), value in page.items()
    }


#: A rank that logs in rounds, a quarter of a second or more apart.
RANK = """
import sys, time
from mx_emitter import enable_metrics, metrics
enable_metrics()
for _ in range(int(sys.argv[1])):
    for number in range(10):
        metrics.record_attempt("random", "success")
        metrics.observe_transfer_seconds("random", "success", 0.3 * 2 ** number)
    time.sleep(0.25)
"""

#: Seconds between two scrapes, and of the window of a rate.
PACE, WINDOW = 1, 5


@pytest.mark.long
def test_rates_and_quantiles_are_those_of_a_server_that_scraped_live(
    spawn: Spawner, prometheus: str, promtool: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    exporter = serving.start(spawn, log)
    config = (
        f"global: {{scrape_interval: {PACE}s}}\nscrape_configs:\n- job_name: mx\n"
        f"  static_configs: [{{targets: ['{exporter.address}']}}]\n"
    )
    live = Prometheus(spawn, prometheus, tmp_path / "live", config)
    wait_until(lambda: live.query('up{job="mx"} == 1'))
    env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log)}
    assert spawn.python("-c", RANK, "48", env=env).result() == 0
    name = "mx_p2p_source_attempts_total"
    logged = exporter.get().sample(f'{name}{{policy="random",result="success",scheme=""}}')
    wait_until(lambda: [float(one["value"][1]) for one in live.query(f"sum({name})")] == [logged])

    out, place = tmp_path / "out.om", tmp_path / "filled"
    command = ["backfill", str(log), "-o", str(out), "--step", f"{PACE}s", "--label", "job=mx"]
    assert main(command) == 0
    place.mkdir()
    blocks = ["tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=720h"]
    subprocess.run([promtool, *blocks, out, place / "data"], check=True, capture_output=True)
    filled = Prometheus(spawn, prometheus, place, CONFIG)
    wait_until(lambda: filled.query("vector(1)"))

    lines = b"".join(path.read_bytes() for path in log.glob("events-*")).splitlines()
    times = [
        datetime.fromisoformat(each.partition(b'"timestamp":"')[2][:26].decode())
        .replace(tzinfo=timezone.utc)
        .timestamp()
        for each in lines
        if b'"source_attempted"' in each
    ]
    moments = range(math.ceil(min(times)) + WINDOW + 1, math.floor(max(times)) - 1)
    assert len(moments) >= 3  # whatever the part of a second at which the rank began

    def both(query: str, moment: int) -> tuple[float, float]:
        found = [server.query(query, time=str(moment)) for server in (live, filled)]
        return float(found[0][0]["value"][1]), float(found[1][0]["value"][1])

    grown = f"sum by (policy) (rate({name}[{WINDOW}s]))"
    buckets = f"sum by (le) (rate(mx_p2p_transfer_seconds_bucket[{WINDOW}s]))"
    for moment in moments:
        # A scrape comes up to a step before the moment, at either end of the window.
        seen, computed = both(grown, moment)
        missed = sum(
            end - PACE < time <= end for end in (moment - WINDOW, moment) for time in times
        )
        assert seen > 0
        assert abs(seen - computed) <= missed / WINDOW
        # Each size is as frequent as the others at any time.
        seen, computed = both(f"histogram_quantile(0.5, {buckets})", moment)
        assert computed == pytest.approx(seen, rel=0.25)
