"""When a process is gone: none of its segments was held for a while, and what takes that back."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_exporter.directory.settling import GRACE_SECONDS, NEVER, SETTLE_SECONDS
from tests.support import Lines
from tests.support.folding import page_of, replayed_page
from tests.support.writers import Writer

PROC, OTHER = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
TODAY = 1_800_000_000.0
LOAD = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
END = {**LOAD, "outcome": "success", "seconds": 1}


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(tmp_path: Path, clock: Clock) -> Callable[[], Follower]:
    """Starts a follower that gives processes as long as a live exporter does: ten seconds."""

    def start() -> Follower:
        follower = Follower(str(tmp_path), Fold(CATALOG), grace_seconds=GRACE_SECONDS, clock=clock)
        follower.drain()
        return follower

    return start


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A process in the middle of a load."""
    writer = Writer(tmp_path, PROC)
    writer.log("load_started", **LOAD)
    return writer


def loads(follower: Follower) -> tuple[int, int]:
    """Loads in progress and loads abandoned."""
    tracked = follower.fold.state.loads
    return sum(tracked.in_progress().values()), sum(tracked.abandoned.values())


def age(directory: Path, seconds: float) -> None:
    """Make the segments be written so long ago."""
    for path in directory.glob("events-*"):
        os.utime(path, (path.stat().st_mtime - seconds,) * 2)


def interrupt(writer: Writer, how: str) -> None:
    """What somebody does to a process that lives on."""
    if how == "removed":
        writer.path.unlink()
    writer.close()


HOWS = ["closed", "removed"]


