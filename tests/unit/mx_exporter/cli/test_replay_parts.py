"""`mx-metrics replay` of a time, by group, and with other boundaries."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_exporter.cli.deriving import window_of
from mx_exporter.cli.main import main
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.snapshot_codec import dump
from mx_exporter.core.window import Window
from mx_exporter.errors import UsageError
from mx_exporter.loads.selection import Selection
from mx_exporter.offline.engines import process_pool
from mx_exporter.option_values import parse_time
from mx_log.files import SNAPSHOT_NAME
from tests.support import Lines, envelopes, load_logs
from tests.support.commands import Run
from tests.support.folding import follow
from tests.support.load_logs import ranks, segment
from tests.support.pages import parse
from tests.support.simulated_loads import simulate


def compact(directory: Path) -> None:
    """Put a snapshot in the place of all segments."""
    live = follow(directory)
    last = dict.fromkeys(live.fold.state.books, 0)
    (directory / SNAPSHOT_NAME).write_bytes(dump(CATALOG, live.fold.state, last))
    for path in directory.glob("events-*"):
        path.unlink()


def stamp(line: bytes) -> str:
    return str(json.loads(line)["timestamp"])


def at(time: str) -> Window:
    return window_of(None, None, parse_time(time))


# --------------------------------------------------------------------------------------
# Of a time


def test_a_window_gives_what_a_log_of_its_lines_gives(tmp_path: Path, run: Run) -> None:
    paths = ranks(tmp_path / "log")
    lines = load_logs.lines_of(paths)
    times = sorted(map(stamp, lines))
    rng = random.Random(5)
    for _ in range(10):
        since, until = sorted(rng.sample(times, 2))
        part = tmp_path / "part.log"
        part.write_bytes(b"\n".join(one for one in lines if since <= stamp(one) < until) + b"\n")
        right = run(part, output="openmetrics")[1]
        # The writers are gone; within ten seconds of the end they are taken for living.
        right = re.sub(rb"(?m)^.*mx_loads_(in_progress|abandoned).*\n", b"", right)
        code, out, err = run(
            tmp_path / "log", output="openmetrics", window=window_of(since, until, None)
        )
        assert re.sub(rb"(?m)^.*mx_loads_(in_progress|abandoned).*\n", b"", out) == right
        assert (code, err) == (0, ""), "no number is lost for lying outside"


def loads_at(run: Run, path: Path, time: str) -> dict[str, float]:
    out = run(path, window=at(time))[1].decode()
    return {
        f"{name} {dict(labels)['phase']}".strip(): value
        for (name, labels), value in parse(out).items()
        if name.startswith("mx_loads") and value
    }


def test_loads_in_progress_as_of_then(tmp_path: Path, run: Run) -> None:
    log = Lines()
    load = {"engine": "vllm", "model": "m", "load_id": "l"}
    events = {"load_started": {"model_role": "main"}, "load_phase_started": {"phase": "chain"}}
    path = segment(log, tmp_path, 0, (log(name, **load, **of) for name, of in events.items()))
    progress, abandoned = "mx_loads_in_progress", "mx_loads_abandoned_total"
    assert loads_at(run, path, "2026-01-01T00:00:00Z") == {}
    assert loads_at(run, path, "2026-01-01T00:00:00.999999Z") == {}
    assert loads_at(run, path, "2026-01-01T00:00:01Z") == {progress: 1}
    assert loads_at(run, path, "2026-01-01T00:00:02Z") == {f"{progress} chain": 1}
    # Whoever is gone is so ten seconds after its last event, as an exporter would have found.
    assert loads_at(run, path, "2026-01-01T00:00:11.999998Z") == {f"{progress} chain": 1}
    assert loads_at(run, path, "2026-01-01T00:00:12Z") == {f"{abandoned} chain": 1}
    assert loads_at(run, path, "2030-01-01") == {f"{abandoned} chain": 1}
    assert run(path, window=at("2030-01-01T00:00:00Z")) == run(path)


def test_a_snapshot_keeps_no_times(tmp_path: Path, run: Run) -> None:
    log = Lines()
    received = [log.header(), log("nixl_received", result="complete")]
    later = Lines("b" * 12, start=Lines.START + 100)
    for n, given in enumerate((log, later)):
        (tmp_path / f"events-{given.proc}-0.jsonl").write_bytes(
            b"".join(received) if n == 0 else later.header()
        )
    compact(tmp_path)
    (tmp_path / f"events-{later.proc}-1.jsonl").write_bytes(
        later.header(1) + later("nixl_received", result="complete")
    )
    complete = 'mx_nixl_receive_total{result="complete",scheme=""}'

    def value(window: Window) -> str:
        code, out, err = run(tmp_path, window=window)
        assert (code, err) == (0, "")
        return re.findall(rf"(?m)^{re.escape(complete)} (.*)$", out.decode())[0]

    assert value(at("2026-01-01T00:01:40Z")) == "1.0"
    assert value(at("2026-01-01T00:01:42Z")) == "2.0"
    assert value(window_of("2026-01-01T00:01:41.000000Z", None, None)) == "1.0"
    for window in (
        at("2026-01-01T00:01:39Z"),
        window_of("2026-01-01T00:01:39.000000Z", None, None),
    ):
        with pytest.raises(
            UsageError,
            match=r"mx-metrics\.snapshot: stands for events up to "
            r"2026-01-01T00:01:40\.000000Z, and keeps no times of them",
        ):
            run(tmp_path, window=window)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--at", "1h", "--until", "1h"], "--at and --until: give only one of them"),
        (["--since", "1h", "--until", "2h"], "--since: nothing is then or later and before"),
        (["--at", "noon"], "--at: bad value 'noon': not a time"),
        (["--group-by", "pod,"], "--group-by: bad value 'pod,': expected names between commas"),
        (["--group-by", "model"], "--group-by: 'model' is nothing that headers say; these are: p"),
        (["--buckets", "mx_load_seconds=1,1"], "expected FAMILY=BOUND,BOUND,... with ascending"),
        (["--buckets", "mx_load_seconds=inf"], "expected FAMILY=BOUND,BOUND,... with ascending"),
        (["--buckets", "mx_load_seconds=nan,1"], "expected FAMILY=BOUND,BOUND,... with ascending"),
        (["--buckets", "mx_load_seconds"], "expected FAMILY=BOUND,BOUND,... with ascending"),
        (["--buckets", "mx_build_info=1"], "--buckets: mx_build_info is not the name of a hist"),
    ],
)
def test_bad_options(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *arguments, str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


# --------------------------------------------------------------------------------------
# By group


def pods(directory: Path) -> dict[str, list[Path]]:
    """Logs of two pods with two ranks each, and of a process that says no pod."""
    directory.mkdir()
    rng = random.Random(3)
    found: dict[str, list[Path]] = {}
    for number, pod in enumerate(["a", "a", "b", "b", ""]):
        log = Lines(f"{number:012x}", start=Lines.START + number)
        named = {"pod_name": pod, "node_name": f"node of {pod}"} if pod else {}
        for n in range(2):
            lines = load_logs.loads(log, 2, rng, end=number % 2 == 0 or n == 0)
            found.setdefault(pod, []).append(segment(log, directory, n, lines, **named))
    return found


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_group_is_a_replay_of_its_processes(
    jobs: int, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    paths = pods(tmp_path / "log")
    code, out, err = run(tmp_path / "log", group_by=("pod", "node"), jobs=jobs)
    assert (code, err) == (0, "")
    expected = {}
    for pod, files in paths.items():
        more = {("node", f"node of {pod}" if pod else ""), ("pod", pod)}
        for (name, labels), value in parse(run(*files)[1].decode()).items():
            expected[name, tuple(sorted({*labels, *more}))] = value
    assert parse(out.decode()) == expected


def test_any_order_of_lines_gives_the_same_groups(tmp_path: Path, run: Run) -> None:
    paths = pods(tmp_path / "log")
    right = run(tmp_path / "log", group_by=("pod", "proc"), output="openmetrics")[1]
    lines = load_logs.lines_of([path for each in paths.values() for path in each])
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        (tmp_path / "all.log").write_bytes(envelopes.cri(lines))
        shuffled = run(tmp_path / "all.log", group_by=("pod", "proc"), output="openmetrics")
        assert shuffled == (0, right, "")


def test_what_a_snapshot_stands_for_is_of_no_group(tmp_path: Path, run: Run) -> None:
    log = Lines()
    segment(log, tmp_path, 0, [log("nixl_received", result="complete")], pod_name="a")
    compact(tmp_path)
    segment(log, tmp_path, 1, [log("nixl_received", result="complete")], pod_name="a")
    code, out, err = run(tmp_path, group_by=("pod",))
    assert code == 0
    for pod in ("", "a"):
        assert f'receive_total{{pod="{pod}",result="complete",scheme=""}} 1.0' in out.decode()
    assert "mx-metrics.snapshot: a snapshot does not tell processes apart; pod of what" in err


def test_a_group_is_known_by_a_header_that_is_not_folded(tmp_path: Path, run: Run) -> None:
    log = Lines()
    load = {"engine": "vllm", "model": "m", "load_id": "l"}
    lines = (log("load_started", model_role="main", **load) for _ in range(1))
    segment(log, tmp_path, 0, lines, pod_name="a")
    for scope in (
        {"window": window_of("2026-01-01T00:00:01.000000Z", None, None)},
        {"selection": Selection(models=frozenset({"m"}))},
    ):
        out = run(tmp_path, group_by=("pod",), **scope)[1].decode()
        assert 'abandoned_total{engine="vllm",model="m",phase="",pod="a",scheme=""} 1.0' in out
        assert "mx_build_info{" not in out


# --------------------------------------------------------------------------------------
# Of some loads


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of a few ranks, and of a process of the same that observes what nobody timed."""
    place = tmp_path_factory.mktemp("fleet")
    simulate(["retry", "killed"], pod="a", node="n-1", model="m-1", scheme="v1").write(place)
    simulate(["artifacts", "miss"], pod="b", node="n-2", rank=1, model="m-2").write(place)
    simulate(["retry"], pod="b", node="n-2", rank=2, model="m-1", engine="sglang").write(place)
    log = Lines("c" * 12, rank=3)
    segment(log, place, 1, observed(log), hostname="c")
    return place


