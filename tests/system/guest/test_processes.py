"""Threads, forks, spawned processes, signals, and the end of the interpreter."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

import pytest

from mx_emitter import metrics
from tests.support.emitting import Log, Program


def _by_process(log: Log) -> dict[str, list[str]]:
    """Names of the events of each process, header included."""
    found: dict[str, list[str]] = {}
    for line in log.lines():
        found.setdefault(line["proc"], []).append(line["event"])
    return found


def _events_by_process(log: Log) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in log.events():
        found.setdefault(event["proc"], []).append(event)
    return found


def test_threads_share_a_stream(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "20000")
    together = threading.Barrier(8)

    def record(name: int) -> None:
        together.wait()
        for n in range(300):
            metrics.record_attempt(name, n)

    threads = [threading.Thread(target=record, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in range(8):
        mine = [event["result"] for event in log.events() if event["policy"] == str(name)]
        assert mine == [str(n) for n in range(300)]
    assert len({line["proc"] for line in log.lines()}) == 1
    log.check_books()


@pytest.mark.parametrize("first", ["before", "after", "both"])
def test_a_forked_child_has_a_stream_of_its_own(first: str, program: Program) -> None:
    program.run(
        """
import fcntl, os, sys
from mx_emitter import metrics
if sys.argv[1] != "after": metrics.record_attempt("parent", "before")
segments = set(os.listdir(os.environ["MX_METRICS_DIR"])) if sys.argv[1] != "after" else set()
for n in range(3):
    pid = os.fork()
    if pid == 0:
        for name in os.listdir("/proc/self/fd"):
            try: target = os.readlink("/proc/self/fd/" + name)
            except OSError: continue
            assert os.path.basename(target) not in segments, "the parent's segment is open"
        metrics.record_attempt("child", n)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    for name in segments:
        with open(os.path.join(os.environ["MX_METRICS_DIR"], name)) as file:
            try: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError: continue
            raise SystemExit("a child unlocked its parent's segment")
if sys.argv[1] != "before": metrics.record_attempt("parent", "after")
""",
        first,
    )
    streams = list(_by_process(program.log).values())
    assert len(streams) == 4
    parents = 2 if first == "both" else 1
    assert sorted(streams) == sorted(
        [["process_started", *["source_attempted"] * parents]]
        + [["process_started", "source_attempted"]] * 3
    )
    program.log.check_books()


@pytest.mark.long
def test_two_hundred_children_of_a_process_in_the_middle_of_events(program: Program) -> None:
    process = program.run(
        """
import os, threading, warnings
from mx_emitter import metrics
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: just what is tested
stop = threading.Event()
counts = [0, 0]
def record(n):
    while not stop.is_set():
        metrics.record_attempt("parent", n)
        counts[n] += 1
threads = [threading.Thread(target=record, args=(n,)) for n in range(2)]
for thread in threads: thread.start()
for n in range(200):
    pid = os.fork()
    if pid == 0:
        metrics.record_attempt("child", n)
        metrics.record_attempt("child", n)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
print(sum(counts))
""",
        MX_METRICS_MAX_BYTES=str(1 << 30),
    )
    results = Counter(event["policy"] for event in program.log.events())
    assert results == {"parent": int(process.output), "child": 400}
    assert len(_by_process(program.log)) == 201
    program.log.check_books()


def test_a_fork_by_a_signal_handler_in_the_middle_of_an_event(program: Program) -> None:
    process = program.run(
        """
import os, signal
from mx_emitter import metrics
children, in_child, forking = [], [False], [False]
def fork(signum, frame):
    if forking[0] or in_child[0]: return  # a fork in the middle of a fork is too much for logging
    forking[0] = True
    pid = os.fork()
    if pid: children.append(pid)
    else: in_child[0] = True
    forking[0] = False
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
count = 0
while len(children) < 60 and not in_child[0]:
    metrics.record_attempt("parent", count)
    count += 1
signal.setitimer(signal.ITIMER_REAL, 0)
if in_child[0]:
    metrics.record_attempt("child", os.getpid())
    os._exit(0)
