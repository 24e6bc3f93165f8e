"""Compaction: bounds are kept, and a crash at any step changes no metric."""

from __future__ import annotations

import os
import stat
import time

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import reading, retention, snapshot
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_log.files import BAD_SNAPSHOT_NAME, SNAPSHOT_NAME
from tests.support import Lines, leave_out
from tests.support.folding import follow, pages
from tests.support.log_lines import segments_in, size_of
from tests.support.writers import Writer

EVENTS = [
    ("source_attempted", {"policy": "p", "result": "success"}),
    ("transfer_finished", {"policy": "p", "outcome": "success", "seconds": 0.1}),
    ("candidate_loads_seen", {"loads": [{"source_worker_id": "w", "load": 0.1}]}),
    ("of_the_future", {}),
    ("transfer_finished", {"policy": "p", "outcome": "success", "seconds": None}),
]


def fill(directory, processes=4, segments=5):
    """Finished segments of several processes; one leaves a load open."""
    for number in range(processes):
        log = Lines(f"{number:012x}", rank=number)
        for n in range(segments):
            log.segment(directory, n, EVENTS)
        log.segment(
            directory,
            segments,
            [
                (
                    "load_started",
                    {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"},
                )
            ],
        )


def compactor_of(retain=2000, maximum=10**9, **options) -> Compactor:
    return Compactor(retain, maximum, **{"min_age": 0.0, **options})


def test_compaction_changes_no_metric_and_keeps_the_bounds(tmp_path):
    fill(tmp_path)
    live = follow(tmp_path)
    before = pages(live.fold.state)
    compactor = compactor_of()
    for _ in segments_in(tmp_path):
        compactor.compact(live)
        live.drain()
        assert pages(live.fold.state) == before
        assert pages(follow(tmp_path).fold.state) == before
    assert size_of(tmp_path) <= 2000
    assert (tmp_path / SNAPSHOT_NAME).exists()
    assert not compactor.trouble


def test_what_was_compacted_and_what_comes_after_add_up(tmp_path):
    with Writer(tmp_path) as writer:
        live = follow(tmp_path)
        compactor = compactor_of(retain=3000)
        for count in range(1, 400):
            writer.log("transfer_finished", policy="p", outcome="success", seconds=0.1 * count)
            if count % 5 == 0:
                writer.rotate()
            live.drain()
            compactor.compact(live)
            if count % 50 == 0:
                again = follow(tmp_path).fold.state
                assert pages(again) == pages(live.fold.state)
                assert again.events["transfer_finished"] == count
                assert again.lost == 0
        assert compactor.compactions > 5
        assert size_of(tmp_path) < 3000 + 2 * os.path.getsize(writer.path)


def test_the_number_of_segments_is_bounded(tmp_path):
    fill(tmp_path, processes=10, segments=2)
    live = follow(tmp_path)
    compactor_of(retain=10**9, max_segments=12).compact(live)
    assert len(segments_in(tmp_path)) == 9


def test_oldest_first_and_each_processs_in_order(tmp_path):
    fill(tmp_path, processes=2, segments=3)
    now = time.time()
    # A clock that stepped back gave process 0's later segments the older times.
    for n in range(4):
        os.utime(tmp_path / f"events-{0:012x}-{n}.jsonl", (now, now - 1000 * n - 500))
        os.utime(tmp_path / f"events-{1:012x}-{n}.jsonl", (now, now - 900 + n))
    live = follow(tmp_path)
    compactor_of(retain=10**9, max_segments=5).compact(live)
    left = segments_in(tmp_path)
    assert left == [f"events-{0:012x}-{n}.jsonl" for n in range(1, 4)]


def test_a_segment_stays_a_minute_unless_the_writers_run_out_of_room(tmp_path):
    fill(tmp_path)
    total = size_of(tmp_path)
    live = follow(tmp_path)
    compactor = Compactor(1000, total * 10)
    compactor.compact(live)
    assert compactor.removed == 0
    crowded = Compactor(1000, int(total * 1.2))
    crowded.compact(live)
    assert crowded.removed > 0
    later = time.time() + 3600
    # However old the last write: what counts is when it was finished, as far as we saw.
    compactor = Compactor(1000, total * 10, clock=lambda: later)
    compactor.compact(live)
    assert compactor.removed == 0
    later += 59
    compactor.compact(live)
    assert compactor.removed == 0
    later += 2
    compactor.compact(live)
    assert size_of(tmp_path) <= 1000


def test_the_retained_bytes_are_at_most_half_of_the_limit(tmp_path):
    fill(tmp_path)
    live = follow(tmp_path)
    total = size_of(tmp_path)
    compactor_of(retain=10 * total, maximum=total * 3).compact(live)
    assert size_of(tmp_path) == total
    compactor_of(retain=10 * total, maximum=total).compact(live)
    assert size_of(tmp_path) <= total // 2


def test_the_defaults_are_the_documented_ones(tmp_path):
    (tmp_path / "many").mkdir()
    for n in range(257):
        Lines(f"{n:012x}").segment(tmp_path / "many", 0, [])
    live = follow(tmp_path / "many")
    now = 0.0
    compactor = Compactor(10**9, 10**10, clock=lambda: now)
    compactor.compact(live)
    now = 59.0
    compactor.compact(live)
    assert len(segments_in(tmp_path / "many")) == 257
    now = 61.0
    compactor.compact(live)
    assert len(segments_in(tmp_path / "many")) == 192
    few = follow(tmp_path / "many")
    compactor.compact(few)
    assert len(segments_in(tmp_path / "many")) == 192


def test_an_open_segment_is_never_removed(tmp_path):
    with Writer(tmp_path) as writer:
        for _ in range(100):
            writer.log()
        live = follow(tmp_path)
        compactor_of(retain=1, max_segments=0).compact(live)
        assert segments_in(tmp_path) == [writer.path.name]


def test_a_segment_with_something_left_to_read_holds_back_those_after_it(tmp_path, monkeypatch):
    """The writer went on after a segment was read, and had ended the next one when that was."""
    with Writer(tmp_path) as writer:
        live = Follower(str(tmp_path), Fold(CATALOG))
        Lines("0" * 12).segment(tmp_path, 0, [])
        looks = iter([0, 1])

        def probe_then_go_on(fd, real=reading.probe):
            gone = real(fd)
            if next(looks, None) == 1:
                writer.log()
                for _ in range(2):
                    writer.rotate()
                    writer.log()
            return gone

        # The ended process makes the drain list again, and find the next segments.
        os.rename(tmp_path / f"events-{'0' * 12}-0.jsonl", tmp_path / f"events-{'f' * 12}-0.jsonl")
        with monkeypatch.context() as patched:
            patched.setattr(reading, "probe", probe_then_go_on)
            live.drain()
        compactor_of(retain=1).compact(live)
        for follower in (live, follow(tmp_path)):
            follower.drain()
            assert follower.fold.state.events["source_attempted"] == 3
            assert follower.fold.state.lost == 0


def test_a_segment_that_a_listing_missed_holds_back_those_after_it(tmp_path, monkeypatch):
    """A listing may miss a name that is made while it runs, and show one that is made later."""
    fill(tmp_path, processes=1)
    missed = f"events-{0:012x}-2.jsonl"

    class Listing:
        def __init__(self, where, real=os.scandir):
            self._entries = real(where)

        def __enter__(self):
            return (entry for entry in self._entries if entry.name != missed)

        def __exit__(self, *_):
            self._entries.close()

    live = Follower(str(tmp_path), Fold(CATALOG))
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", Listing)
        live.drain()
    compactor = compactor_of(retain=1)
    compactor.compact(live)
    assert [int(name[-7]) for name in segments_in(tmp_path)] == [2, 3, 4, 5]
    live.drain()
    compactor.compact(live)
    for follower in (live, follow(tmp_path)):
        assert follower.fold.state.lost == 0
        assert follower.fold.state.logged == 5 * 6 + 2
    assert segments_in(tmp_path) == []


def test_a_segment_that_was_not_released_holds_back_those_after_it(tmp_path):
    fill(tmp_path, processes=1, segments=4)
    live = follow(tmp_path)
    compactor_of(retain=1).compact(live, released=lambda segment: segment.name.n != 2)
    assert [int(name[-7]) for name in segments_in(tmp_path)] == [2, 3, 4]


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("k", range(14))
def test_a_crash_at_any_step_changes_no_metric(tmp_path, monkeypatch, k):
    """Each call that changes the directory is one step; the crash comes just before it."""
    fill(tmp_path, processes=2, segments=3)
    live = follow(tmp_path)
    before = pages(live.fold.state)
    calls = []

    def stepping(name, real):
        def step(*arguments, **options):
            calls.append(name)
            if len(calls) == k + 1:
                raise Crash
            return real(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        for name in ("fsync", "rename", "unlink", "fchmod"):
            patched.setattr(os, name, stepping(name, getattr(os, name)))
        try:
            compactor_of(retain=1).compact(live)
            crashed = False
        except Crash:
            crashed = True
    assert crashed == (k < 12)
    assert calls[:5] == ["fchmod", "fsync", "rename", "fsync", "unlink"][: len(calls[:5])]
    again = follow(tmp_path)
    assert pages(again.fold.state) == before
    # The next owner tidies up and goes on.
    compactor = compactor_of(retain=1)
    for _ in range(5):
        compactor.compact(again)
        again.drain()
    assert pages(again.fold.state) == before
    assert segments_in(tmp_path) == []
    assert pages(follow(tmp_path).fold.state) == before


def test_a_reader_that_is_overtaken_starts_over(tmp_path, monkeypatch):
    """Between its listing and its reading another exporter compacts what it listed."""
    fill(tmp_path)
    owner = follow(tmp_path)
    before = pages(owner.fold.state)
    reader = Follower(str(tmp_path), Fold(CATALOG))
    real = reader._read
    state = {"compacted": 0}

    def compact_then_read(segment, dir_fd):
        if state["compacted"] < 3:
            state["compacted"] += 1
            compactor_of(retain=1, max_segments=10**9).compact(owner)
        return real(segment, dir_fd)

    monkeypatch.setattr(retention, "STEP_BYTES", 2000)
    monkeypatch.setattr(reader, "_read", compact_then_read)
    reader.drain()
    assert state["compacted"] == 3
    assert pages(reader.fold.state) == before


def test_a_reader_that_is_overtaken_before_it_lists(tmp_path, monkeypatch):
    """The segments went between its look at the snapshot and its listing: it sees neither."""
    fill(tmp_path)
    owner, reader = follow(tmp_path), Follower(str(tmp_path), Fold(CATALOG))
    before = pages(owner.fold.state)
    real = reader._list

    def compact_then_list(dir_fd):
        compactor_of(retain=1).compact(owner)
        return real(dir_fd)

    monkeypatch.setattr(reader, "_list", compact_then_list)
    reader.drain()
    assert owner.segments == []
    assert pages(reader.fold.state) == before


def test_processes_are_gone_with_their_last_segment(tmp_path):
    """The snapshot says so of those that it holds whole; of others, once nothing is left of them,
    whoever removed it."""
    fill(tmp_path, processes=2)
    with Writer(tmp_path, "f" * 12) as writer:
        writer.log("load_started", engine="vllm", model="m", model_role="main", load_id="l")
        writer.rotate()
        live = follow(tmp_path)
        compactor_of(retain=1).compact(live)
        path = writer.path
    dir_fd = os.open(tmp_path, os.O_RDONLY)
    try:
        state = snapshot.read(CATALOG, dir_fd)[0].state
    finally:
        os.close(dir_fd)
    assert [proc for proc, book in state.books.items() if not book.gone] == ["f" * 12]
    assert sum(state.loads.abandoned.values()) == state.gone == 2
    path.unlink()
    again = follow(tmp_path)
    assert sum(again.fold.state.loads.abandoned.values()) == again.fold.state.gone == 3


def test_a_reader_that_slept_through_a_compaction_counts_the_same(tmp_path):
    with Writer(tmp_path) as writer:
        for _ in range(20):
            writer.log()
            writer.rotate()
        reader, owner = follow(tmp_path), follow(tmp_path)
        for _ in range(20):
            writer.log()
            writer.rotate()
        owner.drain()
        compactor_of(retain=1).compact(owner)
        assert len(segments_in(tmp_path)) == 1
        reader.drain()
        assert pages(reader.fold.state) == pages(owner.fold.state)
        assert reader.fold.state.events["source_attempted"] == 40


def test_a_reader_that_starts_over_has_no_deadline(tmp_path):
    """Short of what it showed before, its counters would fall."""
    fill(tmp_path, processes=2)
    reader, owner = follow(tmp_path), follow(tmp_path)
    before = pages(reader.fold.state)
    compactor_of().compact(owner)
    reader.drain(deadline=0.0)
    assert pages(reader.fold.state) == before
    Lines("f" * 12).segment(tmp_path, 0, EVENTS)
    reader.drain(deadline=0.0)
    assert reader.bytes_unread > 0
    assert pages(reader.fold.state) == before


def test_a_finished_segment_that_was_truncated_holds_nothing_up(tmp_path):
    fill(tmp_path, processes=1)
    live = follow(tmp_path)
    before = pages(live.fold.state)
    os.truncate(tmp_path / f"events-{0:012x}-1.jsonl", 700)
    compactor = compactor_of(retain=1)
    compactor.compact(live)
    assert (compactor.trouble, segments_in(tmp_path)) == ("", [])
    assert live.rewritten == 1
    assert pages(live.fold.state) == before
    assert 0 < follow(tmp_path).fold.state.lost <= len(EVENTS) + 1


def test_a_snapshot_that_was_removed_stands_for_nothing(tmp_path):
    """The segments that were in it are put back, from an archive: they are read, and kept."""
    fill(tmp_path, processes=1)
    copies = {path: path.read_bytes() for path in tmp_path.iterdir()}
    live = follow(tmp_path)
    compactor_of(retain=1).compact(live)
    live.drain()
    (tmp_path / SNAPSHOT_NAME).unlink()
    for path, copy in copies.items():
        path.write_bytes(copy)
    live.drain()
    compactor_of(retain=10**9).compact(live)
    assert len(segments_in(tmp_path)) == len(copies)
    assert live.fold.state.duplicates == live.fold.state.logged
    compactor_of(retain=1).compact(live)
    assert follow(tmp_path).fold.state.logged == live.fold.state.logged


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "device"])
def test_a_snapshot_that_is_no_file_is_moved_aside(tmp_path, kind):
    if kind == "device" and os.geteuid() != 0:
        leave_out("needs root to make a device")
    fill(tmp_path, processes=1)
    path = tmp_path / SNAPSHOT_NAME
    {
        "directory": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("/dev/zero"),
        "device": lambda: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    }[kind]()
    live = follow(tmp_path)
    before = pages(live.fold.state)
    assert live.snapshot_trouble
    compactor = compactor_of(retain=1)
    compactor.compact(live)
    assert not compactor.trouble
    assert pages(follow(tmp_path).fold.state) == before
    assert os.path.lexists(tmp_path / BAD_SNAPSHOT_NAME)


