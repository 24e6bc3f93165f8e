"""Following a directory: what a drain reads, and what it leaves alone."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import sys

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import follower as follower_module
from mx_exporter.directory import reading, segments, snapshot
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_log.files import SNAPSHOT_NAME
from mx_log.schema import MAX_LINE_BYTES
from tests.support import Lines
from tests.support.folding import page_of
from tests.support.writers import Writer


@pytest.fixture
def follower(tmp_path) -> Follower:
    return Follower(str(tmp_path), Fold(CATALOG))


def attempts(follower: Follower) -> int:
    table = follower.fold.state.series["mx_p2p_source_attempts_total"]
    return sum(series.value for series in table.values())


def test_each_drain_reads_what_was_written_before_it(follower, tmp_path):
    with Writer(tmp_path) as writer:
        for count in range(1, 200):
            writer.log()
            if count % 7 == 0:
                writer.rotate()
            follower.drain()
            assert attempts(follower) == count
    assert follower.fold.state.lost == 0
    assert follower.bytes_read == sum(p.stat().st_size for p in tmp_path.iterdir())


def test_half_a_line_waits_for_its_other_half(follower, tmp_path):
    with Writer(tmp_path) as writer:
        line = writer.lines("source_attempted", policy="random", result="success")
        for at, byte in enumerate(line[:-1]):
            writer.write(bytes([byte]))
            if at % 10 == 0:
                follower.drain()
        follower.drain()
        assert attempts(follower) == 0
        assert not follower.fold.state.rejected
        writer.write(b"\n")
        follower.drain()
        assert attempts(follower) == 1


@pytest.mark.parametrize(("kept", "folded", "torn"), [(-1, 1, 0), (-2, 0, 1), (40, 0, 1)])
def test_a_last_line_without_end_is_judged_once_its_writer_is_gone(
    follower, tmp_path, kept, folded, torn
):
    with Writer(tmp_path) as writer:
        writer.write(writer.lines("source_attempted", policy="p", result="success")[:kept])
        follower.drain()
        assert (attempts(follower), follower.fold.state.rejected["torn"]) == (0, 0)
    follower.drain()
    assert (attempts(follower), follower.fold.state.rejected["torn"]) == (folded, torn)
    follower.drain()
    assert (attempts(follower), follower.fold.state.rejected["torn"]) == (folded, torn)


def test_a_line_over_the_limit_is_skipped_and_its_tail_is_no_event(follower, tmp_path):
    with Writer(tmp_path) as writer:
        hidden = writer.lines("source_attempted", policy="p", result="success")
        writer.write(b"x" * (MAX_LINE_BYTES + 1))
        follower.drain()
        writer.write(hidden)
        follower.drain()
        writer.log()
        follower.drain()
    assert attempts(follower) == 1
    assert follower.fold.state.rejected == {"too_long": 1}


def test_a_writer_lives_while_it_holds_its_newest_segment(follower, tmp_path):
    with Writer(tmp_path) as writer:
        writer.log("load_started", engine="vllm", model="m", model_role="main", load_id="l")
        follower.drain()
        writer.rotate()
        follower.drain()
        follower.drain()
        assert follower.writers_alive == 1
        assert [segment.done for segment in follower.segments] == [True, False]
        assert not follower.fold.state.loads.abandoned
    follower.drain()
    assert follower.writers_alive == 0
    assert follower.fold.state.gone == 1
    assert sum(follower.fold.state.loads.abandoned.values()) == 1


def test_a_segment_opened_while_the_last_one_is_being_read_belongs_to_a_living_writer(
    tmp_path, monkeypatch
):
    """The lock of the old segment is found free, yet the process lives on in the next one."""
    with Writer(tmp_path) as writer:
        writer.log("load_started", engine="vllm", model="m", model_role="main", load_id="l")
        follower = Follower(str(tmp_path), Fold(CATALOG))

        def rotate_then_probe(fd, probe=reading.probe):
            if writer.n == 0:
                writer.rotate()
                writer.log()
            return probe(fd)

        monkeypatch.setattr(reading, "probe", rotate_then_probe)
        follower.drain()
        assert attempts(follower) == 1
        assert follower.fold.state.gone == 0
        assert not follower.fold.state.loads.abandoned
        assert follower.writers_alive == 1


def test_a_segment_that_grew_is_read_before_one_that_came_after_it(tmp_path, monkeypatch):
    """A process ends, so the directory is listed again; another one has gone on meanwhile."""
    ended = Writer(tmp_path, "bbbbbbbbbbbb")
    ended.close()
    with Writer(tmp_path) as writer:
        follower = Follower(str(tmp_path), Fold(CATALOG))

        def rotate_then_probe(fd, probe=reading.probe):
            # The writer's own segment was read by now.
            if writer.n == 0 and os.fstat(fd).st_ino == ended.path.stat().st_ino:
                writer.log()
                writer.rotate()
                writer.log()
            return probe(fd)

        monkeypatch.setattr(reading, "probe", rotate_then_probe)
        follower.drain()
        assert attempts(follower) == 2
        assert follower.fold.state.lost == 0
        assert follower.fold.state.gone == 1


def test_without_locks_only_a_newer_segment_finishes_one(follower, tmp_path):
    log = Lines()
    log.segment(tmp_path, 0, [], locked=False)
    follower.drain()
    follower.drain()
    assert [segment.done for segment in follower.segments] == [False]
    log.segment(tmp_path, 1, [], locked=False)
    follower.drain()
    assert [segment.done for segment in follower.segments] == [True, False]
    assert follower.fold.state.gone == 0


def test_finished_segments_are_not_opened_again(follower, tmp_path, monkeypatch):
    with Writer(tmp_path) as writer:
        for _ in range(5):
            writer.rotate()
        follower.drain()
        opened = []

        def open_and_note(path, dir_fd=None, real=reading.open_regular):
            opened.append(path)
            return real(path, dir_fd)

        monkeypatch.setattr(reading, "open_regular", open_and_note)
        follower.drain()
        assert opened == [writer.path.name]


def test_a_drain_that_finds_nothing_new_changes_nothing(follower, tmp_path):
    """What was rendered is shown again as long as nothing changes."""
    with Writer(tmp_path) as ended, Writer(tmp_path, "bbbbbbbbbbbb") as writer:
        ended.log()
        writer.log()
        follower.drain()
        ended.close()
        follower.drain()
        before = follower.changes
        follower.drain()
        assert follower.changes == before
        writer.log()
        follower.drain()
        assert follower.changes > before


def test_no_descriptor_is_held_between_drains(follower, tmp_path):
    with Writer(tmp_path) as writer:
        writer.log()
        before = os.listdir("/proc/self/fd")
        follower.drain()
        assert os.listdir("/proc/self/fd") == before


def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path):
    follower = Follower(str(tmp_path / "later"), Fold(CATALOG))
    follower.drain()
    assert follower.trouble == "No such file or directory"
    assert follower.identity is None
    (tmp_path / "later").mkdir()
    with Writer(tmp_path / "later") as writer:
        writer.log()
        follower.drain()
    assert (follower.trouble, attempts(follower)) == ("", 1)


def test_a_directory_that_vanishes_and_comes_back(tmp_path):
    where = tmp_path / "d"
    follower = Follower(str(where), Fold(CATALOG))
    for count, proc in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb"), 1):
        where.mkdir()
        with Writer(where, proc) as writer:
            writer.log()
            follower.drain()
            assert attempts(follower) == count
        shutil.rmtree(where)
        follower.drain()
        assert attempts(follower) == count
        assert (follower.identity, follower.directory_bytes) == (None, 0)


def test_a_directory_that_is_moved_away_and_back(tmp_path):
    where, elsewhere = tmp_path / "d", tmp_path / "e"
    where.mkdir()
    follower = Follower(str(where), Fold(CATALOG))
    with Writer(where) as writer:
        writer.log()
        follower.drain()
        where.rename(elsewhere)
        follower.drain()
        elsewhere.rename(where)
        writer.log()
        follower.drain()
        assert attempts(follower) == 2


def test_a_file_takes_the_directorys_place(tmp_path):
    where = tmp_path / "d"
    where.mkdir()
    follower = Follower(str(where), Fold(CATALOG))
    Lines().segment(where, 0, [])
    follower.drain()
    shutil.rmtree(where)
    where.write_text("")
    follower.drain()
    assert follower.trouble == "Not a directory"
    assert (follower.segments, follower.directory_bytes) == ([], 0)


def test_the_directory_is_a_file(tmp_path):
    (tmp_path / "d").write_text("")
    follower = Follower(str(tmp_path / "d"), Fold(CATALOG))
    follower.drain()
    assert follower.trouble == "Not a directory"


def segment_name(n: int) -> str:
    return f"events-{n:012x}-0.jsonl"


def test_what_is_no_regular_file_is_counted_and_left_alone(follower, tmp_path):
    os.mkfifo(tmp_path / segment_name(1))
    (tmp_path / segment_name(2)).mkdir()
    Lines().segment(tmp_path, 0, [])
    (tmp_path / segment_name(3)).symlink_to(tmp_path / "events-aaaaaaaaaaaa-0.jsonl")
    (tmp_path / segment_name(4)).symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / segment_name(5)))
        follower.drain()
        follower.drain()
    assert follower.ignored == {"not_regular": 5}
    assert follower.fold.state.logged == 1
    assert len(list(tmp_path.iterdir())) == 6


def test_a_name_that_became_a_fifo_after_it_was_listed_never_blocks(
    follower, tmp_path, monkeypatch
):
    Lines().segment(tmp_path, 0, [])
    path = tmp_path / "events-aaaaaaaaaaaa-0.jsonl"

    def swap_then_open(name, dir_fd=None, real=reading.open_regular):
        path.unlink()
        os.mkfifo(path)
        return real(name, dir_fd)

    monkeypatch.setattr(reading, "open_regular", swap_then_open)
    follower.drain()
    assert follower.ignored == {"not_regular": 1}


def test_foreign_files_are_not_read(follower, tmp_path):
    for name in ("counter_1.db", "events-aaaaaaaaaaaa-0.jsonl.gz", "events-xyz-0.jsonl", "notes"):
        (tmp_path / name).write_bytes(b"{}\n")
    (tmp_path / ".events-aaaaaaaaaaaa-0.jsonl").write_bytes(b"{}\n")
    follower.drain()
    assert follower.segments == []
    assert follower.foreign_db_files == 1
    assert follower.directory_bytes == 3
    assert not follower.fold.state.rejected


UNREADABLE = """
import os, sys
from mx_exporter.directory.follower import Follower
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)
f = Follower(".", Fold(CATALOG)); f.drain()
print(dict(f.ignored), f.fold.state.logged)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_unreadable_segment_is_counted_and_the_others_are_read(tmp_path):
    tmp_path.chmod(0o755)
    Lines("aaaaaaaaaaaa").segment(tmp_path, 0, []).chmod(0)
    Lines("bbbbbbbbbbbb").segment(tmp_path, 0, [])
    done = subprocess.run(
        [sys.executable, "-c", UNREADABLE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "{'unreadable': 1} 1"
    assert "Permission denied" in done.stderr


def test_a_deadline_leaves_the_rest_for_the_next_drain(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BLOCK_BYTES", 1000)
    ticks = iter(range(1000))
    follower = Follower(str(tmp_path), Fold(CATALOG), clock=lambda: next(ticks))
    for proc in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        Lines(proc).segment(
            tmp_path, 0, [("source_attempted", {"policy": "p", "result": "success"})] * 50
        )
    follower.drain(deadline=5)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert follower.bytes_read == 3000
    assert follower.bytes_unread == total - 3000
    follower.drain()
    assert (follower.bytes_unread, attempts(follower)) == (0, 100)
    assert follower.fold.state.gone == 2


def test_a_running_drain_can_be_shortened(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BLOCK_BYTES", 1000)
    now = 0

    def clock():
        nonlocal now
        now += 1
        if now == 2:
            follower.hurry(7)
            follower.hurry(50)
        return now

    follower = Follower(str(tmp_path), Fold(CATALOG), clock=clock)
    Lines().segment(tmp_path, 0, [("source_attempted", {"policy": "p", "result": "success"})] * 90)
    follower.drain(deadline=100)
    assert follower.bytes_read == 4000
    assert follower.bytes_unread > 0
    # The next one is not bound by what hurried the last.
    follower.drain(deadline=100)
    assert follower.bytes_unread == 0


def test_a_truncated_segment_is_read_again_and_doubles_count_once(follower, tmp_path):
    with Writer(tmp_path) as writer:
        for _ in range(3):
            writer.log()
        follower.drain()
        text = writer.path.read_bytes()
        writer.path.write_bytes(text[: text.rindex(b"\n", 0, -1) + 1])
        follower.drain()
        writer.write(text.splitlines(keepends=True)[-1])
        writer.log()
        follower.drain()
    assert attempts(follower) == 4
    assert follower.rewritten == 1


def test_a_segment_with_other_and_fewer_bytes_is_read_from_its_beginning(follower, tmp_path):
    """Each time: half a line that was held belongs to the bytes that are no more."""
    path = Lines().segment(tmp_path, 0, [("nixl_received", {"result": "complete"})] * 5)
    with open(path, "ab") as file:
        file.write(b'{"half":')
        fcntl.flock(file, fcntl.LOCK_EX)
        follower.drain()
        for count, proc in enumerate(("bbbbbbbbbbbb", "cccccccccccc"), 1):
            file.truncate(0)
            file.write(Lines(proc)("nixl_received", result="complete"))
            file.flush()
            follower.drain()
            assert follower.rewritten == count
            assert follower.fold.state.events["nixl_received"] == 5 + count
    assert not follower.fold.state.rejected


def test_whatever_changes_the_fold_or_the_segments_shows(follower, tmp_path):
    """Pages are made again when the count of changes grew, and only then."""
    seen = [follower.changes]

    def drain_and_see(*, grows: bool) -> None:
        follower.drain()
        assert (follower.changes > seen[-1]) == grows
        seen.append(follower.changes)

    with Writer(tmp_path) as writer:
        drain_and_see(grows=True)
        drain_and_see(grows=False)
        for _ in range(3):
            writer.log()
            drain_and_see(grows=True)
            drain_and_see(grows=False)
        writer.path.write_bytes(b"")
        drain_and_see(grows=True)
        writer.rotate()
        drain_and_see(grows=True)
        drain_and_see(grows=False)
    drain_and_see(grows=True)
    drain_and_see(grows=False)
    writer.path.unlink()
    drain_and_see(grows=True)
    drain_and_see(grows=False)


def test_the_size_of_a_directory_is_that_of_its_files_finished_or_not(follower, tmp_path):
    with Writer(tmp_path) as writer:
        for _ in range(3):
            writer.log()
            follower.drain()
            sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
            assert follower.directory_bytes == sum(sizes.values())
            assert follower.finished_bytes == sum(sizes.values()) - sizes[writer.path.name]
            writer.rotate()


@pytest.mark.parametrize("call", ["open_regular", "probe"])
def test_a_segment_that_cannot_be_read_is_said_once_and_read_later(
    follower, tmp_path, monkeypatch, caplog, call
):
    for proc in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        Lines(proc).segment(tmp_path, 0, [])
    real = getattr(reading, call)
    calls = iter([OSError(errno.EIO, "Input/output error"), None] * 3)

    def failing(*arguments):
        error = next(calls, None)
        if error is not None:
            raise error
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(reading, call, failing)
        follower.drain()
        assert follower.ignored == {"unreadable": 1}
        assert (follower.finished, follower.fold.state.logged) == (1, 1)
        follower.drain()
        assert follower.ignored == {"unreadable": 1}
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("events-aaaaaaaaaaaa-0.jsonl: Input/output error")
    follower.drain()
    assert follower.ignored == {}
    assert (follower.finished, follower.fold.state.logged) == (2, 2)


def test_what_was_left_alone_and_unread_is_forgotten_with_the_directory(tmp_path):
    where = tmp_path / "d"
    where.mkdir()
    (where / segment_name(1)).mkdir()
    Lines().segment(where, 0, [])
    follower = Follower(str(where), Fold(CATALOG))
    follower.drain(deadline=0.0)
    assert follower.identity is not None
    assert (follower.ignored, follower.bytes_unread > 0) == ({"not_regular": 1}, True)
    shutil.rmtree(where)
    follower.drain()
    assert follower.identity is None
    assert (follower.ignored, follower.bytes_unread, follower.segments) == ({}, 0, [])


def test_a_last_line_of_a_wrong_type_is_not_torn(follower, tmp_path):
    path = Lines().segment(tmp_path, 0, [])
    with open(path, "ab") as file:
        file.write(b"{}")
    follower.drain()
    assert follower.fold.state.rejected == {"wrong_type": 1}


def test_a_process_whose_files_were_removed_is_gone(follower, tmp_path):
    with Writer(tmp_path) as writer:
        writer.log("load_started", engine="vllm", model="m", model_role="main", load_id="l")
        follower.drain()
        writer.path.unlink()
    follower.drain()
    assert follower.fold.state.gone == 1
    assert sum(follower.fold.state.loads.abandoned.values()) == 1


def test_a_process_whose_only_segment_was_not_read_yet_is_not_gone(follower, tmp_path):
    """Whose it is, its name says as long as none of its lines does."""
    with Writer(tmp_path) as writer:
        follower.drain()
        first = writer.path
        writer.rotate()
        first.unlink()
        follower.drain(deadline=0.0)
        assert follower.bytes_unread == writer.path.stat().st_size
        assert (follower.fold.state.gone, follower.writers_alive) == (0, 1)


def test_a_process_that_only_a_last_line_without_end_tells_of_is_gone(follower, tmp_path):
    (tmp_path / "events-aaaaaaaaaaaa-0.jsonl").write_bytes(Lines().header()[:-1])
    follower.drain()
    assert (follower.fold.state.logged, follower.fold.state.gone) == (1, 1)


def test_a_segment_that_went_after_it_was_listed_keeps_no_other_from_being_read(
    follower, tmp_path, monkeypatch
):
    for proc in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        Lines(proc).segment(tmp_path, 0, [])
    gone = "events-aaaaaaaaaaaa-0.jsonl"

    def open_others(name, dir_fd=None, real=reading.open_regular):
        if name == gone:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return real(name, dir_fd)

    monkeypatch.setattr(reading, "open_regular", open_others)
    follower.drain()
    assert follower.fold.state.logged == 1
    assert [(str(s.name), s.done) for s in follower.segments] == [
        (gone, False),
        ("events-bbbbbbbbbbbb-0.jsonl", True),
    ]


def test_what_cannot_be_opened_for_lack_of_descriptors_is_read_once_later(follower, tmp_path):
    """Out of descriptors: the directory cannot be opened, then not listed."""
    path = Lines().segment(tmp_path, 0, [("nixl_received", {"result": "complete"})])
    with path.open("ab") as out:
        out.write(b"junk\n")
    follower.drain()
    with Writer(tmp_path, "bbbbbbbbbbbb") as writer:
        writer.write(b"junk\n")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for more in range(3):
            with open(os.devnull) as probe:
                first = probe.fileno()
            resource.setrlimit(resource.RLIMIT_NOFILE, (first + more, hard))
            try:
                follower.drain()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert follower.trouble == ("Too many open files" if more < 2 else "")
        assert follower.fold.state.rejected == {"not_json": 2}
        assert follower.fold.state.duplicates == 0
        assert follower.fold.state.logged == 3


def test_a_segment_replaced_under_its_name_is_read(follower, tmp_path):
    path = Lines().segment(tmp_path, 0, [])
    follower.drain()
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes() + Lines(seq=1)("nixl_received", result="complete"))
    other.rename(path)
    follower.drain()
    assert follower.fold.state.events["nixl_received"] == 1
    assert follower.rewritten == 1
    assert follower.fold.state.duplicates == 1


def test_files_that_go_are_forgotten_and_what_was_read_stays(follower, tmp_path):
    path = Lines().segment(tmp_path, 0, [("nixl_received", {"result": "complete"})])
    follower.drain()
    assert follower.finished_bytes == path.stat().st_size
    path.unlink()
    follower.drain()
    assert (follower.segments, follower.finished_bytes) == ([], 0)
    assert follower.fold.state.events["nixl_received"] == 1


MANY = """
import sys
from mx_exporter.directory.follower import Follower
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
f = Follower(sys.argv[1], Fold(CATALOG)); f.drain()
print(f.fold.state.logged, f.fold.state.gone, dict(f.ignored))
"""


def test_far_more_segments_than_descriptors(tmp_path):
    line = Lines().header()
    for n in range(2000):
        proc = f"{n:012x}"
        (tmp_path / segment_name(n)).write_bytes(line.replace(b"aaaaaaaaaaaa", proc.encode()))
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.stdout.strip() == "2000 2000 {}"


def test_live_equals_a_fresh_read_of_the_same_files(tmp_path):
    live = Follower(str(tmp_path), Fold(CATALOG))
    with Writer(tmp_path) as one, Writer(tmp_path, "bbbbbbbbbbbb") as other:
        for count in range(60):
            (one, other)[count % 3 == 0].log(result=f"r{count % 5}")
            if count % 11 == 0:
                one.rotate()
            if count % 4 == 0:
                live.drain()
        live.drain()
        fresh = Follower(str(tmp_path), Fold(CATALOG))
        fresh.drain()
        pages = [page_of(f.fold.state) for f in (live, fresh)]
    assert pages[0] == pages[1]


# --------------------------------------------------------------------------------------
# Beside an owner who compacts


def test_a_compaction_before_the_listing_is_noticed(tmp_path, monkeypatch):
    """The segment that it removed is not in the listing, and the snapshot was looked at before."""
    log = Lines()
    attempt = ("source_attempted", {"policy": "random", "result": "success"})
    for n in range(3):
        log.segment(tmp_path, n, [attempt])
    owner = Follower(str(tmp_path), Fold(CATALOG))
    owner.drain()
    reader = Follower(str(tmp_path), Fold(CATALOG))
    scan = reader._scan.refresh
    compactions = iter([lambda: Compactor(1, 10**9, min_age=0.0).compact(owner)])

    def compact_then_list(dir_fd: int) -> bool:
        next(compactions, lambda: None)()
        return scan(dir_fd)

    monkeypatch.setattr(reader._scan, "refresh", compact_then_list)
    reader.drain()
    assert owner.covered, "nothing was compacted"
    assert (attempts(reader), reader.fold.state.lost) == (3, 0)


@pytest.mark.parametrize("when", ["between", "within"])
def test_a_segment_that_a_snapshot_stands_for_is_not_read_though_it_remains(
    tmp_path, monkeypatch, when
):
    """The owner ended before it removed them: between two drains, or within one."""
    log = Lines()
    for n in range(3):
        log.segment(tmp_path, n, [("source_attempted", {"policy": "random", "result": "success"})])
    owner, reader = Follower(str(tmp_path), Fold(CATALOG)), Follower(str(tmp_path), Fold(CATALOG))
    owner.drain()
    scan = reader._scan.refresh

    def compact_and_end() -> None:
        if not owner.covered:
            with monkeypatch.context() as patched:
                patched.setattr(os, "unlink", lambda *_, **__: None)
                Compactor(1, 10**9, min_age=0.0).compact(owner)

    def compact_then_list(dir_fd: int) -> bool:
        compact_and_end()
        return scan(dir_fd)

    if when == "within":
        monkeypatch.setattr(reader._scan, "refresh", compact_then_list)
    else:
        reader.drain()
        compact_and_end()
    reader.drain()
    assert reader.covered
    assert (reader.segments, len(reader.leftover)) == ([], 3)
    assert (attempts(reader), reader.fold.state.duplicates) == (3, 0)
    assert reader.snapshot_events == owner.fold.state.logged
    # Each listing finds them once.
    Lines("bbbbbbbbbbbb").segment(tmp_path, 0, [])
    reader.drain()
    assert (len(reader.segments), len(reader.leftover)) == (1, 3)


def test_before_the_first_drain_there_is_nothing(follower) -> None:
    assert (follower.trouble, follower.directory_bytes, follower.finished_bytes) == ("", 0, 0)
    assert follower.snapshot_events == 0


def test_trouble_without_an_error_of_the_system_is_told_in_its_own_words(
    follower, monkeypatch
) -> None:
    def fail(_: str) -> int:
        raise OSError("the folder is away")

    monkeypatch.setattr(follower_module, "open_directory", fail)
    follower.drain()
    assert follower.trouble == "the folder is away"


def test_a_fold_is_not_based_on_a_snapshot_that_cannot_be_used(follower, tmp_path) -> None:
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"junk")
    follower.drain()
    fd = os.open(tmp_path, os.O_RDONLY)
    found = snapshot.identity(fd)
    os.close(fd)
    assert follower.knows(found)
    assert not follower.is_based_on(found)
    follower.mark_snapshot_moved()
    assert (follower.snapshot_trouble, follower.snapshot_is_bad) == ("", False)
    follower.mark_snapshot_bad(snapshot.BadSnapshot("junk"))
    assert follower.snapshot_is_bad


def test_what_was_shipped_and_swept_is_noted(follower) -> None:
    follower.mark_shipped({"events-aaaaaaaaaaaa-0.jsonl": 5})
    assert follower.shipped == {"events-aaaaaaaaaaaa-0.jsonl": 5}
    follower.leftover, follower.temporary = ["events-aaaaaaaaaaaa-0.jsonl"], [".x.tmp"]
    follower.mark_swept()
    assert (follower.leftover, follower.temporary) == ([], [])


def test_what_we_compacted_and_could_not_remove_is_left_over(
    follower, tmp_path, monkeypatch
) -> None:
    """The directory looks as it did: its time need not change with what is in it."""
    Lines("aaaaaaaaaaaa").segment(tmp_path, 0, [])
    follower.drain()
    name = "events-aaaaaaaaaaaa-0.jsonl"
    monkeypatch.setattr(follower._snapshot, "refresh", lambda *_: None)
    monkeypatch.setattr(follower._snapshot, "is_overtaken", lambda _: False)
    follower.mark_compacted({name}, {"aaaaaaaaaaaa": 0}, (1, 2, 3))
    follower.drain()
    assert (follower.leftover, follower.segments) == ([name], [])
