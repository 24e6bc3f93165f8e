"""Results of all commands that write one: a full disk, Ctrl-C, a closed pipe."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from tests import support
from tests.support.commands import Run
from tests.support.load_logs import ranks

PROGRAM = support.ROOT / "tests" / "support" / "programs" / "commands.py"

#: Each way to write a file. LOG and STATE are what is read, OUT is what is written.
COMMANDS = {
    "replay": ["replay", "LOG", "--save-state", "OUT"],
    "merge": ["merge", "STATE", "-o", "OUT"],
    "merge-state": ["merge", "STATE", "--save-state", "OUT"],
    "events": ["events", "LOG", "-o", "OUT"],
    "parquet": ["events", "LOG", "-o", "OUT.parquet"],
    "tables": ["events", "LOG", "--tables", "OUT"],
    "backfill": ["backfill", "LOG", "-o", "OUT"],
    "trace": ["trace", "LOG", "-o", "OUT"],
    "report": ["report", "LOG", "-o", "OUT"],
    "diff": ["diff", "LOG", "LOG", "--save", "OUT"],
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A log and its state."""
    place = tmp_path_factory.mktemp("given")
    ranks(place / "log", processes=2, segments=1, count=9)
    command = [sys.executable, "-m", "mx_exporter", "replay", place / "log"]
    subprocess.run(
        [*command, "--save-state", place / "state"],
        env=support.clean_environment(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return {"LOG": str(place / "log"), "STATE": str(place / "state")}


def filled(command: list[str], words: dict[str, str]) -> list[str]:
    """A command with what its words stand for."""
    out = words.get("OUT", "")
    return [out + word[3:] if word[:3] == "OUT" else words.get(word, word) for word in command]


#: A disk of one page, which no result fits on, and what is left there.
FULL = """
mount -t tmpfs -o size=4k none {disk} && {python} {program} {commands} && ls -A {disk} >&2
"""


def test_a_full_disk_leaves_nothing_and_is_said(
    given: dict[str, str], tmp_path: Path, spawn: support.Spawner
) -> None:
    own_mounts = support.unshare("--user", "--map-root-user", "--mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    every = [filled(each, {**given, "OUT": f"{disk}/{n}"}) for n, each in COMMANDS.items()]
    (tmp_path / "commands").write_text(json.dumps(every))
    script = FULL.format(
        disk=disk, python=sys.executable, program=PROGRAM, commands=tmp_path / "commands"
    )
    process = spawn(*own_mounts, "sh", "-c", script)
    assert process.result() == 0, process.error_output
    for name, (code, out, err) in zip(COMMANDS, json.loads(process.output), strict=True):
        assert code == 1, name
        assert f"mx-metrics: {disk}/{name}" in err, name
        assert " cannot be written: " in err, (name, err)
        assert err.endswith("No space left on device\n"), (name, err)
        assert err.count("\n") == 1, (name, err)
        assert out == "", name
    assert process.error_output == "", "something is left"


@pytest.mark.long
def test_ctrl_c_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, spawn: support.Spawner
) -> None:
    """Each command waits for the rest of its input when the signal comes."""
    running = {}
    for name, command in COMMANDS.items():
        place = tmp_path / name
        place.mkdir()
        if name != "tables":
            target = place / ("old.parquet" if name == "parquet" else "old")
            target.write_text("old")
        words = {"LOG": "-", "STATE": "-", "OUT": f"{place}/old"}
        running[name] = spawn.python(
            "-m", "mx_exporter", *filled(command, words), stdin=subprocess.PIPE
        )
    for process in running.values():
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        pipe = process.stdin.fileno()
        support.wait_until(lambda: fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4) == b"\0" * 4)  # noqa: B023
        process.send_signal(signal.SIGINT)
    for name, process in running.items():
        assert process.result() == 130, name
        assert (process.output, process.error_output.strip()) == ("", ""), name
        left = [path.read_text() for path in (tmp_path / name).iterdir()]
        assert left == ([] if name == "tables" else ["old"]), name


#: Runs commands whose standard output nobody reads, and says what became of them.
CLOSED = """
import json, os, sys
from mx_exporter.cli.main import main
codes = []
for arguments in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    os.close(writer)
    try:
        codes.append(main(arguments))
    except SystemExit as end:
        codes.append(end.code)
    # What is left goes nowhere, and so not into the next one's.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout.flush()
sys.stderr.write(json.dumps(codes))
"""


def test_a_closed_pipe_is_quiet(given: dict[str, str]) -> None:
    every = [
        ["replay", "LOG"],
        ["merge", "STATE"],
        ["events", "LOG"],
        ["backfill", "LOG", "-o", "-"],
        ["trace", "LOG"],
        ["report", "LOG", "-o", "-"],
        ["loads", "LOG"],
        ["loads", "LOG", "--json"],
        ["diff", "LOG", "LOG"],
        ["catalog"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, json.dumps([filled(each, given) for each in every])],
        env=support.clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.stderr.decode() == json.dumps([1] * len(every))


def test_a_link_stays_and_a_pipe_is_written_to(
    given: dict[str, str], tmp_path: Path, mx_metrics: Run
) -> None:
    right = mx_metrics("merge", given["STATE"])[1]
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    assert mx_metrics("merge", given["STATE"], "-o", tmp_path / "link") == (0, b"", "")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == right
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert mx_metrics("merge", given["STATE"], "-o", pipe) == (0, b"", "")
    reader.join(60)
    assert read == [right]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]
