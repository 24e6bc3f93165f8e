"""Room for the next line: what a stream does where a segment cannot be had, or was let go."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mx_emitter import enable_metrics, metrics
from mx_emitter.log import stream as module
from mx_emitter.log import warn_once
from mx_emitter.log.segment import MARK
from mx_emitter.log.sink import sink
from mx_emitter.log.stream import LAST_WORDS_PER_LIMIT, TELLING_BYTES, Stream
from mx_emitter.settings import SEGMENTS_PER_LIMIT
from tests.support.emitting import Log


@pytest.fixture
def stream(log: Log) -> Stream:
    """That of a process that has its first segment."""
    assert enable_metrics()
    assert log.segments()
    assert sink.stream is not None
    return sink.stream


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """The directory cannot be opened meanwhile."""

    @contextlib.contextmanager
    def failing(code: int) -> Iterator[None]:
        def refuse(_: object) -> None:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patched:
            patched.setattr(module, "opened", refuse)
            yield

    return failing


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """All our files may take so many bytes."""
    return lambda most: monkeypatch.setattr(module, "limit_on", lambda *_: most)


@pytest.mark.parametrize("free", [False, True])
def test_a_signal_handler_lets_the_segment_go_right_before_the_write(
    free: bool, stream: Stream, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line goes to the next one, and no number is drawn for the write that is not made."""
    if free:  # of an event whose write failed
        stream._free, stream._next_seq = [1], 2
    looks = 0

    def look(_fd: int, _command: int) -> int:
        nonlocal looks
        looks += 1
        if looks == 1:
            stream._let_go(stream._segment, close=True)
        return MARK

    monkeypatch.setattr(module, "fcntl", look)
    metrics.record_attempt("random", "success")
    assert looks == 2
    assert log.names() == ["source_attempted"]
    assert not log.dropped()
    log.check_books()


