"""When a segment is finished: its lock is free, or it stays as it is."""

from __future__ import annotations

import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import reading
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_exporter.directory.settling import (
    GRACE_SECONDS,
    LONG_AGO_SECONDS,
    NEVER,
    SETTLE_SECONDS,
    Settling,
)
from tests.support import Lines
from tests.support.folding import whole_page
from tests.support.writers import Writer

ATTEMPT = ("source_attempted", {"policy": "random", "result": "success"})


class Clock:
    """A clock that goes on when it is told to, or when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def follower_of(directory: Path, clock: Clock) -> Follower:
    """A follower that wants two looks, as far apart as in a live exporter: a second."""
    return Follower(
        str(directory),
        Fold(CATALOG),
        settle_seconds=SETTLE_SECONDS,
        clock=clock,
        wait=clock.wait,
    )


@pytest.fixture
def follower(tmp_path: Path, clock: Clock) -> Follower:
    """The same, after its first drain."""
    follower = follower_of(tmp_path, clock)
    follower.drain()
    return follower


def attempts(follower: Follower) -> int:
    table = follower.fold.state.series["mx_p2p_source_attempts_total"]
    return sum(series.value for series in table.values())


def text_of_segment(proc: str = "cccccccccccc", lines: int = 4) -> bytes:
    """A segment that somebody else wrote."""
    log = Lines(proc)
    return log.header() + b"".join(log(ATTEMPT[0], **ATTEMPT[1]) for _ in range(lines))


def copy_of(directory: Path, proc: str = "cccccccccccc", n: int = 0) -> Path:
    """Where it is copied to."""
    return directory / f"events-{proc}-{n}.jsonl"


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


# --------------------------------------------------------------------------------------
# A copy


def test_a_segment_that_is_copied_in_slowly_is_read_to_its_end(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    whole, path = text_of_segment(), copy_of(tmp_path)
    for at in range(0, len(whole), 37):
        append(path, whole[at : at + 37])
        clock.now += 0.9
        follower.drain()
        assert follower.finished == 0
    assert attempts(follower) == 4
    assert not follower.fold.state.rejected
    clock.now += 0.9
    follower.drain()
    assert (follower.finished, follower.settles_in) == (0, pytest.approx(0.1))
    clock.now += 0.1
    follower.drain()
    assert (follower.finished, follower.settles_in) == (1, NEVER)
    assert follower.fold.state.gone == 1
    assert follower.fold.state.duplicates == 0


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 400)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 0.5])),
    st.tuples(st.just("drain"), st.just(0)),
)


@given(steps=st.lists(steps, max_size=40), torn=st.integers(0, 60))
def test_however_a_copy_comes_in_its_lines_count_once(
    steps: list[tuple[str, float]], torn: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whoever copies pauses for less than a second."""
    directory, clock = tmp_path_factory.mktemp("copy"), Clock()
    follower = follower_of(directory, clock)
    follower.drain()
    whole, path = text_of_segment(lines=6), copy_of(directory)
    whole = whole[: len(whole) - torn]
    given, paused = 0, 0.0
    for step, amount in [*steps, ("append", len(whole))]:
        if step == "append":
            append(path, whole[given : given + int(amount)])
            given, paused = given + int(amount), 0.0
        elif step == "wait" and (not given or paused + amount < 1.0):
            clock.now += amount
            paused += amount
        elif step == "drain":
            follower.drain()
            assert attempts(follower) == max(0, whole[:given].count(b"\n") - 1)
            assert not follower.fold.state.rejected
        if given >= len(whole):
            break
    for _ in range(2):
        follower.drain()
        clock.now += 1.0
    follower.drain()
    assert attempts(follower) == (6 if torn <= 1 else 5)
    assert follower.fold.state.rejected == ({"torn": 1} if torn > 1 else {})
    assert (follower.fold.state.lost, follower.fold.state.duplicates) == (0, 0)
    assert (follower.finished, follower.fold.state.gone) == (1, 1)


