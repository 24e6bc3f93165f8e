"""``python -m mx_emitter`` reports whether events would arrive, and creates nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mx_emitter.commands.doctor import as_text, examine
from mx_emitter.settings import read_settings
from tests import support
from tests.support.emitting import Program


def _examine(directory: Path, **environ: str) -> Any:
    return examine(
        read_settings({"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(directory), **environ})
    )


def test_all_is_well(tmp_path: Path) -> None:
    report = _examine(tmp_path)
    assert report.healthy
    assert report.facts["directory"] == str(tmp_path)
    assert report.facts["our_bytes"] == 0
    assert report.facts["free_bytes"] > 0
    assert "Events will arrive." in as_text(report)


@pytest.mark.parametrize("kind", ["missing", "missing deep"])
def test_the_doctor_reports_that_a_missing_directory_will_be_made(
    kind: str, tmp_path: Path
) -> None:
    report = _examine(tmp_path / ("a/b/c" if kind == "missing deep" else "a"))
    assert report.healthy
    assert any("will be made" in remark for remark in report.remarks)
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_reports_obstacles(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    full = tmp_path / "full"
    full.mkdir()
    with open(full / "events-aaaaaaaaaaaa-0.jsonl", "wb") as ballast:
        ballast.truncate(2000)
    (tmp_path / "loop").symlink_to("loop")
    for report, words in [
        (_examine(tmp_path, MX_METRICS_ENABLED="no"), "metrics are off"),
        (_examine(tmp_path, MX_METRICS_ENABLED="ture"), "metrics are off"),
        (_examine(file), "no directory"),
        (_examine(file / "below"), "cannot be looked at"),
        (_examine(tmp_path / "loop"), "cannot be looked at"),
        (_examine(full, MX_METRICS_MAX_BYTES="2000"), "the limit is 2000"),
    ]:
        assert not report.healthy
        assert len(report.obstacles) == 1
        assert words in report.obstacles[0]
        assert f"OBSTACLE: {report.obstacles[0]}" in as_text(report)


def test_the_doctor_reports_a_limit_that_its_volume_is_small_for(small_disk: Path) -> None:
    report = _examine(small_disk)
    assert report.healthy
    assert report.facts["max_bytes"] == 128 * 1024
    assert [remark for remark in report.remarks if "131072 holds instead" in remark]


def test_the_doctor_reports_bad_values(tmp_path: Path) -> None:
    report = _examine(tmp_path, MX_METRICS_SEGMENT_BYTES="much")
    assert report.healthy
    assert "MX_METRICS_SEGMENT_BYTES" in report.remarks[0]


def test_files_of_the_clients_own_metrics_are_remarked_on(tmp_path: Path) -> None:
    (tmp_path / "counter_7.db").touch()
    (remark,) = [each for each in _examine(tmp_path).remarks if ".db" in each]
    assert remark.startswith(f"{tmp_path} has 1 .db file of a client")
    (tmp_path / "histogram_7.db").touch()
    assert any("has 2 .db files of" in each for each in _examine(tmp_path).remarks)


def test_what_headers_will_say_of_the_engine_is_shown(tmp_path: Path) -> None:
    report = _examine(tmp_path, GPU_TYPE="H100", TP_SIZE="8")
    assert "says        tensor_parallel_size 8, gpu_type H100\n" in as_text(report)
    assert "says        -\n" in as_text(_examine(tmp_path))


def test_a_rank_that_nothing_tells_is_unknown(tmp_path: Path) -> None:
    text = as_text(_examine(tmp_path))
    assert "rank        unknown\n" in text
    assert "None (" not in text


def test_the_command(program: Program, spawn: support.Spawner) -> None:
    env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(program.directory), "RANK": "3"}
    good = spawn.python("-m", "mx_emitter", env=env)
    machine = spawn.python("-m", "mx_emitter", "doctor", "--json", env=env)
    off = spawn.python("-m", "mx_emitter", "--json", env={"MX_METRICS_DIR": "/dev/null"})
    wrong = spawn.python("-m", "mx_emitter", "--no-such-option")
    assert (good.result(), machine.result(), off.result(), wrong.result()) == (0, 0, 1, 2)
    assert "3 (from RANK)" in good.output
    facts = json.loads(machine.output)["facts"]
    assert (facts["rank"], facts["rank_from"], facts["enabled"]) == (3, "RANK", True)
    assert len(json.loads(off.output)["obstacles"]) == 2
    assert not program.directory.exists()
    assert good.error_output == machine.error_output == off.error_output == ""
