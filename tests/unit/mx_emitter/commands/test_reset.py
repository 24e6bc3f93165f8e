"""``python -m mx_emitter reset`` and ``mx-metrics reset``, beside real ranks and exporters."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from mx_emitter.commands import reset as reset_module
from mx_emitter.settings import read_settings
from mx_log.files import BAD_SNAPSHOT_NAME, DEFAULT_DIRECTORY, LOCK_NAME, SNAPSHOT_NAME
from tests import support
from tests.support import serving
from tests.support.emitting import Log, Program

COMMANDS = {"emitter": ("-m", "mx_emitter"), "exporter": ("-m", "mx_exporter")}

#: A rank that logs and stays; one that ended; one that logs and logs.
WAITS = """
import signal
from mx_emitter import metrics
metrics.record_nixl_receive("complete")
print("ready", flush=True)
signal.pause()
"""
ENDS = 'from mx_emitter import metrics\nmetrics.record_nixl_receive("complete")'
ROTATES = """
import os, sys, time
from mx_emitter import metrics
count = 0
while not os.path.exists(sys.argv[1]):
    metrics.record_nixl_receive("complete")
    count += 1
    time.sleep(0.001)
print(count)
"""


def reset(
    spawn: support.Spawner,
    directory: Path | None,
    *options: str,
    command: str = "emitter",
    cwd: Path | None = None,
) -> support.Process:
    """Run to the end, in the directory of the environment."""
    env = {} if directory is None else {"MX_METRICS_DIR": str(directory)}
    process = spawn.python(*COMMANDS[command], "reset", *options, env=env, cwd=cwd)
    process.result()
    return process


def refused(process: support.Process) -> str:
    """The one line that a refusal is."""
    assert (process.returncode, process.output) == (1, "")
    program = "mx-metrics" if "mx_exporter" in list(process.args) else "mx_emitter"
    assert process.error_output.startswith(f"{program}: nothing was removed from ")
    assert process.error_output.count("\n") == 1
    return process.error_output


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A directory that is empty."""
    directory = tmp_path / "there"
    directory.mkdir()
    return directory


def age(path: Path, seconds: float = 3600) -> Path:
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def lock(path: Path) -> BinaryIO:
    """Hold a segment as its writer does, until the file is closed."""
    file = open(path, "rb")  # noqa: SIM115 - whoever asked closes it
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


