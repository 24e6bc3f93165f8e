"""``mx-metrics diff`` on logs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.commands import Run
from tests.support.simulated_loads import simulate


def release(place: Path, slowness: float, *, seed: int, kill: bool = False) -> Path:
    """Eight pods of two ranks."""
    place.mkdir()
    for pod in range(8):
        for rank in range(2):
            simulate(
                ["killed" if kill and pod == 7 else "peer"],
                seed=seed,
                pod=f"pod-{pod}",
                rank=rank,
                slowness=slowness,
                scheme=place.name,
                start=1_767_225_600 + 60 * pod,
            ).write(place)
    return place


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """The second one takes twice as long, and two ranks of it are killed."""
    return release(tmp_path / "v1", 1.0, seed=1), release(tmp_path / "v2", 2.0, seed=2, kill=True)


def test_what_became_slower_is_said(sides: tuple[Path, Path], mx_metrics: Run) -> None:
    code, out, err = mx_metrics("diff", *sides)
    text = out.decode()
    assert (code, err) == (0, "")
    first, second, _, head, *rows = text.splitlines()
    assert first.startswith(f"A {sides[0]}  scheme v1  version 0.7.0  16 loads, 8 starts of pods")
    assert second.endswith("14 succeeded")
    assert head.split()[:2] == ["seconds,", "successes"]
    assert rows[0].startswith("load ")
    assert "  slower  " in rows[0]
    assert "too few loads to say" in rows[1]  # the far quantile
    assert "Where the mean of successes went from " in text
    assert "failed 0 → 0, killed 0 → 2" in text


def test_the_same_input_prints_the_same(sides: tuple[Path, Path], mx_metrics: Run) -> None:
    assert mx_metrics("diff", *sides, "--jobs", "1") == mx_metrics("diff", *sides)
    other = mx_metrics("diff", *sides, "--seed", "7")[1]
    assert other != mx_metrics("diff", *sides)[1]


def test_a_baseline_stands_for_its_logs(
    sides: tuple[Path, Path], mx_metrics: Run, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline.json"
    mx_metrics("diff", sides[0], sides[0], "--save", baseline)
    code, out, err = mx_metrics("diff", baseline, sides[1])
    assert (code, err) == (0, "")
    assert out == mx_metrics("diff", *sides)[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"mx_metrics_baseline":2,"written_by":"9","name":"","loads":[]}',
            "a baseline of format 2",
        ),
        ('{"mx_metrics_baseline":1,"loads":[', "damaged baseline: "),
        ('{"mx_metrics_baseline":1,"written_by":"1","name":"","loads":[{}]}', "damaged baseline: "),
    ],
)
def test_a_baseline_that_cannot_be_used(
    sides: tuple[Path, Path], mx_metrics: Run, tmp_path: Path, text: str, said: str
) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(text)
    code, out, err = mx_metrics("diff", baseline, sides[1])
    assert (code, out) == (1, b"")
    assert said in err


def test_a_gate_that_fails_is_exit_4(
    sides: tuple[Path, Path], mx_metrics: Run, tmp_path: Path
) -> None:
    junit = tmp_path / "junit.xml"
    gates = ["--fail", "receive.p50 > +20%", "--fail", "killed > 9", "--fail", "load.p95 > +1s"]
    code, out, _ = mx_metrics("diff", *sides, *gates, "--junit", junit)
    assert code == 4
    *_, first, second, third = out.decode().splitlines()
    assert first.startswith("FAIL  receive.p50 +")
    assert second == "ok  killed 0 → 2   (killed > 9)"
    assert third.startswith("not judged  load.p95: too few loads to say")
    suite = ElementTree.fromstring(junit.read_text())
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "3", "failures": "1", "skipped": "1",
    }  # fmt: skip
    assert mx_metrics("diff", *sides, "--fail", "receive.p50 > +900%")[0] == 0


def test_json_and_markdown(sides: tuple[Path, Path], mx_metrics: Run) -> None:
    _, out, _ = mx_metrics("diff", *sides, "--json")
    found = json.loads(out)
    assert found["a"]["loads"] == 16
    assert found["b"]["outcomes"] == {"killed": 2, "success": 14}
    load = found["figures"][0]
    assert (load["name"], load["quantile"], load["verdict"]) == ("load", 0.5, "slower")
    parts = found["mean"]["parts"]
    change = sum(part["change"] for part in parts)
    assert change == pytest.approx(found["mean"]["b"] - found["mean"]["a"])
    _, out, _ = mx_metrics("diff", *sides, "--markdown")
    assert "| load | p50 | " in out.decode()


def test_group_by_group(sides: tuple[Path, Path], mx_metrics: Run) -> None:
    _, out, _ = mx_metrics("diff", *sides, "--by", "scheme", "--json")
    groups = [json.loads(line) for line in out.splitlines()]
    assert [group["group"] for group in groups] == ["scheme v1", "scheme v2"]
    assert [group["a"]["loads"] for group in groups] == [16, 0]
    code, text, _ = mx_metrics("diff", *sides, "--by", "model")
    assert code == 0
    assert text.startswith(b"model example/model\n\nA ")


def test_no_load_at_all(sides: tuple[Path, Path], mx_metrics: Run) -> None:
    code, _, err = mx_metrics("diff", *sides, "--pod", "none")
    assert code == 1
    assert "there is no load to compare" in err
