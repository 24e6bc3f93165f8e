"""`mx-metrics backfill`: which samples there are, and what becomes of the file."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_exporter.cli.main import main
from mx_exporter.offline import sorted_runs
from mx_log.files import SNAPSHOT_NAME
from tests.support import Lines, load_logs
from tests.support.load_logs import ranks, segment

START = Lines.START

Printed = Callable[..., str]


def backfill(*arguments: object) -> int:
    return main(["backfill", *map(str, arguments)])


def samples(text: str, name: str) -> list[tuple[str, float, int]]:
    """Labels, value and seconds after the start of the samples of a name, in their order."""
    found = re.findall(rf"(?m)^{name}(?:\{{(.*)\}})? (\S+) (\d+)$", text)
    return [(labels, float(value), int(time) - START) for labels, value, time in found]


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Printed:
    def printed(*arguments: object) -> str:
        assert backfill(*arguments, "-o", "-") == 0
        return capfd.readouterr().out

    return printed


def test_samples_of_each_step(tmp_path: Path, lines: Printed) -> None:
    log = Lines(step=7)
    path = segment(
        log,
        tmp_path,
        0,
        (log("nixl_received", result="complete") for _ in range(4)),
        pod_name="a",
        node_name="n",
    )
    text = lines(path, "--step", "10s")
    assert text.endswith("\n# EOF\n")
    # Events at 7, 14, 21 and 28 s, the header at 0 s; the process is gone ten seconds later.
    labels = 'node="n",pod="a",result="complete"'
    assert samples(text, "mx_nixl_receive_total")[:5] == [
        (labels, value, at) for value, at in ((0, 0), (1, 10), (2, 20), (4, 30), (4, 40))
    ]
    # A zero series is there as soon as the page has it, and none before.
    (other,) = [s for s in [samples(text, "mx_nixl_receive_total")[5:10]] if s]
    assert [(value, at) for _, value, at in other] == [(0, at) for at in (0, 10, 20, 30, 40)]
    assert samples(text, "mx_build_info")[0][2] == 0


def test_what_only_grows_begins_at_zero(tmp_path: Path, lines: Printed) -> None:
    log = Lines(step=30)
    load = {"engine": "vllm", "model_role": "main", "outcome": "success"}
    path = segment(log, tmp_path, 0, (log("load_finished", seconds=3, **load) for _ in "a"))
    text = lines(path, "--step", "10s")
    for name, value in (("count", 1), ("sum", 3), ('bucket{.*le="5.0".*}', 1)):
        found = re.findall(rf"(?m)^mx_load_seconds_{name}.* (\S+) (\d+)$", text)
        assert [(float(v), int(at) - START) for v, at in found] == [
            (0, 20),
            (value, 30),
            (value, 40),
        ]


def test_loads_in_progress_end_with_their_process(tmp_path: Path, lines: Printed) -> None:
    log = Lines(step=5)
    started = (log("load_started", engine="vllm", model_role="main", load_id="l") for _ in "a")
    path = segment(log, tmp_path, 0, started)
    text = lines(path, "--step", "5s")
    shown = [(value, at) for _, value, at in samples(text, "mx_loads_in_progress")]
    assert shown == [(1, 5), (1, 10), (0, 15)]
    gone = [(value, at) for _, value, at in samples(text, "mx_loads_abandoned_total")]
    assert gone == [(0, 5), (0, 10), (1, 15)]


def test_any_order_of_lines_gives_the_same_bytes(
    tmp_path: Path, lines: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ranks(tmp_path / "log", end=False)
    right = lines(tmp_path / "log", "--step", "1s")
    assert right.count("\n") > 1_000
    shuffled = load_logs.lines_of(paths) * 2
    random.Random(3).shuffle(shuffled)
    (tmp_path / "all.log").write_bytes(b"\n".join(shuffled))
    monkeypatch.setattr(sorted_runs, "_KEPT", 1_000)
    monkeypatch.setattr(sorted_runs, "_AT_ONCE", 3)
    assert lines(tmp_path / "all.log", "--step", "1s") == right


def test_labels_are_those_of_headers_or_as_said(tmp_path: Path, lines: Printed) -> None:
    for number in range(2):
        log = Lines(f"{number:012x}")
        given = (log("nixl_received", result="complete") for _ in range(2))
        segment(log, tmp_path, 0, given, pod_name=f"p{number}", pod_namespace="x")
    last = lambda *more: {  # noqa: E731
        labels: value
        for labels, value, _ in samples(lines(tmp_path, *more), "mx_nixl_receive_total")
        if "complete" in labels
    }
    tail = 'result="complete"'
    assert last() == {f'namespace="x",pod="p{n}",{tail}': 2 for n in range(2)}
    # What is no longer told apart counts together.
    assert last("--label", "pod=", "--label", "job=j") == {f'job="j",namespace="x",{tail}': 4}
    assert last("--label", "pod=both") == {f'namespace="x",pod="both",{tail}': 4}


def test_only_samples_of_a_time(tmp_path: Path, lines: Printed) -> None:
    log = Lines(step=10)
    path = segment(log, tmp_path, 0, (log("nixl_received", result="complete") for _ in range(5)))
    bounds = ("--since", "2026-01-01T00:00:11Z", "--until", "2026-01-01T00:00:40Z")
    text = lines(path, "--step", "10s", *bounds)
    shown = [(v, at) for labels, v, at in samples(text, "mx_nixl_receive_total") if "com" in labels]
    assert shown == [(2, 20), (3, 30)]


def test_the_file_is_there_whole_or_not_at_all(
    small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path / "log")
    out = small_disk / "out.om"
    out.write_bytes(b"old")
    assert backfill(tmp_path / "log", "-o", out, "--step", "1s") == 1
    assert f"{out} cannot be written: No space left on device" in capfd.readouterr().err
    assert os.listdir(small_disk) == ["out.om"]
    assert out.read_bytes() == b"old"


def test_the_last_three_hours_are_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Lines(start=time.time() - 60)
    path = segment(log, tmp_path, 0, ())
    assert backfill(path, "-o", tmp_path / "o") == 0
    said = capfd.readouterr()
    assert "some samples are of the last three hours" in said.err
    assert said.out.startswith("promtool tsdb create-blocks-from openmetrics --max-block-dura")
    assert backfill(path, "-o", tmp_path / "o", "--until", "3h") == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "-o and --remote-write: give one of them"),
        (["-o", "x", "--step", "0s"], "--step: bad value '0s': expected whole seconds, such as"),
        (["-o", "x", "--step", "1.5"], "--step: bad value '1.5': expected whole seconds"),
        (["-o", "x", "--label", "le=1"], "--label: bad value 'le=1': expected NAME=VALUE"),
        (["-o", "x", "--label", "__a=1"], "expected NAME=VALUE, with the name of a label"),
        (["-o", "x", "--label", "engine=1"], "--label: mx_load_seconds has a label engine of its"),
    ],
)
def test_bad_options(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backfill(tmp_path, *arguments) == 2
    assert said in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_snapshot_keeps_no_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / SNAPSHOT_NAME).write_text(json.dumps({}))
    assert backfill(tmp_path, "-o", tmp_path / "o") == 2
    assert "a snapshot keeps no times, so what it stands for cannot" in capsys.readouterr().err
