"""Segments, rotation, the limit, and what was dropped."""

# ruff: noqa: ARG001 - a fixture is asked for by naming it

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mx_emitter import __version__, enable_metrics, get_logger, metrics
from mx_emitter.log.sink import sink
from mx_emitter.log.stream import Stream
from mx_log.schema import EVENTS, MAX_LINE_BYTES
from tests import support
from tests.support.emitting import Log, Program


def _granted(path: Path) -> bool:
    """Whether another process would be granted the probing lock: its writer is gone."""
    with open(path, "rb") as segment:
        try:
            fcntl.flock(segment, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_the_header_says_who_writes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_METRICS_SCHEME", " tp8 ü %b,%d%")
    for name in ("POD_NAME", "POD_UID", "POD_NAMESPACE", "NODE_NAME"):
        monkeypatch.setenv(name, name.lower())
    assert enable_metrics() is True
    assert enable_metrics(rank=5) is True
    (header,) = log.lines()
    assert {key: header[key] for key in header if key not in ("timestamp", "proc")} == {
        "event": "process_started",
        "level": "info",
        "seq": 0,
        "rank": None,
        "scheme": " tp8 ü %b,%d%",
        "segment": 0,
        "format": 1,
        "component": "client",
        "version": "unknown",
        "emitter_version": __version__,
        "pid": os.getpid(),
        "hostname": os.uname().nodename,
        "pod_name": "pod_name",
        "pod_uid": "pod_uid",
        "pod_namespace": "pod_namespace",
        "node_name": "node_name",
    }
    metrics.record_nixl_receive("empty")
    assert log.events()[0]["rank"] == 5


def test_timestamps_are_of_the_present(log: Log) -> None:
    before = time.time_ns() // 1000
    metrics.record_nixl_receive("empty")
    after = time.time_ns() // 1000
    stamp = log.events()[0]["timestamp"]
    whole = time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert before <= int(whole) * 10**6 + int(stamp[20:26]) <= after


def test_segments_are_for_everybody_to_read_and_held_while_written(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "2000")
    before = os.umask(0o077)
    try:
        while len(log.segments()) < 3:
            metrics.record_attempt("random", "success")
    finally:
        os.umask(before)
    *finished, newest = log.segments()
    assert [_granted(path) for path in finished] == [True, True]
    assert not _granted(newest)
    assert {stat.S_IMODE(path.stat().st_mode) for path in log.segments()} == {0o644}
    assert stat.S_IMODE(log.directory.stat().st_mode) == 0o755
    assert all(path.stat().st_size <= 2000 for path in log.segments())
    assert sorted(os.listdir(log.directory)) == sorted(path.name for path in log.segments())


@pytest.mark.parametrize("umask", [0o077, 0o777, 0])
def test_directories_made_on_the_way_are_open_to_the_exporter(
    umask: int, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_DIR", str(log.directory / "a" / "b"))
    before = os.umask(umask)
    try:
        assert enable_metrics()
    finally:
        os.umask(before)
    for path in (log.directory, log.directory / "a", log.directory / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_segments_are_open_for_appending_alone(program: Program) -> None:
    """Somebody who truncates one must not make its writer leave a hole."""
    process = program.run(
        """
import fcntl, os
from mx_emitter import metrics
flags = {}
for n in range(40):
    metrics.record_attempt("random", n)
    for fd in os.listdir("/proc/self/fd"):
        try: name = os.path.basename(os.readlink("/proc/self/fd/" + fd))
        except OSError: continue
        if name.startswith("events-"): flags[name] = fcntl.fcntl(int(fd), fcntl.F_GETFL)
for name in sorted(flags): print(flags[name])
""",
        MX_METRICS_SEGMENT_BYTES="2000",
    )
    flags = [int(line) for line in process.output.split()]
    assert len(flags) == len(program.log.segments()) > 2
    assert {each & os.O_APPEND for each in flags} == {os.O_APPEND}
    assert {each & os.O_ACCMODE for each in flags} == {os.O_WRONLY}


def test_each_segment_starts_with_a_header_and_nothing_is_lost_between(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "1500")
    for n in range(40):
        metrics.record_attempt("random", n)
    assert [event["result"] for event in log.events()] == [str(n) for n in range(40)]
    headers = [line for line in log.lines() if line["event"] not in log.names()]
    assert [header["segment"] for header in headers] == list(range(len(log.segments())))
    assert [header["event"] for header in headers] == [
        "process_started",
        *["segment_continued"] * (len(headers) - 1),
    ]
    assert [line["seq"] for line in log.lines()] == list(range(len(log.lines())))


def test_a_line_longer_than_a_segment_has_one_of_its_own(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "1000")
    for _ in range(3):
        metrics.record_attempt("random", "x" * 5000)
    assert len(log.events()) == 3
    assert len(log.segments()) == 3
    log.check_books()


def test_a_line_over_the_limit_of_lines_is_counted_not_written(log: Log) -> None:
    metrics.record_attempt("random", "")
    room = MAX_LINE_BYTES - len(log.segments()[0].read_bytes().splitlines(keepends=True)[1])
    metrics.record_attempt("random", "x" * room)
    metrics.record_attempt("random", "x" * (room + 1))
    metrics.record_attempt("random", "x" * (room + 10**6))
    assert log.names() == ["source_attempted"] * 2 + ["events_dropped"] * 2
    assert log.dropped() == {"too_long": 2}
    log.check_books()


def test_an_event_without_fields(log: Log) -> None:
    get_logger().info("bare")
    with metrics.time_load("vllm", "m", "main"):
        get_logger().error("bare")
    get_logger().info("%b")
    assert log.own_fields("bare", "%b") == [{"event": "bare"}] * 2 + [{"event": "%b"}]
    bare = log.events("bare", "%b")
    assert [event["level"] for event in bare] == ["info", "error", "info"]
    assert ["load_id" in event for event in bare] == [False, True, False]


def test_keys_stand_in_one_order(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_METRICS_SCHEME", '"info",%b%b')
    enable_metrics(rank=3)
    with metrics.time_load("vllm", "m", "main"):
        metrics.record_attempt("random", '"info" 100 %d')
        get_logger().warning("own", own=1)
    first = ["event", "timestamp", "level", "proc", "seq", "rank", "scheme"]
    attempt, own = log.events("source_attempted", "own")
    assert list(attempt) == [*first, "policy", "result", "load_id"]
    assert list(own) == [*first, "own", "load_id"]
    assert [attempt["level"], own["level"]] == ["info", "warning"]
    assert attempt["result"] == '"info" 100 %d'
    assert {line["scheme"] for line in log.lines()} == {'"info",%b%b'}
    assert {line["rank"] for line in log.lines()} == {3}


def test_a_scheme_that_is_the_name_of_a_level_stays(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SCHEME", "info")
    get_logger().warning("own")
    (event,) = log.events()
    assert (event["level"], event["scheme"]) == ("warning", "info")


def test_another_rank_is_on_the_next_line(log: Log) -> None:
    for rank in range(50):
        enable_metrics(rank=rank)
        metrics.record_nixl_receive("empty")
    assert [event["rank"] for event in log.events()] == list(range(50))
    assert [line["timestamp"] for line in log.lines()] == sorted(
        line["timestamp"] for line in log.lines()
    )


def test_the_rank_that_the_engine_said_stays_whatever_others_say(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "7")

    def rank() -> int:
        metrics.record_nixl_receive("empty")
        return int(log.events()[-1]["rank"])

    assert rank() == 7
    torch = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 5
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)  # type: ignore[arg-type]
    assert rank() == 7, "nobody has looked again"
    sink.ask_torch()
    assert rank() == 5
    enable_metrics(rank=3)
    assert rank() == 3
    sink.ask_torch()
    assert rank() == 3
    enable_metrics()
    assert rank() == 3
    assert sink.stream is not None
    sink.stream.look_up_rank()
    assert rank() == 3
    enable_metrics(rank=0)
    assert rank() == 0
    monkeypatch.delitem(sys.modules, "torch.distributed")
    sink.ask_torch()
    assert rank() == 0


def test_a_rank_that_the_environment_says_no_more_is_gone(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "7")
    enable_metrics()
    monkeypatch.delenv("RANK")
    metrics.record_nixl_receive("empty")
    enable_metrics()
    metrics.record_nixl_receive("empty")
    assert [line["rank"] for line in log.lines()] == [7, 7, None]


def test_a_torch_that_knows_no_rank_takes_none_away(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "7")
    metrics.record_nixl_receive("empty")
    sink.ask_torch()
    metrics.record_nixl_receive("empty")
    assert [line["rank"] for line in log.lines()] == [7, 7, 7]


# --------------------------------------------------------------------------------------
# Time


#: A moment at which a second begins.
SECOND = 1_767_225_600 * 10**9


class Clock:
    """The clock that events are stamped by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = SECOND
        monkeypatch.setattr("mx_emitter.log.stream.time_ns", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_timestamps_follow_the_clock_over_the_ends_of_seconds_and_back(
    log: Log, clock: Clock
) -> None:
    expected = []
    for nanos, stamp in (
        (0, "00:00:00.000000"),
        (999, "00:00:00.000000"),
        (1000, "00:00:00.000001"),
        (10**9 - 1, "00:00:00.999999"),
        (10**9, "00:00:01.000000"),
        (2 * 10**9 - 1, "00:00:01.999999"),
        (10**9 - 1, "00:00:00.999999"),
        (61 * 10**9, "00:01:01.000000"),
    ):
        clock.now = SECOND + nanos
        metrics.record_nixl_receive("empty")
        expected.append(f"2026-01-01T{stamp}Z")
    assert [event["timestamp"] for event in log.events()] == expected
    assert log.lines()[0]["timestamp"] == expected[0]


def test_a_header_has_the_time_at_which_its_segment_is_made(log: Log, clock: Clock) -> None:
    clock.now += 999_999_999
    assert enable_metrics()
    assert log.lines()[0]["timestamp"] == "2026-01-01T00:00:00.999999Z"


def test_a_segment_is_looked_at_once_a_second(
    log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, fstat = 0, os.fstat

    def look(fd: int) -> os.stat_result:
        nonlocal looks
        looks += 1
        return fstat(fd)

    def looks_for(seconds: float) -> int:
        nonlocal looks
        clock.now += int(seconds * 10**9)
        looks = 0
        for _ in range(5):
            metrics.record_nixl_receive("empty")
        return looks

    metrics.record_nixl_receive("empty")
    monkeypatch.setattr(os, "fstat", look)
    assert [looks_for(seconds) for seconds in (0, 0.5, 0.5, 0, 0.999, 0.001)] == [0, 0, 1, 0, 0, 1]


class Monotonic:
    """The clock that tries are timed by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    return Monotonic(monkeypatch)


# --------------------------------------------------------------------------------------
# The length of a segment

#: The bytes of an event of no result, while numbers have one digit.
BARE = len(
    '{"event":"source_attempted","timestamp":"2026-01-01T00:00:00.000000Z","level":"info",'
    '"proc":"aaaaaaaaaaaa","seq":1,"rank":null,"scheme":"","policy":"p","result":""}\n'
)


def put(size: int) -> None:
    """Log an event of so many bytes."""
    metrics.record_attempt("p", "x" * (size - BARE))


def fill_up(log: Log, size: int = 2000) -> None:
    """Log an event that ends where the first segment may end."""
    enable_metrics()
    put(size - log.segments()[0].stat().st_size)


@pytest.fixture
def short(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log of segments of 2,000 bytes."""
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "2000")
    return log


@pytest.mark.parametrize("more", [0, 1])
def test_a_segment_is_filled_to_its_last_byte(more: int, short: Log) -> None:
    enable_metrics()
    put(500)
    put(2000 - short.segments()[0].stat().st_size + more)
    assert len(short.segments()) == 1 + more
    put(200)
    assert len(short.segments()) == 2


def test_a_line_that_is_as_long_as_a_segment_fills_one(short: Log) -> None:
    put(5000)
    put(200)
    header = len(short.segments()[0].read_bytes().splitlines(keepends=True)[0])
    assert short.segments()[0].stat().st_size == header + 5000
    assert len(short.segments()) == 2


class Away:
    """Puts a file in the place of the directory, and the directory back."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._elsewhere = directory.with_name("elsewhere")

    def __enter__(self) -> Away:
        self._directory.rename(self._elsewhere)
        self._directory.write_text("")
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.unlink()
        self._elsewhere.rename(self._directory)


def test_a_segment_that_cannot_be_followed_goes_on_to_twice_its_length(
    short: Log, clock: Clock, tries: Monotonic, caplog: Any
) -> None:
    fill_up(short)
    with Away(short.directory):
        put(700)
        put(1300)
        assert len(caplog.messages) == 1
        assert "Not a directory" in caplog.messages[0]
        put(BARE)
    for _ in range(2):
        put(BARE)
        tries.now += 0.9375
    assert [path.stat().st_size for path in short.segments()] == [4000]
    tries.now += 0.0625
    put(BARE)
    assert len(short.events("source_attempted")) == 4
    assert len(short.segments()) == 2
    assert short.dropped() == {"unavailable": 3}
    assert len(caplog.messages) == 1
    short.check_books()


def test_it_is_followed_as_soon_as_it_can_be(short: Log, clock: Clock, tries: Monotonic) -> None:
    fill_up(short)
    with Away(short.directory):
        put(300)
        clock.now += 10**9
        put(300)
    put(300)
    assert [path.stat().st_size for path in short.segments()] == [2900]
    clock.now += 10**9
    put(300)
    put(300)
    assert len(short.segments()) == 2
    clock.now += 10**9
    put(300)
    assert len(short.segments()) == 2
    assert not short.dropped()
    short.check_books()


def test_what_is_too_long_for_twice_a_segment_is_dropped_and_what_is_not_goes_on(
    short: Log, clock: Clock, tries: Monotonic
) -> None:
    fill_up(short)
    with Away(short.directory):
        put(2001)
        put(2000)
    tries.now += 1.0
    put(300)
    assert [len(result) + BARE for result in results(short)][1:] == [300]
    assert short.dropped() == {"unavailable": 2}


def test_a_directory_that_cannot_be_had_is_said_once_and_tried_each_second(
    log: Log, tries: Monotonic, caplog: Any
) -> None:
    log.directory.write_text("")
    assert enable_metrics() is True
    assert len(caplog.messages) == 1
    assert "Not a directory" in caplog.messages[0]
    put(200)
    log.directory.unlink()
    for _ in range(2):
        put(200)
        tries.now += 0.9375
    assert not log.directory.exists()
    tries.now += 0.0625
    put(200)
    assert len(log.events("source_attempted")) == 1
    assert log.dropped() == {"unavailable": 3}
    assert len(caplog.messages) == 1
    log.check_books()


def test_a_header_says_that_there_are_no_locks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the operating system is replaced: none that is at hand gives it."""

    def unsupported(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    enable_metrics()
    assert log.lines()[0]["locked"] is False


# --------------------------------------------------------------------------------------
# A segment that others touch


def results(log: Log) -> list[str]:
    return [event["result"] for event in log.events("source_attempted")]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("taken", "marked"),
    [(None, True), (None, False), ("theirs", True), ("theirs", False), ("ours", True)],
)
def test_a_descriptor_that_somebody_closed_is_neither_written_to_nor_closed(
    taken: str | None,
    marked: bool,
    later: bool,
    log: Log,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing has its number by now, or a file of the engine's, or our own, opened again."""
    if not marked:
        monkeypatch.setattr("mx_emitter.log.segment._mark", lambda _fd: False)
    metrics.record_attempt("random", "before")
    assert sink.stream is not None
    number = sink.stream._fd
    os.close(number)
    (tmp_path / "theirs").write_bytes(b"WEIGHTS")
    path = tmp_path / "theirs" if taken == "theirs" else log.segments()[0]
    if taken is not None:
        theirs = os.open(path, os.O_RDWR)
        os.dup2(theirs, number)
        os.close(theirs)
    clock.now += later * 10**9
    for result in ("after", "last"):
        metrics.record_attempt("random", result)
    if taken is not None:
        assert os.path.samestat(os.fstat(number), path.stat())
        os.close(number)
    assert (tmp_path / "theirs").read_bytes() == b"WEIGHTS"
    assert results(log) == ["before", "after", "last"]
    assert len(log.segments()) == 2
    log.check_books()


def test_a_segment_that_was_removed_is_followed_by_another_within_a_second(
    log: Log, clock: Clock
) -> None:
    metrics.record_attempt("random", "before")
    assert sink.stream is not None
    number = sink.stream._fd
    log.segments()[0].unlink()
    metrics.record_attempt("random", "lost")
    clock.now += 10**9
    metrics.record_attempt("random", "after")
    assert results(log) == ["after"]
    assert [line["seq"] for line in log.lines()] == [3, 4]
    assert log.lines()[0]["segment"] == 1
    assert not os.path.exists(f"/proc/self/fd/{number}") or sink.stream._fd == number


# --------------------------------------------------------------------------------------
# Threads


class Held:
    """A lock that another thread has until it was asked for so many times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked: list[float] = []
        self.had = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.asked.append(timeout if blocking else 0)
        self.had = len(self.asked) > self.times
        return self.had

    def release(self) -> None:
        if not self.had:
            raise RuntimeError("cannot release un-acquired lock")
        self.had = False

    def _is_owned(self) -> bool:
        return self.had


@pytest.mark.parametrize("times", [0, 1, 3])
@pytest.mark.parametrize("what", ["an event", "an opening", "a drop"])
def test_whatever_needs_the_lock_waits_for_the_thread_that_has_it(
    what: str, times: int, log: Log
) -> None:
    """It looks for another lock each second: there is one in a child that is forked meanwhile."""
    metrics.record_attempt("random", "first")
    assert sink.stream is not None
    held = Held(times)
    sink.stream._lock = held  # type: ignore[assignment]
    if what == "an event":
        metrics.record_attempt("random", "second")
    elif what == "an opening":
        sink.stream.open()
    else:
        sink.stream.drop("unencodable")
    assert held.asked[: times + 1] == [0, *[1.0] * times]
    assert not held.had
    assert results(log) == ["first", *["second"] * (what == "an event")]
    assert log.dropped() == ({"unencodable": 1} if what == "a drop" else {})


def test_what_waits_for_the_lock_goes_on_in_a_child(log: Log) -> None:
    """Whoever has its parent's lock is not in the child."""
    metrics.record_attempt("random", "first")
    parents = sink.stream
    assert parents is not None

    class Forked(Held):
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if len(self.asked) == 2:
                parents.abandon()
            return super().acquire(blocking, timeout)

    held = Forked(10**9)
    parents._lock = held  # type: ignore[assignment]
    parents.emit(b'"second"', b"", b"info")
    assert held.asked == [0, 1.0, 1.0]
    assert log.names() == ["source_attempted"]


def test_a_child_of_a_fork_that_python_was_not_told_of_logs_for_itself(log: Log) -> None:
    metrics.record_attempt("parent", "before")
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        try:
            metrics.record_attempt("child", "x")
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    metrics.record_attempt("parent", "after")
    procs: dict[str, list[str]] = {}
    for event in log.events():
        procs.setdefault(event["proc"], []).append(event["policy"])
    assert sorted(procs.values()) == [["child"], ["parent", "parent"]]


def test_an_event_of_a_child_goes_to_a_log_of_its_own(log: Log) -> None:
    """To its parent's stream it comes by what was bound before the fork."""
    metrics.record_attempt("random", "parent")
    parents = sink.stream
    assert parents is not None
    parents.here = b"\0"  # type: ignore[assignment]  # as the child finds it
    emit = sink.msg
    metrics.record_attempt("random", "child")
    assert sink.stream is not None
    assert sink.stream is not parents
    emit(b'"late"', b"", b"info")  # of an event of the parent's in the middle of the fork
    assert results(log) == ["parent", "child"] or results(log) == ["child", "parent"]
    assert not log.events("late")
    assert parents._segment is not None
    assert parents._segment.fd == -1


# --------------------------------------------------------------------------------------
# What cannot be logged


def test_what_a_failure_of_our_own_keeps_from_the_log_is_counted(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics.record_attempt("random", "first")

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Stream, "_put", fail)
        for _ in range(3):
            metrics.record_attempt("random", "lost")
        assert sink.stream is not None
        sink.stream.emit(b'"lost"', b"", b"info")
    metrics.record_attempt("random", "second")
    assert log.dropped() == {"unencodable": 4}
    with monkeypatch.context() as patched:
        patched.setattr(Stream, "_locked", fail)
        for _ in range(2):
            sink.stream.drop("too_long")
    metrics.record_attempt("random", "last")
    assert results(log) == ["first", "second", "last"]
    assert log.dropped() == {"unencodable": 4, "too_long": 2}
    log.check_books()


def test_what_was_dropped_for_two_reasons_is_reported_for_each(log: Log, disk: Disk) -> None:
    disk.room = 0
    metrics.record_attempt("random", "lost")
    sink.drop("too_long")
    sink.drop("too_long")
    disk.room = None
    sink.drop("unencodable")
    assert log.dropped() == {"no_space": 1, "too_long": 2, "unencodable": 1}
    metrics.record_attempt("random", "last")
    assert len(log.events("events_dropped")) == 3
    log.check_books()


def test_close_to_the_recursion_limit_each_event_is_logged_or_counted(short: Log) -> None:
    returned = 0

    def descend() -> None:
        nonlocal returned
        try:  # noqa: SIM105 - it would be a call
            descend()
        except RecursionError:
            pass
        try:
            metrics.record_attempt("deep", "x" * 300)
            returned += 1
        except RecursionError:  # there was no room to call it at all
            pass

    descend()
    metrics.record_attempt("last", "x")
    events = short.events("source_attempted")
    assert len(events) + sum(short.dropped().values()) == returned + 1
    assert len(short.segments()) > 100
    short.check_books()


# --------------------------------------------------------------------------------------
# The limit

#: Bytes that our files may take in the tests of the limit.
MOST = 100_000


def _fill(directory: Path, size: int) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "events-aaaaaaaaaaaa-0.jsonl"
    with open(path, "wb") as ballast:
        ballast.truncate(size)
    return path


def test_a_directory_past_its_limit_gets_no_new_writer(log: Log, caplog: Any) -> None:
    ballast = _fill(log.directory, 33 << 20)
    assert enable_metrics() is True
    for _ in range(7):
        metrics.record_nixl_receive("empty")
    assert os.listdir(log.directory) == [ballast.name]
    assert len(caplog.messages) == 1

    ballast.unlink()
    recorded = 7

    def logged() -> bool:
        nonlocal recorded
        metrics.record_nixl_receive("empty")
        recorded += 1
        return bool(log.segments())

    support.wait_until(logged)
    assert len(log.events("nixl_received")) + log.dropped()["limit"] == recorded
    assert len(log.events("nixl_received")) == 1
    log.check_books()


def test_at_the_limit_the_full_segment_is_let_go_and_drops_are_counted(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_MAX_BYTES", "16000")
    recorded = 0

    def record() -> None:
        nonlocal recorded
        metrics.record_attempt("random", recorded)
        recorded += 1

    while len(log.events()) == recorded:
        record()
    for _ in range(100):
        record()
    *finished, newest = log.segments()
    assert all(map(_granted, finished))
    assert not _granted(newest)
    # Nothing but drops goes there, and no more than a segment holds.
    names = [json.loads(line)["event"] for line in newest.read_bytes().splitlines()]
    assert names == ["segment_continued", *["events_dropped"] * (len(names) - 1)]
    assert 16000 <= sum(path.stat().st_size for path in log.segments()) <= 16000 + 2 * 2000

    kept = len(log.events("source_attempted"))
    seen = log.lines()
    for path in finished:
        path.unlink()

    def logged() -> bool:
        record()
        return bool(log.events("source_attempted"))

    support.wait_until(logged)
    assert log.segments()[0] == newest
    assert kept + len(log.events("source_attempted")) + log.dropped()["limit"] == recorded
    used = {line["seq"] for line in [*seen, *log.lines()]}  # the newest's first are in both
    assert used == set(range(len(used)))


@pytest.mark.parametrize(
    ("size", "logged", "told"),
    [
        (MOST - 1, 1, 0),
        (MOST, 0, 1),
        (MOST + MOST // 32 - 1, 0, 1),
        (MOST + MOST // 32, 0, 0),
    ],
    ids=["below", "at", "a little past", "past"],
)
def test_at_the_limit_a_new_writer_tells_of_its_drops_alone(
    size: int, logged: int, told: int, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("MX_METRICS_MAX_BYTES", str(MOST))
    ballast = _fill(log.directory, size)
    enable_metrics()
    assert len(caplog.messages) == 1 - logged
    assert all(f"{MOST} bytes" in message for message in caplog.messages)
    metrics.record_nixl_receive("empty")
    assert len(caplog.messages) == 1 - logged
    ballast.unlink()
    assert (len(log.events("nixl_received")), log.dropped()["limit"]) == (logged, told)
    assert len(log.segments()) == logged + told


def test_drops_are_told_of_as_they_become_more_by_a_quarter(
    log: Log, monkeypatch: pytest.MonkeyPatch, tries: Monotonic
) -> None:
    monkeypatch.setenv("MX_METRICS_MAX_BYTES", str(MOST))
    ballast = _fill(log.directory, MOST)
    ballast = ballast.rename(ballast.with_name(f".{ballast.name}"))
    told = []
    for _ in range(15):
        metrics.record_nixl_receive("empty")
        told.append(log.dropped()["limit"])
    assert told == [1, 2, 3, 4, 4, 6, 6, 8, 8, 8, 11, 11, 11, 14, 14]
    ballast.unlink()
    tries.now += 1.0
    metrics.record_nixl_receive("empty")
    assert log.dropped() == {"limit": 15}
    assert len(log.events("nixl_received")) == 1
    assert len(log.segments()) == 1
    log.check_books()


def test_where_all_was_removed_at_the_limit_a_new_segment_is_made(
    log: Log, monkeypatch: pytest.MonkeyPatch, clock: Clock, tries: Monotonic
) -> None:
    monkeypatch.setenv("MX_METRICS_MAX_BYTES", str(MOST))
    _fill(log.directory, MOST)
    metrics.record_nixl_receive("empty")
    for path in log.directory.iterdir():
        path.unlink()
    tries.now += 1.0
    clock.now += 10**9
    metrics.record_nixl_receive("complete")
    assert len(log.events("nixl_received")) == 1
    assert not log.dropped()


#: Drops events, and dies at once.
DROPPING = """
import os, signal, sys
from mx_emitter import metrics
for n in range(int(sys.argv[1])): metrics.record_nixl_receive("empty")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("dropped", [1, 7, 5000])
def test_a_rank_that_ends_in_a_full_directory_has_told_of_its_drops(
    dropped: int, program: Program
) -> None:
    _fill(program.directory, 1 << 20)
    process = program.start(DROPPING, str(dropped), MX_METRICS_MAX_BYTES=str(1 << 20))
    assert process.result() == -signal.SIGKILL
    (program.directory / "events-aaaaaaaaaaaa-0.jsonl").unlink()
    assert dropped * 0.8 <= program.log.dropped()["limit"] <= dropped
    assert len(program.log.events()) < 50
    program.log.check_books()


def test_the_drops_of_a_rank_that_was_there_before_are_told_too(program: Program) -> None:
    process = program.start(DROPPING, "5000", MX_METRICS_MAX_BYTES="160000")
    assert process.result() == -signal.SIGKILL
    logged, dropped = len(program.log.events("nixl_received")), program.log.dropped()["limit"]
    assert logged > 500
    assert (5000 - logged) * 0.8 <= dropped <= 5000 - logged
    program.log.check_books()


def test_on_a_small_volume_our_files_take_half(program: Program, small_disk: Path) -> None:
    """So what comes on top has room, and nobody meets a full disk."""
    code = """
from mx_emitter import metrics
for n in range(5000): metrics.record_nixl_receive("empty")
"""
    process = program.run(code, MX_METRICS_DIR=str(small_disk / "log"))
    log = Log(small_disk / "log")
    sizes = [path.stat().st_size for path in log.segments()]
    half = 128 * 1024
    assert half <= sum(sizes) <= half + 2 * half // 8
    assert max(sizes) <= half // 8
    assert set(log.dropped()) == {"limit"}
    assert "131072 bytes" in process.error_output


def test_a_full_directory_is_looked_at_at_most_once_a_second(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_MAX_BYTES", "8000")
    now, looks, scandir = 1000.0, 0, os.scandir

    def look(place: int) -> Any:
        nonlocal looks
        looks += 1
        return scandir(place)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(os, "scandir", look)

    def looks_for(events: int) -> int:
        nonlocal looks
        looks = 0
        for n in range(events):
            metrics.record_attempt("random", n)
        return looks

    looks_for(200)
    seen = [looks_for(200)]
    for step in (0.5, 0.4375, 0.0625, 0.9375, 0.0625, 30):
        now += step
        seen.append(looks_for(200))
    # None within the second, one at its end, and so on.
    assert seen == [0, 0, 0, 1, 0, 1, 1]


def test_files_of_others_do_not_count_and_stay(log: Log) -> None:
    log.directory.mkdir()
    others = ["counter_7.db", "event-0.jsonl", "notes"]
    for name in others:
        with open(log.directory / name, "wb") as file:
            file.truncate(64 << 20)
    metrics.record_nixl_receive("empty")
    assert log.names() == ["nixl_received"]
    assert {path.name for path in log.directory.iterdir()} >= set(others)


# --------------------------------------------------------------------------------------
# Torn lines and failing writes: the operating system's answer is replaced for these only, since
# no real one tears a line at a chosen byte. test_surroundings fills a real file system.


class Disk:
    """Answers for ``os.write``: how many bytes go through before the disk is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, fd: int, data: bytes) -> int:
        if self.room is None:
            return self._write(fd, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(fd, data[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(log: Log, monkeypatch: pytest.MonkeyPatch) -> Disk:
    metrics.record_attempt("random", "first")
    return Disk(monkeypatch)


@pytest.mark.parametrize("room", [0, 1, 30, 150])
def test_a_torn_line_is_ended_and_its_number_used_again(room: int, log: Log, disk: Disk) -> None:
    disk.room = room
    for _ in range(5):
        metrics.record_attempt("random", "lost")
    disk.room = None
    metrics.record_attempt("random", "good")
    metrics.record_attempt("random", "better")

    text = log.segments()[0].read_bytes()
    whole = [line for line in text.split(b"\n") if line.endswith(b"}")]
    (log.directory / "whole").mkdir()
    (log.directory / "whole" / log.segments()[0].name).write_bytes(b"\n".join(whole) + b"\n")
    read = Log(log.directory / "whole")
    assert [event.get("result") for event in read.events()] == ["first", "good", None, "better"]
    assert read.dropped() == {"no_space": 5}
    assert [line["seq"] for line in read.lines()] == list(range(5))
    assert text.count(b"\n\n") <= 1


@pytest.mark.parametrize("room", [0, 30, None])
def test_a_signal_handler_that_raises_around_the_write_costs_no_number(
    room: int | None, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler runs as the write returns: what it returned is lost, the file tells it."""
    metrics.record_attempt("random", "first")
    write = os.write

    def interrupted(fd: int, data: bytes) -> int:
        write(fd, data[:room])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            metrics.record_attempt("random", "interrupted")
    metrics.record_attempt("random", "last")
    (segment,) = log.segments()
    assert sink.stream is not None
    assert sink.stream._size == segment.stat().st_size
    whole = [json.loads(line) for line in segment.read_bytes().splitlines() if line[-1:] == b"}"]
    results = [line.get("result") for line in whole]
    assert results == [None, "first", *(["interrupted"] if room is None else []), "last"]
    assert [line["seq"] for line in whole] == list(range(len(whole)))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("first", [True, False])
def test_a_signal_handler_that_raises_as_a_segment_gets_its_name_costs_no_number(
    moment: str, first: bool, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "1500")
    if not first:
        metrics.record_attempt("random", "x" * 900)
    rename = os.rename

    def interrupted(*args: Any, **named: Any) -> None:
        if moment == "after":
            rename(*args, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            metrics.record_attempt("random", "y" * 900)
    named = {path.name: path.stat().st_ino for path in log.segments()}
    metrics.record_attempt("random", "z" * 900)
    assert named.items() <= {path.name: path.stat().st_ino for path in log.segments()}.items()
    assert [event["result"][0] for event in log.events()] == ([] if first else ["x"]) + ["z"]
    log.check_books()
    headers = [line["segment"] for line in log.lines() if line["event"] not in log.names()]
    assert headers == list(range(len(log.segments())))
    assert sorted(os.listdir(log.directory)) == sorted(path.name for path in log.segments())


def test_a_write_that_is_refused_at_the_recursion_limit_costs_no_number(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_fd: int, _data: bytes) -> int:
        raise RecursionError

    metrics.record_attempt("random", "first")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refused)
        for _ in range(2):
            metrics.record_attempt("random", "lost")
    metrics.record_attempt("random", "last")
    assert results(log) == ["first", "last"]
    assert log.dropped() == {"unencodable": 2}
    log.check_books()


def test_another_failure_of_a_write_is_counted_and_a_new_segment_tried(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics.record_attempt("random", "first")
    write, bad = os.write, sink.stream._fd  # type: ignore[union-attr]

    def failing(fd: int, data: bytes) -> int:
        if fd == bad:
            raise OSError(errno.EIO, "Input/output error")
        return write(fd, data)

    monkeypatch.setattr(os, "write", failing)
    recorded = 0

    def recovered() -> bool:
        nonlocal recorded
        metrics.record_attempt("random", "later")
        recorded += 1
        return len(log.segments()) == 2

    support.wait_until(recovered)
    assert len(log.events("source_attempted")) - 1 + log.dropped()["io_error"] == recorded
    log.check_books()


def test_every_reason_is_in_the_schema() -> None:
    names = {field.name for field in EVENTS["events_dropped"].fields}
    assert names == {"reason", "count"}