def test_its_torn_end_is_counted_once_it_has_settled(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    copy_of(tmp_path).write_bytes(text_of_segment()[:-20])
    follower.drain()
    assert not follower.fold.state.rejected
    clock.now += 1
    follower.drain()
    assert follower.fold.state.rejected == {"torn": 1}


def test_a_change_of_its_time_alone_starts_the_wait_again(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    path = copy_of(tmp_path)
    path.write_bytes(text_of_segment())
    follower.drain()
    clock.now += 0.9
    os.utime(path, (1, 1))
    follower.drain()
    clock.now += 0.9
    follower.drain()
    assert follower.finished == 0
    clock.now += 0.1
    follower.drain()
    assert follower.finished == 1


def test_so_does_another_file_of_the_same_size_and_time(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    path, other = copy_of(tmp_path), tmp_path / "other"
    for file in (path, other):
        file.write_bytes(text_of_segment())
        os.utime(file, (1, 1))
    follower.drain()
    clock.now += 0.9
    other.rename(path)
    follower.drain()
    clock.now += 0.9
    follower.drain()
    assert (follower.finished, follower.rewritten) == (0, 1)


def test_so_do_other_bytes_in_a_file_of_the_same_size_and_time(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    path, text = copy_of(tmp_path), text_of_segment()
    path.write_bytes(text)
    os.utime(path, (1, 1))
    follower.drain()
    clock.now += 0.9
    with path.open("r+b") as file:
        file.write(text.replace(b"random", b"RANDOM"))
    os.utime(path, (1, 1))
    follower.drain()
    clock.now += 0.9
    follower.drain()
    assert (follower.finished, follower.rewritten) == (0, 1)


@pytest.mark.parametrize("look", [1, 2])
def test_what_takes_long_around_a_look_brings_two_looks_no_farther_apart(
    look: int, follower: Follower, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain is held up for hours, before or after it looked at the segment."""
    path = copy_of(tmp_path, "aaaaaaaaaaaa")
    path.write_bytes(text_of_segment("aaaaaaaaaaaa"))
    other = Writer(tmp_path, "bbbbbbbbbbbb")  # looked at after it
    looks = iter(range(1, 9))

    def probe_slowly(fd: int, real=reading.probe) -> bool:
        held_up = os.fstat(fd).st_ino == os.stat(path if look == 1 else other.path).st_ino
        if held_up and next(looks) == look:
            clock.now += 10_000
        return real(fd)

    monkeypatch.setattr(reading, "probe", probe_slowly)
    with other:
        for _ in range(2):
            follower.drain()
            clock.now += 0.1
            assert follower.finished == 0
        clock.now += 1.0
        follower.drain()
        assert follower.finished == 1


def test_a_copy_of_a_log_without_locks_settles_too(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    """The newest segment came first, as it may."""
    log = Lines()
    older = log.header(0, locked=False) + log(ATTEMPT[0], **ATTEMPT[1])
    log.segment(tmp_path, 1, [], locked=False)
    path = copy_of(tmp_path, log.proc)
    path.write_bytes(older[:-30])
    follower.drain()
    assert follower.finished == 0
    append(path, older[-30:])
    follower.drain()
    clock.now += 1.0
    follower.drain()
    follower.drain()
    assert [segment.done for segment in follower.segments] == [True, False]
    assert attempts(follower) == 1
    assert follower.settles_in == NEVER


def test_what_is_out_of_reach_is_not_waited_for(follower: Follower, tmp_path: Path) -> None:
    copy_of(tmp_path).write_bytes(text_of_segment())
    follower.drain()
    assert follower.settles_in == 1.0
    moved = tmp_path.with_name("elsewhere")
    tmp_path.rename(moved)
    follower.drain()
    assert follower.settles_in == NEVER
    moved.rename(tmp_path)


# --------------------------------------------------------------------------------------
# A writer that was seen


def test_a_segment_that_was_seen_with_a_lock_is_finished_at_once(
    follower: Follower, tmp_path: Path
) -> None:
    with Writer(tmp_path) as writer:
        writer.log()
        follower.drain()
        assert follower.writers_alive == 1
        writer.log()
    follower.drain()
    assert (follower.finished, follower.fold.state.gone) == (1, 1)
    assert attempts(follower) == 2


def test_so_is_one_whose_process_holds_another(follower: Follower, tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        for _ in range(3):
            writer.log()
            writer.rotate()
        follower.drain()
        assert follower.finished == 3
    assert attempts(follower) == 3


def test_a_process_that_nobody_saw_alive_is_gone_a_second_later(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    with Writer(tmp_path) as writer:
        writer.log()
        writer.rotate()
    follower.drain()
    assert (follower.finished, follower.writers_alive, follower.fold.state.gone) == (0, 1, 0)
    clock.now += 1.0
    follower.drain()
    assert (follower.finished, follower.writers_alive, follower.fold.state.gone) == (2, 0, 1)


def test_a_copy_of_an_older_segment_of_a_process_that_ended_settles_too(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    """That the process held another segment is over: its log may be on its way by now."""
    with Writer(tmp_path) as writer:
        writer.rotate()
        older = writer.path.with_name(f"events-{writer.lines.proc}-0.jsonl")
        text = older.read_bytes()
        older.unlink()
        follower.drain()
    follower.drain()
    assert follower.finished == 1
    older.write_bytes(text[:-20])
    follower.drain()
    assert follower.finished == 1
    append(older, text[-20:])
    follower.drain()
    clock.now += 1.0
    follower.drain()
    assert follower.finished == 2
    assert not follower.fold.state.rejected


def test_a_lock_says_nothing_of_a_writer_without_locks(
    follower: Follower, clock: Clock, tmp_path: Path
) -> None:
    """It is of whoever copies: it was seen before the header said that the writer has none."""
    log = Lines("cccccccccccc")
    path = copy_of(tmp_path)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        follower.drain()
    text = log.header(0, locked=False) + log(ATTEMPT[0], **ATTEMPT[1])
    append(path, text[:-20])
    log.segment(tmp_path, 1, [], locked=False)
    follower.drain()
    assert (follower.finished, follower.settles_in) == (0, 1.0)
    append(path, text[-20:])
    follower.drain()
    clock.now += 1.0
    follower.drain()
    assert (follower.finished, attempts(follower)) == (1, 1)


# --------------------------------------------------------------------------------------
# The first drain and the last


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> float:
    """The system's clock, which stands still."""
    today = 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: today)
    return today


@pytest.mark.parametrize("age", [-3600, 0, 9.75])
def test_the_first_drain_waits_for_the_second_look(
    age: float, tmp_path: Path, clock: Clock, today: float
) -> None:
    """The exporter before it had finished that: without it, counters would fall."""
    path = copy_of(tmp_path)
    path.write_bytes(text_of_segment()[:-20])
    os.utime(path, (today - age,) * 2)
    started = follower_of(tmp_path, clock)
    started.drain()
    assert clock.waited == [1.0]
    assert started.fold.state.rejected == {"torn": 1}
    copy_of(tmp_path, "dddddddddddd").write_bytes(text_of_segment("dddddddddddd"))
    started.drain()
    assert (started.finished, clock.waited) == (1, [1.0])


def test_the_first_drain_waits_for_nothing_that_was_written_ten_seconds_ago(
    tmp_path: Path, clock: Clock, today: float
) -> None:
    path = copy_of(tmp_path)
    path.write_bytes(text_of_segment()[:-20])
    os.utime(path, (today - 10,) * 2)
    started = follower_of(tmp_path, clock)
    started.drain()
    assert (started.finished, clock.waited) == (1, [])
    assert started.fold.state.rejected == {"torn": 1}
    later = copy_of(tmp_path, "dddddddddddd")
    later.write_bytes(text_of_segment("dddddddddddd"))
    os.utime(later, (1, 1))
    started.drain()
    assert started.finished == 1, "an old time says nothing of what came since the start"


def test_the_first_drain_waits_for_nothing_beside_living_writers(
    tmp_path: Path, clock: Clock
) -> None:
    with Writer(tmp_path) as writer:
        writer.rotate()
        started = follower_of(tmp_path, clock)
        started.drain()
        assert (started.finished, clock.waited) == (1, [])


def test_a_directory_that_comes_later_is_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    """Nothing of it was shown before."""
    started = follower_of(tmp_path / "later", clock)
    started.drain()
    (tmp_path / "later").mkdir()
    copy_of(tmp_path / "later").write_bytes(text_of_segment())
    started.drain()
    assert (started.finished, clock.waited, attempts(started)) == (0, [], 4)


def test_an_end_settles_at_once(follower: Follower, tmp_path: Path) -> None:
    copy_of(tmp_path).write_bytes(text_of_segment())
    follower.drain()
    assert follower.finished == 0
    follower.settle_at_once()
    follower.drain()
    assert (follower.finished, follower.settles_in) == (1, NEVER)


def test_an_end_cuts_the_wait_short() -> None:
    settling = Settling(3600.0)
    settling.due = 3600.0
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(settling.wait)
        settling.settle_at_once()
        waiting.result(60.0)


def test_where_one_look_is_enough_a_slow_one_is_too(tmp_path: Path) -> None:
    """The clock goes on in the middle of it."""
    copy_of(tmp_path).write_bytes(text_of_segment())
    moments = count(100.0)
    follower = Follower(str(tmp_path), Fold(CATALOG), clock=lambda: next(moments))
    follower.drain()
    assert (follower.finished, follower.settles_in) == (1, NEVER)


def test_before_the_first_drain_nothing_is_due(tmp_path: Path, clock: Clock) -> None:
    assert follower_of(tmp_path, clock).settles_in == NEVER


# --------------------------------------------------------------------------------------
# Beside an owner who compacts


@pytest.fixture
def ended(tmp_path: Path) -> tuple[Follower, Clock]:
    """A reader that has finished what two dead processes left, one of them a load and half a line;
    another process's segments were compacted since."""
    clock = Clock()
    for n in range(3):
        Lines("aaaaaaaaaaaa").segment(tmp_path, n, [ATTEMPT])
    owner = Follower(str(tmp_path), Fold(CATALOG))
    owner.drain()
    with Writer(tmp_path, "bbbbbbbbbbbb") as rotated:
        rotated.rotate()
        reader = follower_of(tmp_path, clock)
        reader.drain()
        log = Lines("cccccccccccc")
        load = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
        text = log.header() + log("load_started", **load) + log(ATTEMPT[0], **ATTEMPT[1])
        copy_of(tmp_path).write_bytes(text[:-20])
        reader.drain()
        clock.now += 1.0
        reader.drain()
        assert reader.fold.state.rejected == {"torn": 1}
    reader.drain()
    assert (reader.finished, reader.fold.state.gone) == (6, 3)
    Compactor(1, 10**9, min_age=0.0).compact(owner)
    assert owner.covered
    return reader, clock


def test_a_reader_that_starts_over_finishes_again_what_it_had_finished(
    ended: tuple[Follower, Clock],
) -> None:
    """Else its counters would fall: of torn lines, of loads abandoned, of writers gone."""
    reader, clock = ended
    before = whole_page(reader.fold.state)
    waited = list(clock.waited)
    reader.drain()
    assert reader.covered
    assert whole_page(reader.fold.state) == before
    assert (clock.waited, reader.settles_in) == (waited, NEVER)


def test_but_not_what_has_changed_since(ended: tuple[Follower, Clock], tmp_path: Path) -> None:
    reader, _ = ended
    append(copy_of(tmp_path), b"\n")
    reader.drain()
    assert reader.covered
    assert [str(s.name) for s in reader.segments if not s.done] == ["events-cccccccccccc-0.jsonl"]


# --------------------------------------------------------------------------------------
# By itself


def test_the_times_of_a_live_exporter() -> None:
    assert (SETTLE_SECONDS, GRACE_SECONDS, LONG_AGO_SECONDS) == (1.0, 10.0, 10.0)


def a_segment(**more: Any) -> Any:
    given = {"procs": {"a"}, "was_locked": False, "unchanged_for": 0.0, "mtime": 0.0}
    return SimpleNamespace(**{**given, **more})


def test_without_a_grace_whoever_left_is_gone() -> None:
    settling = Settling(1.0)
    settling.begin_drain(first=False)
    assert settling.departed({"a"}) == {"a"}
    assert settling.departs == NEVER


def test_a_lock_that_was_seen_once_is_remembered() -> None:
    settling, segment = Settling(1.0), a_segment()
    settling.note_held(segment, uses_locks=True)
    settling.note_held(segment, uses_locks=False)
    assert segment.was_locked


def test_where_one_look_is_enough_no_clock_is_asked() -> None:
    """The clock may say that the look was before the file was found."""
    settling = Settling(0.0)
    settling.begin_drain(first=False)
    assert settling.is_settled(a_segment(unchanged_for=-1.0), uses_locks=False)


def test_that_somebody_was_gone_holds_for_one_drain(clock: Clock) -> None:
    settling = Settling(1.0, 10.0, clock)
    settling.begin_drain(first=False)
    settling.note_gone(["a"])
    assert settling.departed({"a", "b"}) == {"a"}
    clock.now += 4.0
    settling.begin_drain(first=False)
    assert settling.departed({"a"}) == set()
    assert settling.departs == 10.0
    # Since when it has had no open segment counts from then, whatever was before.
    clock.now += 10.0
    settling.begin_drain(first=False)
    assert settling.departed({"a", "b"}) == {"a"}


@pytest.mark.parametrize(("age", "gone"), [(10.0, {"a"}), (9.75, set()), (None, {"a"})])
def test_the_first_drain_takes_a_last_write_for_the_begin_of_the_grace(
    age: float | None, gone: set[str], clock: Clock, today: float
) -> None:
    """Without any segment there is nothing to wait for."""
    settling = Settling(1.0, 10.0, clock)
    settling.begin_drain(first=True)
    if age is not None:
        settling.note_end(a_segment(mtime=today - age))
        settling.note_written({"a": today - 100.0})
    assert settling.departed({"a"}) == gone
