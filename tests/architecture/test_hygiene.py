"""The fixtures that watch every test notice what they should."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import support
from tests.support.shared import once

LEAKS = {
    "thread": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "descriptor": "os.dup(1)",
    "process": "KEPT.append(subprocess.Popen(['sleep', '60']))",
}


SUITE = """
import os, pathlib, subprocess, threading
from tests import support
from tests.support import basics
basics.LEFT_BEHIND_SECONDS = 0.5
KEPT = []

def test_one():
    {}
"""


def run(
    spawn: support.Spawner, directory: Path, body: str, *options: str, **env: str
) -> support.Process:
    """Run a suite of one test, beside our own conftest."""
    shutil.copy(support.ROOT / "tests" / "conftest.py", directory)
    (directory / "pytest.ini").write_text(f"[pytest]\npythonpath = {support.ROOT}\n")
    (directory / "test_one.py").write_text(SUITE.format(body))
    process = spawn.python("-m", "pytest", "-q", "-rA", *options, directory, env=env, cwd=directory)
    process.result()
    return process


@pytest.mark.parametrize("what", LEAKS)
def test_what_is_left_behind_fails(what: str, spawn: support.Spawner, tmp_path: Path) -> None:
    process = run(spawn, tmp_path, LEAKS[what])
    assert process.returncode == 1
    assert "left behind" in process.output
    assert "1 passed, 1 error" in process.output


def test_what_is_left_out_is_listed(spawn: support.Spawner, tmp_path: Path) -> None:
    process = run(spawn, tmp_path, "support.leave_out('no moon')")
    assert process.returncode == 0
    assert "left out: 1" in process.output
    assert "test_one.py::test_one: no moon" in process.output


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_is_left_out_fails_where_all_is_asked_for(
    workers: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    body = "support.leave_out('no moon')"
    process = run(spawn, tmp_path, body, "-n", workers, MX_TEST_ALL="1")
    assert process.returncode == 1
    assert "left out, and MX_TEST_ALL=1 asks for every test: no moon" in process.output


def test_the_products_variables_are_gone(spawn: support.Spawner, tmp_path: Path) -> None:
    body = "assert not [name for name in os.environ if support.is_products(name)]"
    process = run(spawn, tmp_path, body, MX_METRICS_DIR="/nowhere", POD_NAME="pod", RANK="3")
    assert process.returncode == 0, process.output


def test_busy_loops_end_with_the_run(spawn: support.Spawner, tmp_path: Path) -> None:
    body = "print(pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text())"
    process = run(spawn, tmp_path, body, "-s", MX_TEST_BUSY="2")
    assert process.returncode == 0, process.output
    pids = re.findall(r"^(\d+) (\d+)", process.output, re.MULTILINE)
    assert len(pids) == 1
    assert not [pid for pid in pids[0] if Path(f"/proc/{pid}").exists()]


def test_what_is_costly_is_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "part").touch(exist_ok=False)
        if len(made) == 1:
            raise OSError("the first attempt fails half-way")

    with pytest.raises(OSError, match="half-way"):
        once(tmp_path_factory, "hygiene", make)
    with ThreadPoolExecutor(4) as workers:
        found = list(workers.map(lambda _: once(tmp_path_factory, "hygiene", make), range(8)))
    assert len(made) == 2
    assert set(found) == {made[-1]}
    assert (made[-1] / "part").exists()
