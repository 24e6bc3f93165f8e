"""Hostile surroundings, for real: the recorders never raise, and what is dropped is counted."""

# ruff: noqa: ARG001 - a fixture is asked for by naming it

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from mx_emitter import enable_metrics, metrics
from mx_log.files import DEFAULT_DIRECTORY
from tests import support
from tests.support.emitting import Log, Program

NOBODY = 65534

# Records until `there(directory)` holds, at most a minute, counts its calls, and says how many.
UNTIL = """
import os, sys, time
from mx_emitter import metrics
recorded = 0
def record():
    global recorded
    metrics.record_attempt("random", recorded)
    recorded += 1
def until(there):
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        record()
        time.sleep(0.001)
def segments():
    try:
        return [n for n in os.listdir(os.environ["MX_METRICS_DIR"]) if n.endswith(".jsonl")]
    except OSError:
        return []
"""


def _recorded(log: Log) -> int:
    """Events that were logged, and those that were reported as dropped."""
    return len(log.events("source_attempted")) + sum(log.dropped().values())


def _warnings(process: support.Process) -> list[str]:
    return process.error_output.splitlines()


def test_a_missing_directory_is_made(log: Log) -> None:
    assert not log.directory.exists()
    assert enable_metrics()
    assert len(log.segments()) == 1


@pytest.mark.parametrize("in_place", ["file", "dangling", "loop"])
def test_something_else_in_the_directorys_place(in_place: str, program: Program) -> None:
    if in_place == "file":
        program.directory.write_text("not a directory")
    else:
        program.directory.symlink_to("nowhere" if in_place == "dangling" else "log")
    process = program.run(
        UNTIL
        + """
for _ in range(20): record()
os.unlink(os.environ["MX_METRICS_DIR"])
until(segments)
print(recorded)
"""
    )
    assert _recorded(program.log) == int(process.output)
    assert set(program.log.dropped()) == {"unavailable"}
    assert len(_warnings(process)) == 1


def test_a_directory_removed_while_it_is_written(program: Program) -> None:
    process = program.run(
        UNTIL
        + """
import shutil
record()
shutil.rmtree(os.environ["MX_METRICS_DIR"])
until(segments)
print(recorded)
"""
    )
    header, *rest = program.log.lines()
    assert (header["event"], header["segment"]) == ("segment_continued", 1)
    # All that was logged after the removal was noticed is there, and its numbers tell how many
    # were not: that is how a reader knows.
    assert [line["seq"] for line in [header, *rest]] == list(
        range(header["seq"], header["seq"] + 1 + len(rest))
    )
    assert header["seq"] - 1 + len(rest) == int(process.output)


def test_a_directory_replaced_while_it_is_written(log: Log) -> None:
    metrics.record_attempt("random", "before")
    shutil.rmtree(log.directory)
    log.directory.write_text("not a directory")
    with contextlib.suppress(AssertionError):
        support.wait_until(lambda: metrics.record_attempt("random", "x"), limit=1.5)
    log.directory.unlink()

    def logged() -> bool:
        metrics.record_attempt("random", "after")
        return log.directory.is_dir()

    support.wait_until(logged)
    assert log.dropped()["unavailable"] >= 1


@pytest.mark.parametrize("moment", ["before", "between"])
def test_no_descriptor_left(moment: str, program: Program) -> None:
    process = program.run(
        UNTIL
        + """
import resource, sys
if sys.argv[1] == "between": record()
have = segments()
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 5, 1024))
taken = []
try:
    while True: taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
for _ in range(60): record()
for fd in taken: os.close(fd)
until(lambda: len(segments()) > len(have))
print(recorded)
""",
        moment,
        MX_METRICS_SEGMENT_BYTES="2000",
    )
    assert _recorded(program.log) == int(process.output)
    assert set(program.log.dropped()) == {"unavailable"}
    program.log.check_books()
    (warning,) = _warnings(process)
    assert "Too many open files" in warning
    # Without a further segment the present one goes on, to twice its length.
    assert max(path.stat().st_size for path in program.log.segments()) <= 4000


def test_a_descriptor_closed_by_somebody_else(log: Log) -> None:
    metrics.record_attempt("random", "before")
    from mx_emitter.log.sink import sink

    os.close(sink.stream._fd)  # type: ignore[union-attr]
    metrics.record_attempt("random", "after")
    assert [event["result"] for event in log.events()] == ["before", "after"]
    assert len(log.segments()) == 2
    log.check_books()


