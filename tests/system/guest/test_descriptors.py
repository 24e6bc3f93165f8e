"""Descriptors that somebody closed and gave away again: the engine's files are never touched.

There are libraries that close all descriptors they do not know, python-daemon among them. The
number of ours is then a file, a socket or a pipe of the engine's.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_emitter import metrics
from mx_emitter.log.sink import sink
from tests.support.emitting import Log, Program

#: Puts something of the engine's under the number of our descriptor: ``taken(kind)`` returns what
#: tells all that was written to it, and whether it is still open.
TAKE = """
import os, socket, sys
from mx_emitter import enable_metrics, get_logger, metrics
from mx_emitter.log.sink import sink
def number():
    return sink.stream._fd
def taken(kind):
    fd = number()
    if kind == "file":
        theirs = os.open(os.environ["THEIRS"], os.O_RDWR | os.O_CREAT)
        os.write(theirs, b"WEIGHTS")
        look = lambda: open(os.environ["THEIRS"], "rb").read().removeprefix(b"WEIGHTS")
    elif kind == "log":
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        theirs = os.open(os.environ["THEIRS"], flags)
        look = lambda: open(os.environ["THEIRS"], "rb").read()
    else:
        if kind == "socket":
            ours, other = socket.socketpair()
            theirs = ours.detach()
            read = other.detach()
        else:
            read, theirs = os.pipe()
        os.set_blocking(read, False)
        def look():
            try: return os.read(read, 1 << 16)
            except BlockingIOError: return b""
    os.dup2(theirs, fd)
    os.close(theirs)
    identity = os.fstat(fd).st_ino
    def check():
        assert look() == b"", "the engine's own was written to"
        assert os.fstat(fd).st_ino == identity, "the engine's own was closed"
    return check
"""

KINDS = ["file", "log", "socket", "pipe"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_goes_to_a_segment_of_our_own(kind: str, program: Program, tmp_path: Path) -> None:
    program.run(
        TAKE
        + """
metrics.record_attempt("random", "before")
check = taken(sys.argv[1])
metrics.record_attempt("random", "after")
with metrics.time_load("vllm", "m", "main"): get_logger().info("own")
check()
assert number() != -1
""",
        kind,
        THEIRS=str(tmp_path / "theirs"),
    )
    assert program.log.names() == [
        "source_attempted", "source_attempted", "load_started", "own", "load_finished",
    ]  # fmt: skip
    assert len(program.log.segments()) == 2
    program.log.check_books()


@pytest.mark.parametrize("kind", KINDS)
def test_a_rotation_closes_nothing_of_others(kind: str, program: Program, tmp_path: Path) -> None:
    """Also where nothing was logged since."""
    program.run(
        TAKE
        + """
metrics.record_attempt("random", "before")
check = taken(sys.argv[1])
sink.stream._locked(sink.stream._make_room, 10)
metrics.record_attempt("random", "after")
check()
""",
        kind,
        THEIRS=str(tmp_path / "theirs"),
    )
    assert [event["result"] for event in program.log.events()] == ["before", "after"]
    program.log.check_books()


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_closes_nothing_of_others(
    kind: str, program: Program, tmp_path: Path
) -> None:
    program.run(
        TAKE
        + """
metrics.record_attempt("parent", "before")
check = taken(sys.argv[1])
if os.fork() == 0:
    check()
    metrics.record_attempt("child", "x")
    check()
    os._exit(0)
assert os.wait()[1] == 0
check()
metrics.record_attempt("parent", "after")
check()
""",
        kind,
        THEIRS=str(tmp_path / "theirs"),
    )
    attempts = [(event["policy"], event["result"]) for event in program.log.events()]
    assert sorted(attempts) == [("child", "x"), ("parent", "after"), ("parent", "before")]
    program.log.check_books()


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_the_process_writes_nothing_to_others(
    kind: str, program: Program, tmp_path: Path
) -> None:
    program.run(
        TAKE
        + """
import atexit
metrics.record_attempt("random", "before")
check = taken(sys.argv[1])
atexit.register(check)
atexit.register(metrics.record_attempt, "random", "atexit")
""",
        kind,
        THEIRS=str(tmp_path / "theirs"),
    )
    assert [event["result"] for event in program.log.events()] == ["before", "atexit"]


def test_the_look_once_a_second_closes_nothing_of_others(program: Program, tmp_path: Path) -> None:
    program.run(
        TAKE
        + """
metrics.record_attempt("random", "before")
check = taken("file")
sink.stream._second = 0  # another second has begun
metrics.record_attempt("random", "after")
check()
""",
        THEIRS=str(tmp_path / "theirs"),
    )
    assert [event["result"] for event in program.log.events()] == ["before", "after"]


def test_a_file_system_or_kernel_that_does_not_mark_files(
    log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mx_emitter.log.segment._mark", lambda _fd: False)
    metrics.record_attempt("random", "before")
    assert sink.stream is not None
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    number = sink.stream._fd
    os.dup2(theirs, number)
    metrics.record_attempt("random", "after")
    assert os.pread(theirs, 100, 0) == b""
    os.close(theirs)
    os.close(number)
    assert [event["result"] for event in log.events()] == ["before", "after"]


def test_our_descriptor_has_a_high_number(program: Program) -> None:
    """Above those that libraries close one by one, and that ``select`` can take."""
    process = program.run(
        """
import os, resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
from mx_emitter import metrics
from mx_emitter.log.sink import sink
metrics.record_attempt("random", "before")
os.closerange(3, 1024)
metrics.record_attempt("random", "after")
print(sink.stream._fd, min(hard, 8192))
"""
    )
    number, limit = map(int, process.output.split())
    assert number == min(4000, limit // 2)
    assert len(program.log.segments()) == 1
    assert [event["result"] for event in program.log.events()] == ["before", "after"]


@pytest.mark.parametrize("limit", [16, 64, 300])
def test_few_descriptors_are_enough(limit: int, program: Program) -> None:
    program.run(
        """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from mx_emitter import metrics
for n in range(30): metrics.record_attempt("random", n)
""",
        str(limit),
        MX_METRICS_SEGMENT_BYTES="2000",
    )
    assert len(program.log.events()) == 30
    assert len(program.log.segments()) > 2