@pytest.mark.parametrize("command", COMMANDS)
def test_what_earlier_runs_left_is_removed_and_nothing_else(
    command: str, program: Program, spawn: support.Spawner
) -> None:
    there = program.directory
    program.run(ENDS)
    (segment,) = program.log.segments()
    for name in (SNAPSHOT_NAME, f".{SNAPSHOT_NAME}", BAD_SNAPSHOT_NAME):
        (there / name).write_bytes(b"{}")
    making = there / ".events-aaaaaaaaaaaa-3.jsonl"
    making.touch()
    age(making)
    foreign = {
        "counter_41.db": "file",
        "events-aaaaaaaaaaaa-1.jsonl.gz": "file",
        "events-AAAAAAAAAAAA-1.jsonl": "file",
        "..events-aaaaaaaaaaaa-1.jsonl": "file",
        "mx-metrics.snapshot.old": "file",
        "events-bbbbbbbbbbbb-0.jsonl": "directory",
        "events-bbbbbbbbbbbb-1.jsonl": "link",
        "events-bbbbbbbbbbbb-2.jsonl": "fifo",
    }
    for name, kind in foreign.items():
        if kind == "file":
            (there / name).write_bytes(b"theirs")
        elif kind == "directory":
            (there / name).mkdir()
        elif kind == "link":
            (there / name).symlink_to(segment)
        else:
            os.mkfifo(there / name)
    (there / LOCK_NAME).write_bytes(b"")
    lock = (there / LOCK_NAME).stat().st_ino
    size = segment.stat().st_size + 3 * 2
    process = reset(spawn, there, command=command)
    assert process.returncode == 0, process.error_output
    assert names(there) == {*foreign, LOCK_NAME}
    assert (there / LOCK_NAME).stat().st_ino == lock
    (said,) = process.output.splitlines()
    assert said.startswith(f"{there}: removed 2 segments, ")
    assert said.endswith(f"; {size} bytes")
    assert all(name in said for name in (SNAPSHOT_NAME, f".{SNAPSHOT_NAME}", BAD_SNAPSHOT_NAME))
    again = reset(spawn, there, command=command)
    assert (again.returncode, again.output) == (0, f"{there}: nothing to remove\n")
    assert names(there) == {*foreign, LOCK_NAME}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_says_what_would_be_removed_and_changes_nothing(
    command: str, program: Program, spawn: support.Spawner
) -> None:
    there = program.directory
    program.run(ENDS)
    (segment,) = program.log.segments()
    size = segment.stat().st_size
    said = f"{there}: would remove 1 segment; {size} bytes\n"
    for signature in (None, b"{}\n"):  # without an exporter's lock, and with the one it left
        if signature is not None:
            (there / LOCK_NAME).write_bytes(signature)
        before = {path.name: path.read_bytes() for path in there.iterdir()}
        process = reset(spawn, there, "--dry-run", command=command)
        assert (process.returncode, process.output) == (0, said)
        assert {path.name: path.read_bytes() for path in there.iterdir()} == before
    rank = program.start(WAITS)
    support.wait_until(lambda: "ready" in rank.output)
    assert f"process {rank.pid} " in refused(reset(spawn, there, "--dry-run", command=command))


@pytest.mark.parametrize("command", COMMANDS)
def test_living_ranks_are_named_and_nothing_is_removed(
    command: str, program: Program, spawn: support.Spawner
) -> None:
    program.run(ENDS)
    ranks = [program.start(WAITS) for _ in range(2)]
    support.wait_until(lambda: all("ready" in rank.output for rank in ranks))
    before = names(program.directory)
    assert len(before) == 3
    said = refused(reset(spawn, program.directory, command=command))
    for rank in ranks:
        assert f"process {rank.pid} on {socket.gethostname()}" in said
    assert "--force" in said
    assert names(program.directory) == before | {LOCK_NAME}
    ranks[0].end()
    said = refused(reset(spawn, program.directory, command=command))
    assert f"process {ranks[0].pid} " not in said
    ranks[1].end()
    done = reset(spawn, program.directory, command=command)
    assert done.output.startswith(f"{program.directory}: removed 3 segments; ")
    assert names(program.directory) == {LOCK_NAME}