for pid in children: assert os.waitpid(pid, 0)[1] == 0
print(count)
"""
    )
    # A child goes on with the event in the middle of which it was forked: it may log it, too, in
    # its own stream. The parent's stream has each event once, whatever its children do.
    (parent,) = (
        [event["result"] for event in events if event["policy"] == "parent"]
        for events in _events_by_process(program.log).values()
        if len(events) > 2
    )
    assert parent == [str(n) for n in range(int(process.output))]
    assert len(_events_by_process(program.log)) >= 61  # handlers nest: a child may fork, too
    program.log.check_books()


def test_the_load_that_runs_goes_on_in_a_child(program: Program) -> None:
    program.run(
        """
import os
from mx_emitter import metrics
with metrics.time_load("vllm", "m", "main"):
    if os.fork() == 0:
        metrics.record_attempt("child", "x")
        os._exit(0)
    os.wait()
"""
    )
    assert len({event["load_id"] for event in program.log.events()}) == 1
    assert len(program.log.events()) == 3


def test_spawned_processes(program: Program) -> None:
    program.run(
        """
import sys, multiprocessing
from mx_emitter import metrics
if __name__ == "__main__":
    metrics.record_attempt("parent", "x")
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=metrics.record_attempt, args=("child", "x"))
    process.start(); process.join()
    assert process.exitcode == 0
"""
    )
    streams = list(_by_process(program.log).values())
    assert streams == [["process_started", "source_attempted"]] * 2


def test_a_signal_handler_may_record_in_the_middle_of_anything(program: Program) -> None:
    process = program.run(
        """
import signal
from mx_emitter import metrics, enable_metrics
handled = depth = 0
def handler(signum, frame):
    global handled, depth
    if depth == 20: return  # where handlers take longer than the timer, they nest without end
    depth += 1
    metrics.record_attempt("handler", handled)
    handled += 1
    depth -= 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
count = 0
while handled < 2000:
    metrics.record_attempt("main", count)
    count += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(count, handled)
""",
        MX_METRICS_SEGMENT_BYTES="3000",
        MX_METRICS_MAX_BYTES=str(1 << 30),
    )
    main, handler = map(int, process.output.split())
    counts = Counter(event["policy"] for event in program.log.events())
    assert counts == {"main": main, "handler": handler}
    program.log.check_books()
    assert not process.error_output


def test_a_handler_that_raises_leaves_a_log_that_goes_on(program: Program) -> None:
    program.run(
        """
import signal, threading
from mx_emitter import metrics
recording = False
def interrupt(signum, frame):
    if recording: raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
interrupted = 0
while interrupted < 200:
    try:
        recording = True
        while True: metrics.record_attempt("main", "x")
    except KeyboardInterrupt:
        recording = False
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
thread = threading.Thread(target=metrics.record_attempt, args=("other", "x"))
thread.start(); thread.join(30)
assert not thread.is_alive(), "a lock was left behind"
metrics.record_attempt("last", "x")
""",
        MX_METRICS_MAX_BYTES=str(1 << 30),
    )
    assert [event["policy"] for event in program.log.events()][-2:] == ["other", "last"]
    program.log.check_books()  # an event that was interrupted costs no number


def test_a_handler_that_raises_while_an_event_waits_for_another_thread(program: Program) -> None:
    """What it raises passes; the event is not half in the middle of the other thread's."""
    program.run(
        """
import signal, threading
from mx_emitter import metrics
from mx_emitter.log.sink import sink
metrics.record_attempt("main", "first")
def interrupt(signum, frame): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
held, over = threading.Event(), threading.Event()
def hold():
    with sink.stream._lock:
        held.set()
        over.wait(30)
        metrics.record_attempt("other", "x")
thread = threading.Thread(target=hold)
thread.start()
held.wait(30)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    metrics.record_attempt("main", "interrupted")
except KeyboardInterrupt:
    over.set()
else:
    raise SystemExit("the interrupt was swallowed")
thread.join(30)
assert not thread.is_alive()
metrics.record_attempt("main", "last")
"""
    )
    attempts = [(event["policy"], event["result"]) for event in program.log.events()]
    assert attempts == [("main", "first"), ("other", "x"), ("main", "last")]
    program.log.check_books()