@pytest.mark.parametrize("how", HOWS)
def test_a_load_whose_process_lost_its_segment_for_a_moment_is_not_abandoned(
    how: str, writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    follower = start()
    interrupt(writer, how)
    for wait in (0.0, 9.9):
        clock.now += wait
        follower.drain()
        assert (loads(follower), follower.writers_alive) == ((1, 0), 1)
    assert follower.settles_in == pytest.approx(0.1)
    writer.reopen()
    follower.drain()
    assert follower.settles_in == NEVER
    clock.now += 1000.0
    writer.log("load_finished", **END)
    follower.drain()
    assert (loads(follower), follower.fold.state.gone) == ((0, 0), 0)
    if how == "closed":
        assert page_of(follower.fold.state) == replayed_page(tmp_path)
    writer.close()


@pytest.mark.parametrize("how", HOWS)
def test_one_that_ends_after_the_grace_is_taken_back(
    how: str, writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    follower = start()
    interrupt(writer, how)
    follower.drain()
    clock.now += 10.0
    follower.drain()
    assert (loads(follower), follower.fold.state.gone, follower.writers_alive) == ((0, 1), 1, 0)
    before = follower.changes
    writer.reopen()
    follower.drain()
    assert (loads(follower), follower.fold.state.gone, follower.writers_alive) == ((1, 0), 0, 1)
    assert follower.changes > before
    writer.log("load_finished", **END)
    writer.close()
    follower.drain()
    assert loads(follower) == (0, 0)
    clock.now += 10.0
    follower.drain()
    assert (loads(follower), follower.fold.state.gone) == ((0, 0), 1)
    if how == "closed":
        assert page_of(follower.fold.state) == replayed_page(tmp_path)


def test_an_end_that_comes_without_a_lock_is_taken_back_too(
    writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    """Say in a segment that somebody copied back. Nobody comes to life by that."""
    follower = start()
    writer.close()
    follower.drain()
    clock.now += 10.0
    follower.drain()
    assert loads(follower) == (0, 1)
    writer.n = 1
    writer.lines.segment(tmp_path, 1, [("load_finished", END)])
    follower.drain()
    assert (loads(follower), follower.fold.state.gone) == ((0, 0), 1)


def test_a_killed_rank_is_gone_when_its_grace_is_over_though_nothing_changes(
    writer: Writer, start: Callable[[], Follower], clock: Clock
) -> None:
    follower = start()
    assert follower.settles_in == NEVER
    writer.close()
    follower.drain()
    assert (loads(follower), follower.finished, follower.settles_in) == ((1, 0), 1, 10.0)
    before = follower.changes
    clock.now += follower.settles_in
    follower.drain()
    assert (loads(follower), follower.settles_in) == ((0, 1), NEVER)
    assert follower.changes > before


def test_the_end_of_a_segment_is_a_change_though_its_process_has_its_grace(
    writer: Writer, start: Callable[[], Follower]
) -> None:
    follower = start()
    before = follower.changes
    writer.close()
    follower.drain()
    assert (follower.finished, follower.fold.state.gone) == (1, 0)
    assert follower.changes > before


def test_a_lock_alone_that_takes_back_a_process_is_a_change(
    writer: Writer, clock: Clock, tmp_path: Path
) -> None:
    """Of a segment that was read before, and waits for its second look."""
    follower = Follower(str(tmp_path), Fold(CATALOG), settle_seconds=SETTLE_SECONDS, clock=clock)
    follower.drain()
    writer.close()
    follower.drain()
    assert follower.fold.state.gone == 1
    with writer.lines.segment(tmp_path, 1, []).open("rb") as held:
        follower.drain()
        assert (follower.finished, follower.fold.state.gone) == (1, 1)
        before = follower.changes
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        follower.drain()
        assert (follower.fold.state.gone, follower.writers_alive) == (0, 1)
        assert follower.changes > before


def test_a_restart_within_the_grace_gives_it_again_and_one_after_it_does_not(
    writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    writer.close()
    for seconds in (0, 9):
        age(tmp_path, seconds)
        started = start()
        assert (loads(started), started.settles_in) == ((1, 0), 10.0)
    clock.now += 10.0
    started.drain()
    assert loads(started) == (0, 1)
    # What the exporter before has settled is settled: else its counter would fall.
    age(tmp_path, 1)
    assert loads(start()) == (0, 1)


@pytest.mark.parametrize(("seconds", "abandoned"), [(9.75, 0), (10, 1)])
def test_the_first_drain_takes_for_gone_who_wrote_as_long_ago_as_the_grace(
    seconds: float,
    abandoned: int,
    writer: Writer,
    start: Callable[[], Follower],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer.close()
    os.utime(writer.path, (TODAY - seconds,) * 2)
    monkeypatch.setattr(time, "time", lambda: TODAY)
    assert loads(start()) == (1 - abandoned, abandoned)


def test_each_time_that_a_process_loses_its_segment_it_has_the_whole_grace(
    writer: Writer, start: Callable[[], Follower], clock: Clock
) -> None:
    follower = start()
    for _ in range(3):
        writer.close()
        follower.drain()
        assert follower.settles_in == 10.0
        clock.now += 6.0
        follower.drain()
        writer.reopen()
        follower.drain()
        assert (loads(follower), follower.fold.state.gone) == ((1, 0), 0)
    writer.close()


def test_an_end_settles_at_once(writer: Writer, start: Callable[[], Follower]) -> None:
    follower = start()
    writer.close()
    follower.drain()
    assert loads(follower) == (1, 0)
    follower.settle_at_once()
    follower.drain()
    assert (loads(follower), follower.settles_in) == ((0, 1), NEVER)


# --------------------------------------------------------------------------------------
# Whose segment it is, its lines say


def test_a_segment_that_was_renamed_is_that_of_its_writer(
    writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    writer.path.rename(tmp_path / f"events-{OTHER}-0.jsonl")
    follower = start()
    for _ in range(3):
        clock.now += 10.0
        follower.drain()
        assert (loads(follower), follower.writers_alive) == ((1, 0), 1)
        assert page_of(follower.fold.state) == replayed_page(tmp_path)
    writer.close()
    follower.drain()
    clock.now += 10.0
    follower.drain()
    assert (loads(follower), follower.fold.state.gone) == ((0, 1), 1)
    assert page_of(follower.fold.state) == replayed_page(tmp_path)


def test_a_copy_under_another_name_keeps_nobody_alive(
    writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    follower = start()
    writer.close()
    (tmp_path / f"events-{OTHER}-0.jsonl").write_bytes(writer.path.read_bytes())
    with Writer(tmp_path, "c" * 12):  # the copy is none of a living process's either
        follower.drain()
        clock.now += 10.0
        follower.drain()
        assert (loads(follower), follower.fold.state.gone) == ((0, 1), 1)
        assert page_of(follower.fold.state) == replayed_page(tmp_path)


def test_a_segment_with_lines_of_several_processes_speaks_for_all_of_them(
    start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    path = tmp_path / f"events-{PROC}-0.jsonl"
    text = b""
    for proc in (PROC, OTHER):
        log = Lines(proc)
        text += log.header() + log("load_started", **LOAD)
    path.write_bytes(text)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        follower = start()
        clock.now += 10.0
        follower.drain()
        assert (loads(follower), follower.writers_alive) == ((2, 0), 2)
        assert page_of(follower.fold.state) == replayed_page(tmp_path)
    follower.drain()
    clock.now += 10.0
    follower.drain()
    assert loads(follower) == (0, 2)
    assert page_of(follower.fold.state) == replayed_page(tmp_path)


# --------------------------------------------------------------------------------------
# Beside compactions


def compact(follower: Follower) -> None:
    Compactor(1, 10**9, min_age=0.0).compact(follower)


def test_a_compaction_within_the_grace_settles_nothing(
    writer: Writer, start: Callable[[], Follower], tmp_path: Path
) -> None:
    follower = start()
    writer.close()
    follower.drain()
    compact(follower)
    assert not list(tmp_path.glob("events-*"))
    for each in (follower, start()):
        each.drain()
        assert loads(each) == (1, 0)
    writer.reopen()
    writer.log("load_finished", **END)
    for each in (follower, start()):
        each.drain()
        assert loads(each) == (0, 0)
        assert page_of(each.fold.state) == replayed_page(tmp_path)
    writer.close()


def test_what_was_compacted_within_the_grace_is_gone_after_it(
    writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    follower = start()
    writer.close()
    age(tmp_path, 11)
    follower.drain()
    compact(follower)
    clock.now += 10.0
    follower.drain()
    assert loads(follower) == (0, 1)
    assert replayed_page(tmp_path) == page_of(follower.fold.state)
    # The snapshot does not say that it is gone, but when it wrote last.
    assert loads(start()) == (0, 1)


def test_a_first_drain_that_waits_knows_after_it_when_who_was_compacted_wrote(
    writer: Writer,
    start: Callable[[], Follower],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for the second look at a copy."""
    monkeypatch.setattr(time, "time", lambda: TODAY)
    os.utime(writer.path, (TODAY - 5,) * 2)
    owner = start()
    writer.close()
    owner.drain()
    compact(owner)
    assert owner.covered == {PROC: 0}
    os.utime(Lines(OTHER).segment(tmp_path, 0, []), (TODAY,) * 2)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.now += seconds

    started = Follower(
        str(tmp_path),
        Fold(CATALOG),
        settle_seconds=SETTLE_SECONDS,
        grace_seconds=GRACE_SECONDS,
        clock=clock,
        wait=wait,
    )
    started.drain()
    assert (waited, loads(started)) == ([1.0], (1, 0))


def test_a_snapshot_says_who_is_gone_and_who_lives_again(
    writer: Writer, start: Callable[[], Follower], clock: Clock
) -> None:
    follower = start()
    writer.close()
    follower.drain()
    clock.now += 10.0
    follower.drain()
    compact(follower)
    assert (loads(start()), start().settles_in) == ((0, 1), NEVER)
    writer.reopen()
    for each in (follower, start()):
        each.drain()
        assert (loads(each), each.fold.state.gone) == ((1, 0), 0)
    writer.rotate()
    follower.drain()
    compact(follower)
    again = start()
    assert (loads(again), again.covered) == ((1, 0), {PROC: 1})
    writer.log("load_finished", **END)
    writer.close()
    for each in (follower, again, start()):
        each.drain()
        assert loads(each) == (0, 0)


def test_a_reader_that_starts_over_brings_nobody_back_to_life(
    writer: Writer, start: Callable[[], Follower], clock: Clock, tmp_path: Path
) -> None:
    owner = Follower(str(tmp_path), Fold(CATALOG), grace_seconds=1000.0, clock=clock)
    owner.drain()
    reader = start()
    writer.close()
    with Writer(tmp_path, OTHER) as rotated:
        rotated.rotate()
        for each in (owner, reader):
            each.drain()
        clock.now += 10.0
        reader.drain()
        assert loads(reader) == (0, 1)
        compact(owner)
        assert owner.covered == {PROC: 0, OTHER: 0}
        reader.drain()
        assert reader.covered == owner.covered
        assert (loads(reader), reader.fold.state.gone) == ((0, 1), 1)
        assert loads(owner) == (1, 0)