def test_a_bad_snapshot_is_moved_aside_and_kept(tmp_path):
    fill(tmp_path)
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"junk")
    live = follow(tmp_path)
    before = pages(live.fold.state)
    compactor_of(retain=1).compact(live)
    assert (tmp_path / BAD_SNAPSHOT_NAME).read_bytes() == b"junk"
    again = follow(tmp_path)
    assert again.snapshot_trouble == ""
    assert pages(again.fold.state) == before


def test_what_a_dead_writer_left_in_the_making_is_removed_after_a_minute(tmp_path):
    stale = tmp_path / ".events-aaaaaaaaaaaa-0.jsonl"
    young = tmp_path / ".events-bbbbbbbbbbbb-0.jsonl"
    foreign = tmp_path / ".notes"
    for path in (stale, young, foreign):
        path.write_bytes(b"")
    os.utime(stale, (0, 0))
    os.utime(foreign, (0, 0))
    live = follow(tmp_path)
    compactor_of().compact(live)
    assert not stale.exists()
    assert young.exists()
    assert foreign.exists()


def test_a_failed_compaction_is_logged_once_and_tried_again(tmp_path, monkeypatch, caplog):
    fill(tmp_path)
    live = follow(tmp_path)
    now = [time.time()]
    compactor = compactor_of(clock=lambda: now[0])

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        for _ in range(3):
            compactor.compact(live)
            now[0] += 10
    assert "No space left" in compactor.trouble
    assert len(caplog.records) == 1
    compactor.compact(live)
    assert compactor.trouble == ""
    assert compactor.removed > 0