def test_closed_standard_streams_do_not_end_up_in_the_log(program: Program) -> None:
    program.run(
        """
import os
for fd in (0, 1, 2): os.close(fd)
from mx_emitter import metrics
metrics.record_attempt("random", "success")
for fd in (0, 1, 2):
    try: os.write(fd, b"not an event\\n")
    except OSError: pass
"""
    )
    assert program.log.names() == ["source_attempted"]


def test_a_read_only_directory(program: Program, small_disk: Path) -> None:
    directory = small_disk / "log"
    process = program.run(
        UNTIL
        + """
import ctypes
def remount(flags):
    disk = os.path.dirname(os.environ["MX_METRICS_DIR"])
    assert ctypes.CDLL(None).mount(b"none", os.fsencode(disk), None, 0x20 | flags, None) == 0
remount(1)
for _ in range(20): record()
assert segments() == []
remount(0)
until(segments)
print(recorded)
""",
        MX_METRICS_DIR=str(directory),
    )
    log = Log(directory)
    assert _recorded(log) == int(process.output)
    assert set(log.dropped()) == {"unavailable"}
    log.check_books()
    (warning,) = _warnings(process)
    assert "Read-only file system" in warning


@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_full_disk(moment: str, program: Program, small_disk: Path) -> None:
    directory = small_disk / "log"
    process = program.run(
        UNTIL
        + """
ballast = os.path.join(os.path.dirname(os.environ["MX_METRICS_DIR"]), "ballast")
if sys.argv[1] == "between": record()
def fill():
    with open(ballast, "ab", buffering=0) as f:
        for size in (4096, 1):
            try:
                while f.write(bytes(size)): pass
            except OSError: pass
fill()
for _ in range(2000): record()
os.unlink(ballast)
before = sum(os.path.getsize(os.path.join(os.environ["MX_METRICS_DIR"], n)) for n in segments())
until(lambda: sum(os.path.getsize(os.path.join(os.environ["MX_METRICS_DIR"], n))
                  for n in segments()) > before)
print(recorded)
""",
        moment,
        MX_METRICS_DIR=str(directory),
        MX_METRICS_SEGMENT_BYTES="20000",
    )
    whole = program.directory
    whole.mkdir()
    torn = 0
    for path in Log(directory).segments():
        lines = [line for line in path.read_bytes().split(b"\n") if line]
        good = [line for line in lines if line.endswith(b"}")]
        torn += len(lines) - len(good)
        (whole / path.name).write_bytes(b"\n".join(good) + b"\n")
    assert set(program.log.dropped()) <= {"no_space", "unavailable"}
    assert program.log.dropped()["no_space"] > 1000
    assert _recorded(program.log) == int(process.output)
    program.log.check_books()
    assert torn <= 2
    assert len(_warnings(process)) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_default_directory_of_another_user_is_not_used(
    tmp_path: Path, spawn: support.Spawner
) -> None:
    """In a mount namespace of its own, so that the machine's ``/tmp`` is left alone."""
    process = spawn.python(
        "-c",
        f"""
import ctypes, os, stat
# Before /tmp is covered: they may lie below it.
import mx_emitter.api, mx_emitter.log.directory
from mx_emitter import metrics, enable_metrics
from mx_emitter.settings import read_settings
from mx_emitter.commands.doctor import examine
libc = ctypes.CDLL(None)
assert libc.unshare(0x00020000) == 0
assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
assert libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"size=4m,mode=1777") == 0
path = {DEFAULT_DIRECTORY!r}
os.mkdir(path, 0o777); os.chown(path, {NOBODY}, {NOBODY})
assert not examine().healthy
assert enable_metrics()
metrics.record_nixl_receive("empty")
assert os.listdir(path) == []
os.rmdir(path); os.mkdir("/tmp/elsewhere"); os.symlink("/tmp/elsewhere", path)
assert not examine().healthy
for _ in range(3):
    try:
        with mx_emitter.log.directory.opened(read_settings()): raise SystemExit("followed a link")
    except OSError: pass
os.unlink(path)
os.umask(0)
with mx_emitter.log.directory.opened(read_settings()) as folder:
    assert stat.S_IMODE(os.fstat(folder).st_mode) == 0o700
""",
        env={"MX_METRICS_ENABLED": "1"},
    )
    assert process.result() == 0, process.error_output
    assert f"belongs to uid {NOBODY}" in process.error_output
