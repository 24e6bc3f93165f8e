"""``mx-metrics loads``: which loads there were, how long each took, and why."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mx_exporter
from mx_exporter.loads.model import Load
from tests import support
from tests.support.commands import Run
from tests.support.envelopes import ENVELOPES
from tests.support.folding import compact
from tests.support.load_logs import lines_of
from tests.support.simulated_loads import changed, in_order, simulate
from tests.support.stories import stories
from tests.support.terminal import output_of
from tests.support.writers import Writer

GOLDEN = support.ROOT / "tests" / "golden"

#: What each golden file holds, by its name.
PRINTED = {
    "stories.loads.txt": ["loads", "--all"],
    "stories.loads.jsonl": ["loads", "--json"],
    "stories.loads.csv": ["loads", "--csv"],
    "stories.starts.txt": ["loads", "--starts"],
    "stories.peers.txt": ["loads", "--by", "peer"],
    "stories.schemes.txt": ["loads", "--by", "scheme"],
    "stories.slowest.txt": ["loads", "--slowest", "3", "--pod", "usual"],
}

#: Pods whose loads are explained in a golden file: each that has a story of its own.
EXPLAINED = [
    "usual", "first", "stopped", "captured", "overlapping", "nested", "clock", "disorder", "lost",
]  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("logs") / "stories"
    place.mkdir()
    stories(place)
    return place


@pytest.fixture(scope="module")
def loads(logs: Path) -> list[Load]:
    return in_order(mx_exporter.timeline(str(logs), jobs=1))


def golden(name: str, text: bytes) -> None:
    """Compare with a golden file; with ``WRITE_GOLDEN=1`` it is written again."""
    path = GOLDEN / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_bytes(text)
    assert text.decode() == path.read_text("utf-8")


@pytest.mark.parametrize("name", PRINTED)
def test_stories_are_told_as_they_were(
    name: str, logs: Path, mx_metrics: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs.parent)
    code, out, err = mx_metrics(*PRINTED[name], "stories", "--jobs", "1")
    assert (code, err) == (0, "")
    golden(name, out)


def test_stories_are_explained_as_they_were(
    logs: Path, loads: list[Load], mx_metrics: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs.parent)
    told = b""
    for pod in EXPLAINED:
        load = [load for load in loads if load.process.pod == pod][-1]
        told += mx_metrics("explain", load.load_id or "", "stories", "--jobs", "1")[1] + b"\n"
    golden("stories.explain.txt", told)


def test_each_kind_of_story_is_among_them(loads: list[Load]) -> None:
    outcomes = Counter(load.outcome for load in loads)
    assert set(outcomes) == {"success", "error", "killed", "unknown"}
    assert any(load.clock_stepped for load in loads)
    assert any(load.missing for load in loads)
    assert any(load.load_id is None for load in loads)
    assert len({load.process.version for load in loads}) == 2


def test_any_number_of_processes_prints_the_same(logs: Path, mx_metrics: Run) -> None:
    for output in ("--json", "--csv", "--all", "--starts"):
        one, two = (mx_metrics("loads", output, logs, "--jobs", jobs) for jobs in "12")
        assert one == two


def test_csv_has_a_row_a_load_and_a_header(logs: Path, loads: list[Load], mx_metrics: Run) -> None:
    _, out, _ = mx_metrics("loads", "--csv", logs)
    rows = list(csv.DictReader(io.StringIO(out.decode())))
    assert [row["load_id"] for row in rows] == [load.load_id or "" for load in loads]
    assert [row["seconds"] for row in rows] == [
        "" if load.seconds is None else str(load.seconds) for load in loads
    ]
    hanging = [row for row in rows if row["why"].startswith("in receive from")]
    assert {(row["attempts"], row["failed_attempts"]) for row in hanging} == {("1", "0")}


@pytest.mark.parametrize(
    ("options", "admits"),
    [
        (["--failed"], lambda load: load.outcome in ("error", "killed", "unknown")),
        (["--running"], lambda _: False),
        (["--pod", "usual"], lambda load: load.process.pod == "usual"),
        (["--pod", "models/usual"], lambda load: load.process.pod == "usual"),
        (["--pod", "usual", "--pod", "first"], lambda load: load.process.pod in ("usual", "first")),
        (["--node", "node-0"], lambda load: load.process.node == "node-0"),
        (["--rank", "3"], lambda load: load.rank == 3),
        (["--model", "example/model"], lambda _: True),
        (["--model", "model"], lambda _: False),
        (["--engine", "sglang"], lambda _: False),
        (["--scheme", "new"], lambda load: load.scheme == "new"),
        (["--scheme", "new", "--rank", "1"], lambda load: (load.scheme, load.rank) == ("new", 1)),
        (["--since", "2026-01-01T00:00:01Z"], lambda load: load.began >= "2026-01-01T00:00:01"),
        (["--until", "2026-01-01"], lambda load: load.began < "2026-01-01"),
    ],
)
def test_filters(
    options: list[str],
    admits: Callable[[Load], bool],
    logs: Path,
    loads: list[Load],
    mx_metrics: Run,
) -> None:
    code, out, err = mx_metrics("loads", "--json", logs, *options)
    expected = [load.load_id for load in loads if admits(load)]
    assert (code, err) == (0, "")
    assert [json.loads(line)["load_id"] for line in out.splitlines()] == expected
    _, table, _ = mx_metrics("loads", logs, *options)
    count = len(expected)
    assert table.decode().startswith(f"{count} load{'s' if count != 1 else ''}, ")


@pytest.mark.parametrize("by", ["pod", "node", "peer", "model", "scheme", "version"])
def test_groups_are_of_all_loads_or_attempts(
    by: str, logs: Path, loads: list[Load], mx_metrics: Run
) -> None:
    _, out, _ = mx_metrics("loads", "--by", by, logs)
    head, *rows, said = out.decode().splitlines()[2:]
    assert head.split()[0] == by.upper()
    counts = [list(map(int, row.split()[1:4])) for row in rows]
    total = sum(len(load.attempts) for load in loads) if by == "peer" else len(loads)
    assert sum(count for count, _, _ in counts) == total
    assert all(count == well + others for count, well, others in counts)
    assert said.startswith("exact quantiles")


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_the_terminal(columns: int, logs: Path, spawn: support.Spawner) -> None:
    for option in ("--all", "--starts"):
        text = output_of(spawn, ["loads", option, logs], columns=columns)
        assert COLOUR.search(text)
        lines = COLOUR.sub("", text).splitlines()
        table = [line for line in lines if not line.startswith("Next:")]
        assert len(table) > 15
        assert max(map(len, table)) <= columns


def test_no_color(logs: Path, spawn: support.Spawner) -> None:
    environment = {"NO_COLOR": "1"}
    text = output_of(spawn, ["loads", "--all", logs], columns=200, environment=environment)
    assert "\x1b" not in text
    assert "ixxxxxxx" in text


def test_what_is_no_terminal_gets_whole_lines_without_colour(logs: Path, mx_metrics: Run) -> None:
    _, out, _ = mx_metrics("loads", "--all", logs)
    assert b"\x1b" not in out
    assert "…" not in out.decode()


HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "two\nlines\r",
    "\x00",
    "\u202eright to left",
    'a "quote", b',
    "=1+1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_from_a_log_cannot_write_on_the_terminal(
    text: str, tmp_path: Path, mx_metrics: Run
) -> None:
    for rank, scenario in enumerate(("retry", "killed", "artifacts")):
        lines = simulate([scenario], rank=rank).lines
        kept = ("event", "timestamp", "proc", "load_id", "outcome", "level")
        hostile = [
            changed(
                line,
                **{
                    key: text
                    for key, value in json.loads(line).items()
                    if isinstance(value, str) and key not in kept
                },
            )
            for line in lines
        ]
        name = f"events-{json.loads(lines[0])['proc']}-0.jsonl"
        (tmp_path / name).write_bytes(b"".join(hostile))
    for options in (["--all"], ["--starts"], ["--by", "peer"], ["--by", "pod"]):
        code, out, err = mx_metrics("loads", tmp_path, *options)
        assert (code, err) == (0, "")
        assert all(line.isprintable() for line in out.decode().split("\n"))
    _, out, _ = mx_metrics("loads", "--json", tmp_path)
    found = [json.loads(line) for line in out.splitlines()]
    assert {load["pod"] for load in found} == {text}
    for load in found:
        code, out, err = mx_metrics("explain", load["load_id"], tmp_path)
        assert (code, err) == (0, "")
        assert all(line.isprintable() for line in out.decode().split("\n"))
    _, out, _ = mx_metrics("loads", "--csv", tmp_path)
    assert len(out.splitlines()) == 4
    assert len(list(csv.DictReader(io.StringIO(out.decode())))) == 3


def test_loads_that_run_come_first_with_phase_and_age(
    tmp_path: Path, mx_metrics: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(["fallback", "killed"], rank=1).write(tmp_path)
    lines = simulate(["hang"], rank=0, start=time.time() - 100).lines
    monkeypatch.setenv("MX_METRICS_DIR", str(tmp_path))
    with Writer(tmp_path, proc=json.loads(lines[0])["proc"]) as writer:
        writer.write(b"".join(lines[1:]))
        for logs in ([], [tmp_path]):
            code, out, err = mx_metrics("loads", *logs)
            assert (code, err) == (0, "")
            head, _, _, first, second, third, *_ = out.decode().splitlines()
            assert "1 succeeded" in head
            assert head.endswith(", 1 killed, 1 running")
            found = re.search(r" (\S+)  running .* in receive from worker-\d since (\S+) s$", first)
            assert found
            assert 80 < float(found[2]) < float(found[1])
            assert " killed " in second
            assert "  1  " in third
        _, out, _ = mx_metrics("loads", "--running", "--json")
        (load,) = map(json.loads, out.splitlines())
        assert (load["outcome"], load["seconds"], load["ended"]) == ("running", None, None)
        assert load["phases"]["chain"] is None
    assert b"running" not in mx_metrics("loads", "--csv")[1]


def test_a_copy_of_a_log_does_not_say_whether_its_writer_lives(
    tmp_path: Path, mx_metrics: Run
) -> None:
    place = tmp_path / "from-a-collector.jsonl"
    place.write_bytes(b"".join(simulate(["killed"]).lines))
    _, out, _ = mx_metrics("loads", "--json", place)
    (load,) = map(json.loads, out.splitlines())
    assert load["outcome"] == "unknown"
    assert re.fullmatch(r"in receive from worker-\d, and no event says how it ended", load["why"])


@pytest.mark.parametrize("shape", ENVELOPES)
def test_every_shape_of_a_log_gives_the_same_loads(
    shape: str, tmp_path: Path, mx_metrics: Run
) -> None:
    plain = [line.rstrip(b"\n") for line in simulate(["retry", "artifacts"]).lines]
    for name, lines in (("plain", plain), ("shape", plain)):
        envelope = ENVELOPES["plain" if name == "plain" else shape]
        (tmp_path / f"{name}.log").write_bytes(envelope(lines))
    told = [mx_metrics("loads", "--csv", tmp_path / f"{name}.log") for name in ("plain", "shape")]
    assert told[0] == told[1]
    assert len(told[0][1].splitlines()) == 3


def test_what_a_snapshot_stands_for_cannot_be_listed_and_is_said(
    logs: Path, loads: list[Load], tmp_path: Path, mx_metrics: Run
) -> None:
    for path in logs.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    count = sum(len(set(lines_of([path]))) for path in logs.iterdir())
    compact(tmp_path)
    code, out, err = mx_metrics("loads", "--json", tmp_path)
    assert code == 0
    left = sum(len(set(lines_of([path]))) for path in tmp_path.glob("events-*"))
    (said,) = err.splitlines()
    assert f"{count - left} events are left in a snapshot alone" in said
    known = {(load.load_id, load.process.proc) for load in loads}
    found = [json.loads(line) for line in out.splitlines()]
    assert {(load["load_id"], load["proc"]) for load in found} <= known
    assert len(found) < len(known)


def test_what_holds_no_event_ends_in_1_and_is_said(tmp_path: Path, mx_metrics: Run) -> None:
    code, out, err = mx_metrics("loads", tmp_path)
    assert (code, out.decode()) == (1, "0 loads, 0 pods: nothing\n")
    assert str(tmp_path) in err
    code, out, err = mx_metrics("loads", tmp_path / "nowhere")
    assert (code, out) == (2, b"")
    assert "nowhere" in err


def test_what_cannot_be_read_is_said_after_what_can(logs: Path, mx_metrics: Run) -> None:
    broken = logs.parent / "events-bbbbbbbbbbbb-0.jsonl.gz"
    broken.write_bytes(b"\x1f\x8b\x08 no more")
    code, out, err = mx_metrics("loads", "--csv", logs, broken)
    assert code == 1
    assert out == mx_metrics("loads", "--csv", logs)[1]
    assert str(broken) in err


def test_a_reader_that_goes_away_ends_it_quietly(logs: Path, spawn: support.Spawner) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        process = spawn.python("-m", "mx_exporter", "loads", logs, stdout=stdout)
    assert process.result() == 1
    assert process.error_output == ""


def test_lines_in_any_order_and_twice(logs: Path, tmp_path: Path, mx_metrics: Run) -> None:
    """As collectors bring them, when processes of different pods come one through the other."""
    lines = [line + b"\n" for path in sorted(logs.iterdir()) for line in lines_of([path])]
    lines += lines[::7]
    random.Random(0).shuffle(lines)
    for number in range(3):
        (tmp_path / f"{number}.log").write_bytes(b"".join(lines[number::3]))

    def told(place: Path) -> list[dict[str, Any]]:
        """Of a copy nobody knows who of its writers lives, and so what became of some."""
        _, out, _ = mx_metrics("loads", "--json", *sorted(place.iterdir()), "--jobs", "1")
        found = [json.loads(line) for line in out.splitlines()]
        return [load | {"outcome": load["ended"] is None, "why": ""} for load in found]

    assert told(tmp_path) == told(logs)