def observed(log: Lines) -> Iterator[bytes]:
    """A load whose start is missing, with another one within it, one without any, and an event of
    none."""
    load = {"engine": "vllm", "model": "m-1"}
    other = {"engine": "x", "model": "m-2"}
    end = {"model_role": "main", "timed": False, "seconds": 3.0, "outcome": "success"}
    yield log("nixl_received", result="partial", load_id="cut")
    yield log("load_phase_finished", phase="chain", seconds=2.0, load_id="cut", **load)
    yield log("load_finished", load_id="cut", **other, **end)
    yield log("load_finished", **load, **end)
    yield log("nixl_received", result="complete")


@pytest.mark.parametrize(
    "options",
    [
        ["--pod", "a"],
        ["--pod", "models/b", "--pod", "c"],
        ["--node", "n-2", "--rank", "1"],
        ["--rank", "3"],
        ["--scheme", "v1"],
        ["--model", "m-1"],
        ["--model", "m-2", "--pod", "c"],
        ["--engine", "sglang", "--engine", "x"],
        ["--engine", "vllm", "--model", "m-1", "--since", "2026-01-01T00:00:20Z"],
        ["--model", "none"],
    ],
    ids=" ".join,
)
def test_a_filter_gives_what_the_events_that_it_means_give(
    options: list[str], fleet: Path, tmp_path: Path, mx_metrics: Run
) -> None:
    part, shuffled = tmp_path / "part.jsonl", tmp_path / "all.log"
    assert mx_metrics("events", *options, fleet, "-o", part)[0] == 0
    right = mx_metrics("replay", "--openmetrics", part)[1]
    lines = load_logs.lines_of(sorted(fleet.iterdir()))
    random.Random(1).shuffle(lines)
    shuffled.write_bytes(b"\n".join(lines) + b"\n")
    for logs in (fleet, shuffled):
        found = mx_metrics("replay", "--openmetrics", *options, logs)
        assert found == (0, right, ""), "no number is lost for not being meant"