def test_a_living_exporter_is_named(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    support.Lines().segment(log, 0, [("nixl_received", {"result": "complete"})])
    exporter = serving.start(spawn, log)
    inode = (log / LOCK_NAME).stat().st_ino
    said = refused(reset(spawn, log))
    assert f"an exporter, process {exporter.process.pid} on {socket.gethostname()}" in said
    exporter.process.send_signal(signal.SIGKILL)
    exporter.process.result()
    assert reset(spawn, log).returncode == 0
    assert names(log) == {LOCK_NAME}
    assert (log / LOCK_NAME).stat().st_ino == inode
    # And an exporter owns the directory afterwards.
    answer = serving.start(spawn, log).get()
    assert answer.sample('mx_exporter_owner_state{state="owner"}') == 1


def test_both_are_named_and_force_removes_all_the_same(
    program: Program, spawn: support.Spawner
) -> None:
    rank = program.start(WAITS)
    support.wait_until(lambda: "ready" in rank.output)
    exporter = serving.start(spawn, program.directory)
    (program.directory / ".events-aaaaaaaaaaaa-0.jsonl").touch()  # taken for a maker's
    said = refused(reset(spawn, program.directory))
    assert f"process {rank.pid} on " in said
    assert f"process {exporter.process.pid} on " in said
    done = reset(spawn, program.directory, "--force", command="exporter")
    assert done.returncode == 0
    assert "removed 2 segments" in done.output
    assert names(program.directory) == {LOCK_NAME}


def test_reset_is_refused_while_a_writer_may_live(spawn: support.Spawner, there: Path) -> None:
    lines = support.Lines()
    path = lines.segment(there, 0, [("nixl_received", {"result": "complete"})], locked=False)
    said = refused(reset(spawn, there))
    assert f"whether the writer of {path.name} lives is unknown" in said
    assert path.exists()
    assert reset(spawn, there, "--force").returncode == 0
    assert names(there) == {LOCK_NAME}


def test_a_file_in_the_making_is_left_to_its_maker(spawn: support.Spawner, there: Path) -> None:
    """A probe between the making and the locking would take the maker's lock away."""
    young = there / ".events-aaaaaaaaaaaa-0.jsonl"
    old = there / ".events-bbbbbbbbbbbb-0.jsonl"
    young.touch()
    old.touch()
    age(old)
    with lock(old):
        said = refused(reset(spawn, there))
        assert "written by a process that did not say which" in said
    assert reset(spawn, there).returncode == 0
    assert names(there) == {young.name, LOCK_NAME}


def test_hostile_headers_stay_one_line(spawn: support.Spawner, there: Path) -> None:
    heads = [
        b"\xff\n",
        b"[" * 10000 + b"\n",
        b"[1]\n",
        b'{"pid":"1"}\n',
        json.dumps({"pid": 7, "hostname": "a\nb\x1b\ud800"}).encode() + b"\n",
        b'{"pid":8,"hostname":8}',
        b"",
    ]
    files = []
    for n, head in enumerate(heads):
        path = there / f"events-{n:012x}-0.jsonl"
        path.write_bytes(head)
        files.append(lock(path))
    said = refused(reset(spawn, there))
    for file in files:
        file.close()
    assert said.count("a process that did not say which") == 5
    assert r"process 7 on 'a\nb\x1b\ud800', process 8" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_reset_finds_its_directory(command: str, spawn: support.Spawner, there: Path) -> None:
    missing = reset(spawn, there / "a" / "b", command=command)
    assert missing.returncode == 0
    assert missing.output == f"{there}/a/b does not exist: nothing to remove\n"
    assert names(there) == set()
    wrong = reset(spawn, None, "--dir", " ", command=command)
    assert (wrong.returncode, wrong.output) == (2, "")
    assert "--dir" in wrong.error_output
    named, other = there / f"-{command}", there / f"other {command}"
    for directory in (named, other):
        directory.mkdir()
        support.Lines().segment(directory, 0, [])
    done = reset(spawn, other, f"--dir=-{command}", command=command, cwd=there)
    assert done.returncode == 0
    assert names(named) == {LOCK_NAME}
    assert names(other) == {"events-aaaaaaaaaaaa-0.jsonl"}
    assert reset(spawn, other, command=command).returncode == 0
    assert names(other) == {LOCK_NAME}
    file = there / "file"
    file.touch()
    assert "Not a directory" in refused(reset(spawn, file))


#: Imports first: the code may itself lie below ``/tmp``, which it covers in a mount namespace of
#: its own, so that the machine's is left alone.
IN_TMP = f"""
import ctypes, os, sys
from mx_emitter import __main__
from mx_emitter.commands import reset
libc = ctypes.CDLL(None)
assert libc.unshare(0x00020000) == 0
assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
assert libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"size=4m,mode=1777") == 0
path = {DEFAULT_DIRECTORY!r}
os.mkdir(path)
open(path + "/{SNAPSHOT_NAME}", "w").close()
os.chown(path, 65534, 65534)
codes = [__main__.main(["reset"])]
os.chown(path, os.geteuid(), -1)
os.rename(path, "/tmp/there")
os.symlink("there", path)
codes.append(__main__.main(["reset"]))
assert os.listdir("/tmp/there") == ["{SNAPSHOT_NAME}"]
os.unlink(path)
os.rename("/tmp/there", path)
codes.append(__main__.main(["reset"]))
assert codes == [1, 1, 0], codes
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_default_directory_is_used_only_while_it_is_ours(spawn: support.Spawner) -> None:
    process = spawn.python("-c", IN_TMP)
    assert process.result() == 0, process.error_output
    assert process.output == f"{DEFAULT_DIRECTORY}: removed {SNAPSHOT_NAME}; 0 bytes\n"
    assert "belongs to uid 65534" in process.error_output


def test_what_cannot_be_removed_is_told(spawn: support.Spawner, tmp_path: Path) -> None:
    """A directory that holds on to its files (immutable, say) is no success."""
    log = tmp_path / "log"
    log.mkdir()
    support.Lines().segment(log, 0, [])
    (log / LOCK_NAME).touch()
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    process = spawn(
        *support.unshare("-m"),
        *("sh", "-c", script, "sh", log, sys.executable),
        *("-m", "mx_emitter", "reset", "--dir", log),
    )
    assert process.result() == 1
    assert "events-aaaaaaaaaaaa-0.jsonl could not be removed: Read-only file sys" in (
        process.error_output
    )
    assert len(names(log)) == 2


def test_a_rank_that_goes_on_to_its_next_segment_meanwhile(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the look at its lock it lets go of the segment that was listed."""
    lines = support.Lines()
    first = lock(lines.segment(there, 0, []))
    held = [first]
    listed = reset_module._ours

    def list_then_rotate(folder: int) -> list[str]:
        names = listed(folder)
        if len(held) == 1:
            held.append(lock(lines.segment(there, 1, [])))
            first.close()
        return names

    monkeypatch.setattr(reset_module, "_ours", list_then_rotate)
    settings = read_settings({"MX_METRICS_DIR": str(there)})
    with pytest.raises(reset_module.InUse, match="written by process 4711 on pod-0"):
        reset_module.reset(settings)
    assert len(names(there)) == 3
    held[1].close()
    assert len(reset_module.reset(settings).removed) == 2


def test_a_lock_taken_after_the_check_keeps_the_file(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rank of ours does that; what is locked at its removal stays all the same."""
    path = support.Lines().segment(there, 0, [])
    remove = reset_module._remove
    held = []

    def lock_then_remove(*arguments: object) -> reset_module.Outcome:
        held.append(lock(path))
        return remove(*arguments)

    monkeypatch.setattr(reset_module, "_remove", lock_then_remove)
    outcome = reset_module.reset(read_settings({"MX_METRICS_DIR": str(there)}))
    held[0].close()
    assert (outcome.removed, outcome.left) == ([], {path.name: "its writer lives"})
    assert path.exists()


def test_no_living_rank_ever_loses_a_file(program: Program, spawn: support.Spawner) -> None:
    """Ranks that start and rotate without end, and one reset after the other."""
    stop = program.directory.parent / "stop"
    env = {"MX_METRICS_SEGMENT_BYTES": "2000", "MX_METRICS_MAX_BYTES": str(1 << 30)}
    program.run(ENDS)
    ranks: list[support.Process] = []
    refusals = 0
    for _ in range(4):
        ranks += [program.start(ROTATES, str(stop), **env) for _ in range(2)]
        for _ in range(4):
            process = reset(spawn, program.directory)
            refusals += process.returncode
    stop.touch()
    recorded = 0
    for rank in ranks:
        assert rank.result() == 0
        assert not rank.error_output
        recorded += int(rank.output)
    assert refusals
    assert len({line["proc"] for line in program.log.lines()}) in (len(ranks), len(ranks) + 1)
    lines = program.log.events("nixl_received")
    assert len(lines) - recorded in (0, 1)
    Log(program.directory).check_books()