def test_a_signal_handler_takes_the_free_number_of_the_line_right_before_the_write(
    stream: Stream, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a further number is free, the line has that one."""
    stream._free, stream._next_seq = [1, 2], 3  # of two events whose writes failed
    looks = 0

    def look(_fd: int, _command: int) -> int:
        nonlocal looks
        looks += 1
        if looks == 1:
            metrics.record_attempt("inner", "success")
        return MARK

    monkeypatch.setattr(module, "fcntl", look)
    metrics.record_attempt("outer", "success")
    found = [(event["policy"], event["seq"]) for event in log.events("source_attempted")]
    assert found == [("inner", 1), ("outer", 2)]
    assert stream._free == []
    log.check_books()


def test_what_was_written_in_part_was_not_written(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment: Any = stream._segment
    monkeypatch.setattr(type(segment), "length", lambda _: stream._size + 9)
    assert stream._settle_write(segment, 7, 10) is False
    assert stream._free == [7]
    assert stream._settle_write(segment, 8, 0) is True
    assert stream._free == [7]


def test_frames_for_an_opening_are_asked_for_before_it_begins(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Close to the recursion limit it would be left half done."""
    metrics.record_attempt("random", "first")
    assert sink.stream is not None
    sink.stream._limit = -1

    def refuse(_: int = 0) -> None:
        raise RecursionError

    with monkeypatch.context() as patched:
        patched.setattr(warn_once, "need_room", refuse)
        metrics.record_attempt("random", "lost")
    assert (len(log.segments()), sink.stream._opening) == (1, False)
    metrics.record_attempt("random", "last")
    assert log.dropped() == {"unencodable": 1}


def test_in_a_full_directory_trouble_gives_no_room_either(
    stream: Stream, log: Log, fail: Callable[[int], Any], limited: Callable[[int], None]
) -> None:
    limited(100_000)
    ballast = log.directory / "events-aaaaaaaaaaaa-0.jsonl"
    ballast.write_bytes(bytes(100_000))
    stream._limit = -1
    metrics.record_attempt("random", "lost")
    assert stream._full
    assert stream._fd >= 0
    stream._next_try = 0.0
    with fail(errno.EMFILE):
        metrics.record_attempt("random", "lost")
    ballast.unlink()
    assert set(log.names()) == {"events_dropped"}


def test_a_segment_that_was_to_be_followed_is_followed_in_another_second(
    stream: Stream, log: Log, fail: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when there was no space for the next one, while the present one takes lines."""
    now = time.time_ns()
    monkeypatch.setattr(module, "time_ns", lambda: now)
    stream._limit = -1
    with fail(errno.ENOSPC):
        metrics.record_attempt("random", "first")
    assert (log.names(), len(log.segments())) == (["source_attempted"], 1)
    now += 2 * 10**9
    metrics.record_attempt("random", "second")
    assert len(log.segments()) == 2
    assert not log.dropped()


@pytest.mark.parametrize(("more", "reason"), [(0, None), (1, "unavailable")])
def test_without_another_a_segment_takes_twice_its_bytes(
    more: int, reason: str | None, stream: Stream, fail: Callable[[int], Any]
) -> None:
    stream._size = 2 * stream._segment_bytes - 100
    with fail(errno.EMFILE):
        assert stream._make_room(100 + more) == reason


def test_on_a_small_volume_segments_are_a_part_of_what_there_is(
    log: Log, limited: Callable[[int], None]
) -> None:
    limited(64_000)
    while len(log.segments()) < 4:
        metrics.record_attempt("random", "success")
    assert max(path.stat().st_size for path in log.segments()) <= 64_000 // SEGMENTS_PER_LIMIT


@pytest.mark.parametrize(("less", "segments"), [(0, 1), (1, 2)])
def test_past_the_limit_a_new_writer_has_a_part_of_it_to_the_byte(
    less: int, segments: int, log: Log, limited: Callable[[int], None]
) -> None:
    most = 100_001
    assert most % LAST_WORDS_PER_LIMIT
    limited(most)
    log.directory.mkdir()
    with open(log.directory / "events-aaaaaaaaaaaa-0.jsonl", "wb") as ballast:
        ballast.truncate(most + most // LAST_WORDS_PER_LIMIT - less)
    assert enable_metrics()
    assert len(log.segments()) == segments


def test_a_header_takes_the_number_of_a_write_that_failed(stream: Stream, log: Log) -> None:
    metrics.record_attempt("random", "first")
    stream._free, stream._next_seq, stream._limit = [2], 3, -1
    stream._size = stream._segment_bytes
    metrics.record_attempt("random", "second")
    assert [line["seq"] for line in log.lines()] == [0, 1, 2, 3]
    assert len(log.segments()) == 2


def test_a_reason_without_a_word_of_the_system_names_the_directory(log: Log, caplog: Any) -> None:
    metrics.record_attempt("random", "x" * (2 << 20))
    (said,) = caplog.messages
    assert said.endswith(f": {log.directory}")


def test_events_that_waited_for_an_opening_are_all_logged_after_it(
    stream: Stream, log: Log, caplog: Any
) -> None:
    stream._pending = [(b'"waited"', b'"n":1', b"info"), (b'"waited"', b'"n":2', b"info")]
    stream._unsettled = True
    metrics.record_attempt("random", "success")
    assert log.names() == ["source_attempted", "waited", "waited"]
    assert [event["n"] for event in log.events("waited")] == [1, 2]
    assert not caplog.messages


def test_to_tell_of_drops_ends_no_segment(stream: Stream, log: Log) -> None:
    """Only in a full directory there is little room, for what is told."""
    stream.drop("too_long")
    for _ in range(2):
        metrics.record_attempt("random", "x" * TELLING_BYTES)
    assert log.dropped() == {"too_long": 1}
    assert len(log.segments()) == 1


def test_trouble_is_noted_once_and_not_in_a_child(stream: Stream) -> None:
    for _ in range(2):
        stream._note("limit")
    assert [reason for reason, _ in stream._complaints] == ["limit"]
    stream.abandon()
    stream._note("no_space")
    assert len(stream._complaints) == 1


def test_a_child_of_a_fork_in_the_middle_of_an_opening_says_nothing_of_its_parents_trouble(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent says it. In the child nobody has the lock."""
    said: list[str] = []
    monkeypatch.setattr(warn_once, "say", lambda reason, _: said.append(reason))
    stream._note("limit")
    stream._opening = True
    stream.abandon()
    stream._settle()
    assert said == []


def test_what_is_to_be_told_waits_where_frames_for_it_are_short(
    stream: Stream, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(frames: int) -> None:
        asked.append(frames)
        raise RecursionError

    with monkeypatch.context() as patched:
        patched.setattr(warn_once, "need_room", refuse)
        stream.drop("too_long")
    assert asked == [2 * warn_once.FRAMES]
    assert not log.dropped()
    metrics.record_attempt("random", "success")
    assert log.dropped() == {"too_long": 1}


def test_what_is_dropped_while_drops_are_told_of_is_told_later(
    stream: Stream, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Stream._put

    def put_none(stream: Stream, *_: bytes) -> str:
        stream._dropped["too_long"] += 2  # a signal handler's events
        return "io_error"

    with monkeypatch.context() as patched:
        patched.setattr(Stream, "_put", put_none)
        stream.drop("too_long")
    assert Stream._put is put
    metrics.record_attempt("random", "success")
    assert log.dropped() == {"too_long": 3}