def test_processes_filter_apart(
    fleet: Path, mx_metrics: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = mx_metrics("replay", "--model", "m-1", "--jobs", "1", fleet)
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    assert mx_metrics("replay", "--model", "m-1", "--jobs", "2", fleet) == right


def test_events_of_a_load_go_with_it(fleet: Path, mx_metrics: Run) -> None:
    def sums(*options: str) -> dict[str, float]:
        found = parse(mx_metrics("replay", *options, fleet)[1].decode())
        return {
            name: sum(value for (each, _), value in found.items() if each == name)
            for name in ("mx_load_seconds_count", "mx_nixl_receive_total", "mx_build_info")
        }

    every, first, second = sums(), sums("--model", "m-1"), sums("--model", "m-2")
    for name in ("mx_load_seconds_count", "mx_nixl_receive_total"):
        outside = name == "mx_nixl_receive_total"  # one that is of no load
        assert min(first[name], second[name]) > 0
        assert first[name] + second[name] + outside == every[name]
    assert first["mx_build_info"] == 0, "a header is of no load"
    assert sums("--pod", "a")["mx_build_info"] == 1


def test_what_is_no_event_is_said_whatever_is_meant(
    fleet: Path, tmp_path: Path, mx_metrics: Run
) -> None:
    log = tmp_path / "all.log"
    log.write_bytes(b"\n".join([*load_logs.lines_of(sorted(fleet.iterdir())), b'{"event":', b""]))
    every = mx_metrics("replay", log)
    assert "1 line rejected" in every[2]
    assert mx_metrics("replay", "--pod", "none", log) == (0, b"", every[2])


def test_a_snapshot_keeps_no_events(tmp_path: Path, run: Run) -> None:
    log = Lines()
    segment(log, tmp_path, 0, [log("nixl_received", result="complete")])
    compact(tmp_path)
    said = r"mx-metrics\.snapshot: stands for events of all loads, and keeps none of them, so what "
    with pytest.raises(UsageError, match=said):
        run(tmp_path, selection=Selection(ranks=frozenset({0})))
    late = window_of("2026-01-02T00:00:00.000000Z", None, None)
    found = run(tmp_path, selection=Selection(ranks=frozenset({0})), window=late)
    assert found == (0, b"", ""), "what lies before the window is not asked for"


# --------------------------------------------------------------------------------------
# Boundaries


def test_other_boundaries_over_an_old_log(tmp_path: Path, run: Run) -> None:
    log = Lines()
    seconds = [0.1, 1, 7, 7.5, 90]
    lines = [
        log("load_finished", engine="vllm", model_role="main", outcome="success", seconds=each)
        for each in seconds
    ]
    segment(log, tmp_path, 0, lines)
    catalog = CATALOG.with_buckets({"mx_load_seconds": (1.0, 7.25)})
    out = run(tmp_path, catalog=catalog, output="json")[1]
    (found,) = [one for one in map(json.loads, out.splitlines()) if "load_sec" in one["name"]]
    assert found["buckets"] == {"1.0": 2, "7.25": 3, "+Inf": 5}
    assert found["sum"] == sum(seconds)
    compact(tmp_path)
    code, out, err = run(tmp_path, catalog=catalog)
    assert code == 0
    assert "derived with another table, so mx_load_seconds holds only what is in the segments" in (
        err
    )