def test_labels_are_converted_outside_of_the_lock(program: Program) -> None:
    """A ``__str__`` that waits for a lock whose holder records would hang otherwise."""
    program.run(
        """
import threading
from mx_emitter import get_logger, metrics
theirs, waiting = threading.Lock(), threading.Event()
class Slow:
    def __str__(self):
        waiting.set()
        with theirs: return "slow"
def other():
    for record in (metrics.record_nixl_error, get_logger().info):
        record(Slow())
    get_logger().info("x", field=Slow())
with theirs:
    thread = threading.Thread(target=other)
    thread.start()
    waiting.wait(30)
    metrics.record_attempt("main", "x")
thread.join(30)
assert not thread.is_alive()
"""
    )
    assert len(program.log.events()) == 4


def test_warnings_are_logged_outside_of_the_lock(program: Program) -> None:
    """A logging handler holds a lock of its own, and may record."""
    program.run(
        """
import logging, os, threading
from mx_emitter import metrics
class Recording(logging.Handler):
    def emit(self, record):
        thread = threading.Thread(target=metrics.record_attempt, args=("handler", "x"))
        thread.start(); thread.join(30)
        assert not thread.is_alive()
logging.getLogger("mx_emitter").addHandler(Recording())
metrics.record_attempt("main", "x" * 2_000_000)
"""
    )
    assert program.log.names() == ["events_dropped", "source_attempted"]


def test_recording_while_the_interpreter_ends(program: Program) -> None:
    process = program.run(
        """
import atexit, threading
from mx_emitter import metrics, get_logger
class Late:
    def __del__(self):
        metrics.record_attempt("del", "x")
        with metrics.time_load("vllm", "m", "main"): pass
        metrics.record_unknown(1)
        get_logger().info("late")
late = Late()
late.itself = late
atexit.register(metrics.record_attempt, "atexit", "x")
"""
    )
    assert program.log.events("source_attempted")[0]["policy"] == "atexit"
    assert not process.error_output


def test_first_event_at_the_end(program: Program) -> None:
    process = program.run(
        """
import atexit
from mx_emitter import metrics
atexit.register(metrics.record_attempt, "atexit", "x")
"""
    )
    assert program.log.names() == ["source_attempted"]
    assert not process.error_output


