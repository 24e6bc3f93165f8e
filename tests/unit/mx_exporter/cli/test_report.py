"""``mx-metrics report``: one file, of all that the logs tell."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from mx_demo.fleet import write_fleet
from mx_exporter.cli.main import main
from tests import support
from tests.support.html import Page


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("logs") / "fleet"
    write_fleet(out, 6, start=1_700_000_000.0)
    return out


def words(path: Path) -> str:
    html = path.read_text(encoding="utf-8")
    return " ".join(Page(re.sub(r"</(td|th|li|p)>", r" </\1>", html)).text.split())


def test_a_report_of_a_fleet(fleet: Path, tmp_path: Path) -> None:
    out = tmp_path / "loads.html"
    assert main(["report", f"{fleet}/*", "-o", str(out), "--jobs", "1"]) == 0
    page, text = Page(out.read_text(encoding="utf-8")), words(out)
    assert "24 loads of 6 pods" in text
    assert "0 + 2 failed, killed" in text
    assert re.search(r"rank 0 of engine-\d was killed in receive from worker-\d", text)
    assert re.search(r"events logged \d{3}", text)
    assert "lost 0" in text
    assert f"mx-metrics report '{fleet}/*' -o {out}" in text
    (segment, *_) = sorted(fleet.rglob("*.jsonl"))
    assert hashlib.sha256(segment.read_bytes()).hexdigest() in text
    # Nothing from elsewhere, and nothing that could ask for it.
    assert all(link.startswith("#") for link in page.links)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loads.html"]


def test_filters_and_several_processes(fleet: Path, tmp_path: Path) -> None:
    out = tmp_path / "loads.html"
    options = ["--pod", "engine-1", "--rank", "2", "--jobs", "2"]
    assert main(["report", f"{fleet}/*", "-o", str(out), *options]) == 0
    assert "1 load of 1 pod" in words(out)


def test_two_are_compared(fleet: Path, tmp_path: Path) -> None:
    out, slow = tmp_path / "loads.html", tmp_path / "slow"
    write_fleet(slow, 6, start=1_700_000_000.0, seed=1)
    assert main(["report", f"{fleet}/*", f"{slow}/*", "-o", str(out), "--jobs", "1"]) == 0
    text = words(out)
    assert "A and B compared" in text
    assert "Where the mean of successes went from" in text
    assert text.index("A and B compared") < text.index("48 loads of 6 pods")
    assert main(["report", f"{fleet}/*", str(tmp_path), "-o", str(out)]) == 1
    assert "One of the two has no load" in words(out)


def test_what_cannot_be_read_is_in_it(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, broken = tmp_path / "loads.html", tmp_path / "events-aaaaaaaaaaaa-0.jsonl.gz"
    broken.write_bytes(b"\x1f\x8b\x08 no more")
    assert main(["report", str(fleet / "engine-0"), str(broken), "-o", str(out)]) == 1
    assert "What could not be read" in words(out)
    assert str(broken) in words(out)
    assert str(broken) in capsys.readouterr().err


def test_an_old_report_stays_where_no_new_one_can_be_written(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(fleet), "-o", str(tmp_path / "no" / "x.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    out = tmp_path / "loads.html"
    out.write_text("old")
    assert main(["report", str(tmp_path / "nowhere"), "-o", str(out)]) == 2
    assert out.read_text() == "old"


def test_standard_input_and_output(fleet: Path, spawn: support.Spawner, tmp_path: Path) -> None:
    whole = b"".join(path.read_bytes() for path in sorted(fleet.rglob("*.jsonl")))
    given = tmp_path / "given.jsonl"
    given.write_bytes(whole)
    with given.open("rb") as stdin:
        process = spawn.python("-m", "mx_exporter", "report", "-", "-o", "-", stdin=stdin)
        assert process.result() == 0
    shown = process.output
    assert "24</strong> loads of 6 pods" in shown
    assert "it can be read but once" in shown
