"""What a signal handler does in the middle of an event, at each moment at which one may come.

The interpreter runs handlers when a function begins and when a call has returned. A profile
function is called at these moments, too, so it stands for the handler: each scenario is run once
for each of its moments.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from mx_emitter import enable_metrics, metrics
from mx_emitter.log import directory, encode, segment, stream, warn_once
from mx_emitter.log.sink import sink
from tests.support.emitter_fixtures import _as_if_just_imported
from tests.support.emitting import Log

#: Where handlers come: no more is done under the stream's lock.
PLACES = {module.__file__ for module in (directory, encode, segment, stream)}


class Handler:
    """Calls ``act`` at one moment of what runs within ``with``."""

    def __init__(self, moment: int, act: Callable[[], object]) -> None:
        self._left = moment
        self._act = act
        self.came = False

    def __enter__(self) -> Handler:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, called: object) -> None:
        if self.came or frame.f_code.co_filename not in PLACES or event not in ("call", "c_return"):
            return
        if called is os.scandir:  # what it returns would be lost, and warn
            return
        self._left -= 1
        if self._left < 0:
            self.came = True
            sys.call_tracing(self._handle, ())

    def _handle(self) -> None:
        sys.settrace(sys.gettrace())  # else `make mutants` would not see which lines run here
        self._act()


# --------------------------------------------------------------------------------------
# The scenarios: what was before the event in the middle of which the handler comes


def long_event(policy: str) -> None:
    """Two of them and a header fill a segment."""
    metrics.record_attempt(policy, "x" * 700)


def a_further_event() -> None:
    long_event("before")


def a_rotation() -> None:
    long_event("before")
    long_event("before")


def another_second() -> None:
    long_event("before")
    assert sink.stream is not None
    sink.stream._second = 0


def two_numbers_are_free() -> None:
    """An event and that of a handler in the middle of it could not be written."""
    long_event("before")
    assert sink.stream is not None
    first = sink.stream._next_seq
    sink.stream._free += [first + 1, first]
    sink.stream._next_seq += 2


def a_lost_descriptor() -> None:
    long_event("before")
    assert sink.stream is not None
    os.close(sink.stream._fd)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """So many bytes of each write have room."""
    write = os.write

    def limited(fd: int, data: bytes) -> int:
        if not size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:size])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", limited)
        yield


def failed(room: int) -> None:
    long_event("before")
    with room_for(room):
        metrics.record_attempt("lost", "x")


SCENARIOS: dict[str, Callable[[], None]] = {
    "the first event": lambda: None,
    "a further event": a_further_event,
    "a rotation": a_rotation,
    "another second": another_second,
    "a lost descriptor": a_lost_descriptor,
    "two numbers free": two_numbers_are_free,
    "after a drop": lambda: failed(0),
    "after a torn line": lambda: failed(30),
}


#: Those in which a segment is open at each moment.
OPEN = [name for name in SCENARIOS if name not in ("the first event", "a lost descriptor")]


def moments(
    log: Log, before: Callable[[], None], act: Callable[[], object], event: Callable[[], object]
) -> Iterator[int]:
    """Run ``event`` with a handler that does ``act`` at its first moment, its second, and so on."""
    for moment in range(10_000):
        _as_if_just_imported()
        warn_once.uncounted.clear()
        shutil.rmtree(log.directory, ignore_errors=True)
        before()
        with Handler(moment, act) as handler:
            event()
        if not handler.came:
            assert moment > 5, "no handler came anywhere"
            return
        yield moment


@pytest.fixture
def rotating(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv("MX_METRICS_SEGMENT_BYTES", "2400")
    return log


def whole(log: Log) -> Log:
    """The same log without torn lines, each of which ends before the next good one."""
    if not any(b"}\n" not in line for line in _lines(log)):
        return log
    kept = log.directory.with_name("whole")
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for path in log.segments():
        lines = path.read_bytes().splitlines(keepends=True)
        (kept / path.name).write_bytes(b"".join(line for line in lines if b"}\n" in line))
    return Log(kept)


def _lines(log: Log) -> list[bytes]:
    return [line for path in log.segments() for line in path.read_bytes().splitlines(keepends=True)]


def attempts(log: Log) -> list[str]:
    return [event["policy"] for event in log.events("source_attempted")]


def check(log: Log, scenario: str, moment: int, torn: int = 0) -> None:
    """Each number is used once, what was dropped is reported once, segments are in order and each
    has a header, nothing else is there, and the lock is free."""
    read = whole(log)
    read.check_books()
    headers = [line["segment"] for line in read.lines() if "segment" in line]
    assert headers == list(range(len(log.segments()))), moment
    assert sorted(os.listdir(log.directory)) == [path.name for path in log.segments()], moment
    assert read.dropped()["no_space"] == scenario.startswith("after") + torn, moment
    assert len(read.dropped()) <= 1, moment
    assert sink.stream is not None
    assert sink.stream._size == log.segments()[-1].stat().st_size, moment
    assert not sink.stream._lock._is_owned(), moment  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------
# What the handler does


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_events_of_the_handler_are_logged_once(scenario: str, long: bool, rotating: Log) -> None:
    """They are logged when the recorder returns, unless no segment is open at that moment."""
    before: list[str] | None = None

    def inner() -> None:
        for count in (1, 2):
            metrics.record_attempt("inner", "y" * 700 * long)
            if scenario in OPEN:
                logged = sum(b'"inner"' in line for line in _lines(rotating))
                assert logged == count, "not logged at once"

    for moment in moments(rotating, SCENARIOS[scenario], inner, lambda: long_event("outer")):
        found = attempts(whole(rotating))
        before = before or [policy for policy in found if policy == "before"]
        assert sorted(found) == sorted([*before, "outer", "inner", "inner"]), moment
        long_event("last")
        assert attempts(whole(rotating))[-1] == "last"
        check(rotating, scenario, moment)


@pytest.mark.parametrize("scenario", OPEN)
def test_an_event_of_the_handler_that_is_torn_harms_no_other(scenario: str, rotating: Log) -> None:
    def torn() -> None:
        with room_for(30):
            metrics.record_attempt("inner", "y")

    for moment in moments(rotating, SCENARIOS[scenario], torn, lambda: long_event("outer")):
        long_event("last")
        found = [policy for policy in attempts(whole(rotating)) if policy != "before"]
        assert [policy for policy in found if policy != "inner"] == ["outer", "last"], moment
        check(rotating, scenario, moment, torn=1 - found.count("inner"))


def descriptors() -> set[int]:
    found = set(map(int, os.listdir("/proc/self/fd")))
    return {number for number in found if os.path.exists(f"/proc/self/fd/{number}")}


def close_unknown(used: set[int]) -> None:
    """One that was opened as the handler raised is known to nobody."""
    assert sink.stream is not None
    for number in descriptors() - used - {sink.stream._fd}:
        os.close(number)


@pytest.mark.parametrize(
    ("scenario", "first"),
    [
        *((scenario, first) for scenario in SCENARIOS for first in ("", "logs")),
        *((scenario, "tears") for scenario in OPEN),
    ],
)
def test_what_the_handler_raises_passes_and_the_log_goes_on(
    scenario: str, first: str, rotating: Log
) -> None:
    raised = 0

    def interrupt() -> None:
        if first == "logs":
            long_event("inner")
            long_event("inner")
        elif first == "tears":
            with room_for(30):
                metrics.record_attempt("inner", "y")
        raise KeyboardInterrupt

    def interrupted() -> None:
        nonlocal raised
        try:
            long_event("outer")
        except KeyboardInterrupt:
            raised += 1

    used = descriptors()
    for moment in moments(rotating, SCENARIOS[scenario], interrupt, interrupted):
        assert raised == moment + 1
        long_event("last")
        long_event("last")
        close_unknown(used)
        found = [policy for policy in attempts(whole(rotating)) if policy != "before"]
        inner = found.count("inner")
        assert inner == 2 if first == "logs" else inner <= (first == "tears"), moment
        others = [policy for policy in found if policy != "inner"]
        assert others in (["outer", "last", "last"], ["last", "last"]), moment
        check(rotating, scenario, moment, torn=(first == "tears") - inner * (first == "tears"))
        if not first and not scenario.startswith("after"):
            assert b"\n" not in _lines(rotating), "a line was ended twice"


def test_what_is_dropped_on_a_full_disk_meanwhile_is_counted_once(rotating: Log) -> None:
    def full() -> None:
        with room_for(0):
            long_event("outer")
            long_event("outer")

    for moment in moments(rotating, a_further_event, lambda: long_event("inner"), full):
        long_event("last")
        assert attempts(rotating) == ["before", "last"], moment
        assert rotating.dropped() == {"no_space": 3}, moment
        check(rotating, "after", moment, torn=2)


@pytest.mark.parametrize("scenario", ["the first event", "a further event", "a rotation"])
def test_nothing_is_said_under_the_lock(
    scenario: str, rotating: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logging handler may wait for a thread that waits for it."""
    said: list[bool] = []

    def say(*_: str) -> None:
        assert sink.stream is not None
        said.append(sink.stream._lock._is_owned())  # type: ignore[attr-defined]

    monkeypatch.setattr(warn_once, "say", say)
    for moment in moments(
        rotating,
        SCENARIOS[scenario],
        lambda: sink.drop("too_long"),
        lambda: long_event("outer"),
    ):
        assert said == [False], moment
        said.clear()
        assert rotating.dropped() == {"too_long": 1}, moment