def test_an_event_is_one_write_and_a_kill_loses_none(program: Program) -> None:
    process = program.start(
        """
import os, signal
from mx_emitter import metrics
metrics.record_attempt("random", "first")
def syscalls():
    with open("/proc/self/io") as io: return dict(l.split(": ") for l in io.read().splitlines())
before = int(syscalls()["syscw"])
for n in range(1000): metrics.record_attempt("random", n)
print(int(syscalls()["syscw"]) - before, flush=True)
metrics.record_attempt("random", "last")
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert process.result() == -9
    assert int(process.output) == 1000
    assert [event["result"] for event in program.log.events()] == [
        "first",
        *map(str, range(1000)),
        "last",
    ]


def test_starts_no_thread_and_holds_one_descriptor(program: Program) -> None:
    program.run(
        """
import os, threading
from mx_emitter import enable_metrics, get_logger, metrics
before = len(os.listdir("/proc/self/fd"))
enable_metrics()
for n in range(100): metrics.record_attempt("random", n)
assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
assert len(os.listdir("/proc/self/fd")) == before + 1
""",
        MX_METRICS_SEGMENT_BYTES="2000",
    )
    assert len(program.log.segments()) > 3
    assert os.path.isdir(program.directory)


#: Forks as a C library does it, of which Python is not told.
_FORK_OF_C = """
import ctypes, os, sys, threading
from mx_emitter import enable_metrics, get_logger, metrics
from mx_emitter.log.sink import sink
libc = ctypes.PyDLL(None)
def ended(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.mark.parametrize("how", ["fork", "vanished page"])
def test_a_fork_that_python_does_not_see(how: str, program: Program) -> None:
    program.run(
        _FORK_OF_C
        + """
from mx_emitter.log import forks, stream
if sys.argv[1] != "fork": stream.here = forks._Process  # a kernel that wipes no page
segment = lambda: os.readlink(f"/proc/self/fd/{sink.stream._fd}")
metrics.record_attempt("parent", "before")
parents = segment()
with metrics.time_load("vllm", "m", "main"):
    for what in (
        lambda: metrics.record_attempt("child", "recorder"),
        lambda: get_logger().info("child"),
        enable_metrics,
        lambda: sink.drop("unencodable"),
    ):
        pid = libc.fork()
        if pid == 0:
            what()
            metrics.record_attempt("child", "x")
            fds = os.listdir("/proc/self/fd")
            os._exit(int(parents in [os.path.realpath(f"/proc/self/fd/{n}") for n in fds]))
        assert ended(pid) == 0
metrics.record_attempt("parent", "after")
""",
        how,
    )
    streams = list(_events_by_process(program.log).values())
    assert sorted(len(stream) for stream in streams) == [1, 2, 2, 2, 4]
    assert len({line["proc"] for line in program.log.lines()}) == 5
    for event in program.log.events("source_attempted"):
        assert event["policy"] == ("parent" if event["result"] in ("before", "after") else "child")
    program.log.check_books()


def test_a_fork_that_python_does_not_see_while_another_thread_holds_the_lock(
    program: Program,
) -> None:
    program.run(
        _FORK_OF_C
        + """
import signal
metrics.record_attempt("parent", "before")
held, forked = threading.Event(), threading.Event()
def hold():
    with sink.stream._lock:
        held.set()
        forked.wait(30)
thread = threading.Thread(target=hold)
thread.start()
held.wait(30)
pid = libc.fork()
if pid == 0:
    signal.alarm(20)
    metrics.record_attempt("child", "x")
    os._exit(0)
forked.set()
assert ended(pid) == 0
thread.join()
"""
    )
    assert sorted(event["policy"] for event in program.log.events()) == ["child", "parent"]


#: Another thread has the stream's lock until the process forks.
_HELD = """
import os, signal, sys, threading, warnings
from mx_emitter import enable_metrics, metrics, processors
from mx_emitter.log.sink import sink
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: just what is tested
metrics.record_attempt("parent", "first")
held, forked = threading.Event(), threading.Event()
def hold():
    with sink.stream._lock:
        held.set()
        forked.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
"""

_WAITING = {
    "an event": 'metrics.record_attempt("parent", "second")',
    "an opening": "enable_metrics()",
    "a drop": 'sink.drop("unencodable")',
    "what is left": "sink.stream._settle()",
}


@pytest.mark.parametrize("what", _WAITING)
def test_a_fork_by_a_signal_handler_while_something_waits(what: str, program: Program) -> None:
    """What held the lock is not in the child, which must not wait for it."""
    process = program.run(
        _HELD
        + """
pid = 0
def handler(*_):
    global pid
    pid = os.fork()
    if pid: forked.set()
    else:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
exec(sys.argv[1])
if pid == 0:
    metrics.record_attempt("child", "x")
    os._exit(0)
print(os.waitpid(pid, 0)[1])
metrics.record_attempt("parent", "last")
""",
        _WAITING[what],
    )
    assert process.output.strip() == "0"
    attempts = program.log.events("source_attempted")
    assert [event["policy"] for event in attempts if event["result"] == "last"] == ["parent"]
    assert [event["policy"] for event in attempts].count("child") == 1
    assert len(_by_process(program.log)) == 2
    program.log.check_books()


def test_a_fork_by_a_signal_handler_right_before_an_event_waits(program: Program) -> None:
    """What held the lock is not in the child, which must not wait for it."""
    process = program.run(
        _HELD
        + """
dumps, pid = processors.dumps, 0
def fork_and_dump(fields):  # as a handler does that comes at this moment
    global pid
    processors.dumps = dumps
    pid = os.fork()
    if pid: forked.set()
    else: signal.alarm(20)
    return dumps(fields)
processors.dumps = fork_and_dump
metrics.record_attempt("parent", "second")
if pid == 0:
    metrics.record_attempt("child", "x")
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    )
    assert process.output.strip() == "0"
    assert [event["policy"] for event in program.log.events()].count("parent") == 2
    assert [event["policy"] for event in program.log.events()].count("child") == 1
