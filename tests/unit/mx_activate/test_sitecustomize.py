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


#: A sitecustomize that runs the next one as ddtrace's does: it takes its directory off the path,
#: and imports.
CHAINING = """
import os, sys
print({name!r}, __name__)
place = os.path.dirname(__file__)
if place in sys.path:
    at = sys.path.index(place)
    del sys.path[at]
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize
    except ImportError:
        sys.modules["sitecustomize"] = mine
    finally:
        sys.path.insert(at, place)
"""


def put_all(tmp_path: Path, names: tuple[str, ...]) -> list[str]:
    """The path of sitecustomizes that chain, the last one of which, ``own``, does not."""
    return [
        put(tmp_path / name, "print('own', __name__)")
        if name == "own"
        else put(tmp_path / name, CHAINING.format(name=name))
        for name in names
    ]


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("names", [("a", "own"), ("a", "b", "own"), ("a", "b", "c", "own")])
def test_a_chain_of_sitecustomizes_runs_whole_wherever_we_are(
    names: tuple[str, ...], at: int, spawn: support.Spawner, tmp_path: Path
) -> None:
    path = put_all(tmp_path, names)
    done = run_on_path(spawn, *path[:at], SITE, *path[at:])
    ran = done.output.splitlines()[:-1]
    assert ran == [f"{name} sitecustomize" for name in names]
    active, _, module = done.output.splitlines()[-1].partition(" ")
    # One that runs nobody after it, and stands before us, keeps us from running.
    assert active == str(at < len(names))
    assert f"{path[-1]}/sitecustomize.py" in module
    assert done.error_output == ""


@pytest.mark.parametrize("at", [0, 1])
def test_a_chain_that_ends_with_one_that_finds_nobody(
    at: int, spawn: support.Spawner, tmp_path: Path
) -> None:
    path = put_all(tmp_path, ("a", "b"))
    done = run_on_path(spawn, *path[:at], SITE, *path[at:])
    assert done.output.split()[:4] == ["a", "sitecustomize", "b", "sitecustomize"]
    assert f"{path[-1]}/sitecustomize.py" in done.output.splitlines()[-1]
    assert done.output.splitlines()[-1].startswith("True")


def test_run_behind_a_runner_of_others(spawn: support.Spawner, tmp_path: Path) -> None:
    """As `ddtrace-run python -m mx_emitter run -- python …`, where there is one of one's own."""
    path = put_all(tmp_path, ("a", "own"))
    done = spawn.python(
        *("-m", "mx_emitter", "run", "--", sys.executable, "-c", "pass"),
        env={"MX_METRICS_ENABLED": "1", "PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.result() == 0, done.error_output
    # Once in the Python that becomes the command, once in the command.
    assert done.output.split("\n")[:4] == ["a sitecustomize", "own sitecustomize"] * 2


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