@pytest.mark.parametrize("scenario", ["the first event", "a further event", "a rotation"])
def test_enabling_metrics_in_the_handler_changes_nothing(scenario: str, rotating: Log) -> None:
    for moment in moments(
        rotating, SCENARIOS[scenario], enable_metrics, lambda: long_event("outer")
    ):
        long_event("last")
        found = [policy for policy in attempts(rotating) if policy != "before"]
        assert found == ["outer", "last"], moment
        check(rotating, scenario, moment)


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_child_that_the_handler_forks_leaves_its_parents_log_alone(
    scenario: str, logs: bool, rotating: Log, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """It goes on with the event, and may log it, too, in a log of its own.

    This process becomes the child: Python calls the same in one, whose page is wiped.
    """
    parents: dict[str, bytes] = {}

    def found() -> dict[str, bytes]:
        try:
            return {path.name: path.read_bytes() for path in rotating.directory.iterdir()}
        except FileNotFoundError:
            return {}

    def fork() -> None:
        parents.clear()
        parents.update(found())
        if sink.stream is not None:
            sink.stream.here = b"\0"  # type: ignore[assignment]
        sink._after_fork()
        if logs:
            metrics.record_attempt("inner", "y")

    used = descriptors()
    for moment in moments(rotating, SCENARIOS[scenario], fork, lambda: long_event("outer")):
        long_event("child")
        close_unknown(used)
        left = found()
        assert {name: left.pop(name) for name in parents} == parents, moment
        assert sink.stream is not None
        (name,) = left
        assert name == f"events-{sink.stream.proc}-0.jsonl"
        lines = [json.loads(line) for line in left[name].splitlines()]
        assert [line["seq"] for line in lines] == list(range(len(lines)))
        assert {line["proc"] for line in lines} == {sink.stream.proc}, moment
        policies = [line["policy"] for line in lines[1:]]
        inner = ["inner"] * logs
        assert policies in ([*inner, "child"], [*inner, "outer", "child"]), moment
    assert capfd.readouterr() == ("", "")
    if not scenario.startswith("after"):
        assert caplog.messages == []


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_at_the_limit_no_drop_is_lost_nor_told_twice(
    before: int, raises: bool, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the handler interrupts may be dropped or not; one of a handler in the middle of an
    opening or a telling may be logged. After five drops, a sixth is not told at once."""
    monkeypatch.setenv("MX_METRICS_MAX_BYTES", "100000")
    ballast = log.directory / ".events-aaaaaaaaaaaa-0.jsonl"

    def fill() -> None:
        log.directory.mkdir()
        with ballast.open("wb") as file:
            file.truncate(100_000)
        for _ in range(before):
            long_event("before")

    def act() -> None:
        if raises:
            raise KeyboardInterrupt
        long_event("inner")

    def outer() -> None:
        with suppress(KeyboardInterrupt):
            long_event("outer")

    used = descriptors()
    for moment in moments(log, fill, act, outer):
        ballast.unlink()
        if sink.stream is not None:
            sink.stream._next_try = 0.0
        long_event("last")
        long_event("last")
        close_unknown(used)
        found = attempts(log)
        assert found[-2:] == ["last", "last"]
        met = len(found) - 2 + log.dropped()["limit"] - before
        assert met in ((0, 1) if raises else (2,)), moment
        log.check_books()
