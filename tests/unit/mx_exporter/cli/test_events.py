"""The lines of a log, unwrapped, in order of time, and as tables."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from mx_demo.fleet import write_fleet
from tests import support
from tests.support.commands import Run
from tests.support.folding import compact
from tests.support.simulated_loads import simulate

SQL = (support.ROOT / "docs" / "sql.md").read_text()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two pods, a rank each."""
    place = tmp_path / "logs"
    place.mkdir()
    simulate(["retry", "killed"], pod="a", node="n-1", model="m-1", scheme="v1").write(place)
    simulate(["artifacts", "miss"], pod="b", node="n-2", rank=1, model="m-2").write(place)
    return place


def lines_of(place: Path) -> list[bytes]:
    return [line for path in sorted(place.iterdir()) for line in path.read_bytes().splitlines()]


def records(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_each_line_comes_once_as_it_was_written_in_order_of_time(
    logs: Path, mx_metrics: Run
) -> None:
    code, out, err = mx_metrics("events", logs, *sorted(logs.iterdir()))
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(lines_of(logs))
    stamps = [record["timestamp"] for record in records(out)]
    assert stamps == sorted(stamps)


def wrapped(line: bytes, dice: random.Random) -> bytes:
    text = line.decode()
    return dice.choice(
        [
            line,
            json.dumps({"log": text + "\n", "stream": "stdout", "time": "x"}).encode(),
            b"2026-01-01T00:00:00Z stdout F " + line,
            json.dumps({"_source": {"message": text}}).encode(),
            json.dumps({"jsonPayload": json.loads(line)}).encode(),
            b"[pod/a/b] " + line,
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_a_collector_put_around_lines_is_taken_off(
    logs: Path, mx_metrics: Run, tmp_path: Path, seed: int
) -> None:
    _, plain, _ = mx_metrics("events", logs)
    dice = random.Random(seed)
    shipped = tmp_path / "shipped.gz"
    lines = [wrapped(line, dice) for line in lines_of(logs)]
    shipped.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    code, out, _ = mx_metrics("events", shipped)
    assert code == 0
    assert list(map(json.loads, out.splitlines())) == records(plain)
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(out)
    assert mx_metrics("replay", kept)[1] == mx_metrics("replay", logs)[1]


def test_an_event_that_is_spread_over_lines_comes_on_one(
    logs: Path, mx_metrics: Run, tmp_path: Path
) -> None:
    pretty = tmp_path / "pretty.json"
    pretty.write_text(json.dumps(list(map(json.loads, lines_of(logs))), indent=4))
    _, out, _ = mx_metrics("events", pretty)
    assert records(out) == records(mx_metrics("events", logs)[1])


def chosen(logs: Path, mx_metrics: Run, *options: str) -> list[dict[str, Any]]:
    code, out, err = mx_metrics("events", *options, logs)
    assert (code, err) == (0, "")
    return records(out)


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (["--event", "source_attempted"], lambda e: e["event"] == "source_attempted"),
        (["--rank", "1"], lambda e: e["rank"] == 1),
        (["--scheme", "v1"], lambda e: e["scheme"] == "v1"),
        (["--pod", "a"], lambda e: e["rank"] == 0),
        (["--pod", "models/b"], lambda e: e["rank"] == 1),
        (["--node", "n-1", "--node", "n-3"], lambda e: e["rank"] == 0),
        (["--model", "m-2"], lambda e: e["rank"] == 1 and "load_id" in e),
        (["--engine", "vllm"], lambda e: "load_id" in e),
        (["--where", "phase=receive"], lambda e: e.get("phase") == "receive"),
        (["--where", "count=32"], lambda e: e.get("count") == 32),
        (["--where", "pid=100"], lambda e: e.get("pid") == 100),
        (["--where", "load_id=null"], lambda _: False),
        (
            ["--where", "phase=receive", "--where", "outcome=error"],
            lambda e: e.get("phase") == "receive" and e.get("outcome") == "error",
        ),
        (["--since", "2026-01-01T00:00:20Z"], lambda e: e["timestamp"] >= "2026-01-01T00:00:20"),
        (["--until", "2026-01-01T00:00:20Z"], lambda e: e["timestamp"] < "2026-01-01T00:00:20"),
        (["--until", "2025-12-31"], lambda _: False),
    ],
)
def test_filters(logs: Path, mx_metrics: Run, options: list[str], fits: Any) -> None:
    every = chosen(logs, mx_metrics)
    assert chosen(logs, mx_metrics, *options) == [event for event in every if fits(event)]


def test_one_load_and_one_process(logs: Path, mx_metrics: Run) -> None:
    every = chosen(logs, mx_metrics)
    load_id = next(event["load_id"] for event in every if event.get("load_id"))
    found = chosen(logs, mx_metrics, "--load", load_id)
    assert found == [event for event in every if event.get("load_id") == load_id]
    proc = every[0]["proc"]
    assert len(chosen(logs, mx_metrics, "--proc", proc)) == sum(e["proc"] == proc for e in every)


def test_events_of_an_engine_come_too(logs: Path, mx_metrics: Run) -> None:
    path = sorted(logs.iterdir())[0]
    line = json.loads(path.read_bytes().splitlines()[0])
    own = {**line, "event": "weights_seen", "seq": 9999, "shape": [1, 2]}
    with path.open("a") as file:
        file.write(json.dumps(own) + "\n")
    assert chosen(logs, mx_metrics, "--event", "weights_seen") == [own]


@pytest.mark.parametrize("text", ["", "phase", "=x"])
def test_a_condition_that_is_none(logs: Path, mx_metrics: Run, text: str) -> None:
    code, _, err = mx_metrics("events", "--where", text, logs)
    assert code == 2
    assert f"--where: bad value {text!r}: expected FIELD=VALUE" in err


def test_what_only_a_snapshot_holds_is_said(logs: Path, mx_metrics: Run) -> None:
    count = len(lines_of(logs))
    compact(logs)
    code, out, err = mx_metrics("events", logs)
    assert (code, out) == (0, b"")
    assert f"{count} events are left in a snapshot alone" in err


def test_an_event_that_is_lost_is_left_in_no_snapshot(logs: Path, mx_metrics: Run) -> None:
    path = sorted(logs.iterdir())[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    count = len(lines_of(logs))
    compact(logs)
    assert f"mx-metrics: {count} events are left in a snapshot" in mx_metrics("events", logs)[2]


def test_nothing_there_is_1_and_no_such_path_is_2(tmp_path: Path, mx_metrics: Run) -> None:
    assert mx_metrics("events", tmp_path)[0] == 1
    assert mx_metrics("events", tmp_path / "none")[0] == 2


# --------------------------------------------------------------------------------------
# Files


def test_a_file_is_there_whole(logs: Path, mx_metrics: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    code, out, _ = mx_metrics("events", "-o", target, logs)
    assert (code, out) == (0, b"")
    assert target.read_bytes() == mx_metrics("events", logs)[1]
    assert target.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_a_file_that_cannot_be_written_is_said_and_nothing_is_left(
    logs: Path, mx_metrics: Run, tmp_path: Path, name: str
) -> None:
    code, _, err = mx_metrics("events", "-o", tmp_path / "none" / name, logs)
    assert code == 1
    assert "cannot be written: No such file or directory" in err
    assert list(tmp_path.iterdir()) == [logs]


FULL = """
mount -t tmpfs -o size={size} none {disk}
cd {disk}
{python} -m mx_exporter events {given} {logs}
code=$?
ls -A
exit $code
"""


@pytest.mark.parametrize(
    ("given", "size"), [("-o out.jsonl", "16k"), ("-o out.parquet", "8k"), ("--tables out", "16k")]
)
def test_a_full_disk_leaves_no_file(
    logs: Path, tmp_path: Path, spawn: support.Spawner, given: str, size: str
) -> None:
    own_mounts = support.unshare("--user", "--map-root-user", "--mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = FULL.format(disk=disk, size=size, python=sys.executable, given=given, logs=logs)
    process = spawn(*own_mounts, "sh", "-c", script)
    assert process.result() == 1, process.error_output
    assert process.output == ""  # nothing is left there
    assert "cannot be written: " in process.error_output
    assert process.error_output.count("\n") == 1


def test_parquet_has_types_by_the_schema(logs: Path, mx_metrics: Run, tmp_path: Path) -> None:
    path = sorted(logs.iterdir())[0]
    line = json.loads(path.read_bytes().splitlines()[0])
    odd = {**line, "event": "weights_seen", "seq": 9998, "shape": [1, 2], "seconds": "soon"}
    with path.open("a") as file:
        file.write(json.dumps(odd) + "\n")
    target = tmp_path / "events.parquet"
    assert mx_metrics("events", "-o", target, logs)[0] == 0
    table = pq.read_table(target)
    assert str(table.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    assert str(table.schema.field("seq").type) == "int64"
    assert str(table.schema.field("seconds").type) == "double"
    assert "source_worker_id" in str(table.schema.field("loads").type)
    rows = table.to_pylist()
    every = chosen(logs, mx_metrics)
    assert [row["seq"] for row in rows] == [event["seq"] for event in every]
    for row, event in zip(rows, every, strict=True):
        for key, value in event.items():
            if key in ("timestamp", "loads") or key in json.loads(row["more"] or "{}"):
                continue
            assert row[key] == value, key
    (last,) = [row for row in rows if row["event"] == "weights_seen"]
    assert json.loads(last["more"]) == {"shape": [1, 2], "seconds": "soon"}


def test_a_table_for_each_event(logs: Path, mx_metrics: Run, tmp_path: Path) -> None:
    target = tmp_path / "tables"
    assert mx_metrics("events", "--tables", target, logs)[0] == 0
    every = chosen(logs, mx_metrics)
    assert {path.stem for path in target.iterdir()} == {event["event"] for event in every}
    total = sum(pq.read_table(path).num_rows for path in target.iterdir())
    assert total == len(every)
    code, _, err = mx_metrics("events", "--tables", target, logs)
    assert code == 2
    assert "is not empty; name a folder that is new or empty" in err


def test_ctrl_c_leaves_no_file(tmp_path: Path, spawn: support.Spawner) -> None:
    """Standard input never ends: the command waits in the middle of its work."""
    process = spawn.python(
        "-m", "mx_exporter", "events", "-o", tmp_path / "out.jsonl", "-", stdin=subprocess.PIPE
    )
    support.wait_until(lambda: any(path.is_file() for path in tmp_path.iterdir()))
    process.send_signal(signal.SIGINT)
    assert process.result() == 130
    assert not any(path.is_file() for path in tmp_path.iterdir())


# --------------------------------------------------------------------------------------
# Questions in SQL


QUESTIONS = re.findall(r"^## (.+?)\n.*?```sql\n(.+?)```", SQL, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fleet")
    write_fleet(place, 8, start=1_767_225_600.0)
    return place


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "query"), QUESTIONS)
def test_each_question_has_an_answer(
    fleet: Path,
    mx_metrics: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    query: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert mx_metrics("events", "-o", "events.parquet", *sorted(fleet.iterdir()))[0] == 0
    assert duckdb.sql(query).fetchall(), question


def test_the_lines_can_be_asked_as_they_are(
    fleet: Path, mx_metrics: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (query,) = re.findall(r"`(SELECT [^`]*read_json_auto[^`]*)`", SQL)
    monkeypatch.chdir(tmp_path)
    assert mx_metrics("events", "-o", "events.jsonl", *sorted(fleet.iterdir()))[0] == 0
    names = [each["event"] for each in records((tmp_path / "events.jsonl").read_bytes())]
    assert dict(duckdb.sql(query).fetchall()) == Counter(names)
