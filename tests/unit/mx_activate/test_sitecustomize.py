"""The `sitecustomize`: PYTHONPATH, and those of other people."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import mx_activate
from tests import support

SITE = str(support.ROOT / "emitter" / "mx_activate" / "site")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [SITE]),
        ("", [SITE]),
        ("/a:/b", [SITE, "/a", "/b"]),
        (f"/a:{SITE}:/b", [SITE, "/a", "/b"]),
        ("/a:", [SITE, "/a", ""]),
    ],
)
def test_pythonpath_is_extended_and_never_replaced(before: str | None, after: list[str]) -> None:
    environ = {"X": "1"} if before is None else {"X": "1", "PYTHONPATH": before}
    found = mx_activate.with_site(environ)
    assert found == {"X": "1", "PYTHONPATH": os.pathsep.join(after)}
    assert mx_activate.with_site(found) == found


def put(directory: Path, code: str) -> str:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(code)
    return str(directory)


def run_on_path(spawn: support.Spawner, *path: str, on: str = "1") -> support.Process:
    done = spawn(
        sys.executable,
        "-c",
        "import sys, mx_activate; print(mx_activate.active(), sys.modules['sitecustomize'])",
        env={"MX_METRICS_ENABLED": on, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.result() == 0, done.error_output
    return done


@pytest.mark.parametrize("on", ["0", "1"])
def test_the_next_sitecustomize_runs_as_well(
    on: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    theirs = put(tmp_path / "theirs", "print('theirs', __name__, __file__)")
    last = put(tmp_path / "last", "print('last')")
    done = run_on_path(spawn, SITE, theirs, last, on=on)
    assert done.output.splitlines()[0] == f"theirs sitecustomize {theirs}/sitecustomize.py"
    assert "last" not in done.output.split()
    assert str(on == "1") in done.output
    assert f"{theirs}/sitecustomize.py" in done.output.splitlines()[1]  # and importers get it
    assert done.error_output == ""


def test_a_sitecustomize_that_runs_ours_in_turn(spawn: support.Spawner, tmp_path: Path) -> None:
    ours = os.path.join(SITE, "sitecustomize.py")
    theirs = put(tmp_path / "theirs", f"import runpy\nprint('theirs')\nrunpy.run_path({ours!r})\n")
    done = run_on_path(spawn, SITE, theirs)
    assert done.output.split().count("theirs") == 1
    done = run_on_path(spawn, theirs, SITE)
    assert done.output.split().count("theirs") == 1
    assert done.output.splitlines()[1].startswith("True")


def test_our_sitecustomize_twice_on_the_path(spawn: support.Spawner, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(SITE)
    copy = put(tmp_path / "copy", (Path(SITE) / "sitecustomize.py").read_text())
    theirs = put(tmp_path / "theirs", "print('theirs')")
    done = run_on_path(spawn, SITE, str(tmp_path / "again"), copy, SITE, theirs)
    assert done.output.split().count("theirs") == 1
    assert done.output.splitlines()[1].startswith("True")


def test_python_reports_a_faulty_sitecustomize(spawn: support.Spawner, tmp_path: Path) -> None:
    theirs = put(tmp_path / "theirs", "raise ValueError('theirs')")
    done = spawn(
        sys.executable,
        "-c",
        "import mx_activate; print(mx_activate.active())",
        env={"MX_METRICS_ENABLED": "1", "PYTHONPATH": os.pathsep.join([SITE, theirs])},
    )
    assert (done.result(), done.output) == (0, "True\n")
    assert "ValueError: theirs" in done.error_output


def test_run_becomes_the_command(spawn: support.Spawner, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getpid(), sys.argv, os.environ['PYTHONPATH'])"
    done = spawn.python(
        "-m", "mx_emitter", "run", "--", sys.executable, "-c", code, "--", "-x",
        env={"PYTHONPATH": "/a"},
    )  # fmt: skip
    assert done.result() == 0, done.error_output
    assert done.output.split("\n")[0] == f"{done.pid} ['-c', '--', '-x'] {SITE}:/a"
    status = spawn.python("-m", "mx_emitter", "run", "sh", "-c", "exit 7")
    missing = spawn.python("-m", "mx_emitter", "run", "--", "no-such-command")
    refused = spawn.python("-m", "mx_emitter", "run", "--", str(tmp_path))
    nothing = spawn.python("-m", "mx_emitter", "run", "--")
    results = [each.result() for each in (status, missing, refused, nothing)]
    assert results == [7, 127, 126, 2]
    assert missing.error_output.count("\n") == refused.error_output.count("\n") == 1
