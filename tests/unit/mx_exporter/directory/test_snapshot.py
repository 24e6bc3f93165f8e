"""A snapshot in the directory: a bad one stops nobody, and its segments are not read again."""

from __future__ import annotations

import errno
import itertools
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_exporter.core import snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import snapshot
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_exporter.errors import MxError
from mx_log.files import BAD_SNAPSHOT_NAME, SNAPSHOT_NAME, is_ours, numbered
from tests.support import Lines, load_logs
from tests.support.commands import Checked, Run
from tests.support.compacting import NOBODY
from tests.support.folding import classic_page, fold, follow, some_state, whole_page


def test_a_bad_snapshot_stops_nobody(tmp_path, caplog):
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"{")
    Lines().segment(tmp_path, 0, [])
    follower = Follower(str(tmp_path), Fold(CATALOG))
    follower.drain()
    follower.drain()
    assert follower.fold.state.logged == 1
    assert "is damaged" in follower.snapshot_trouble
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1


def put(directory, state, segments) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        snapshot.write(fd, snapshot_codec.dump(CATALOG, state, segments))
    finally:
        os.close(fd)


def test_segments_that_a_snapshot_stands_for_are_not_read(tmp_path):
    log = Lines()
    received = ("nixl_received", {"result": "complete"})
    first = log.segment(tmp_path, 0, [received])
    log.segment(tmp_path, 1, [received])
    put(tmp_path, fold(first.read_bytes().splitlines(), gone=False).state, {"aaaaaaaaaaaa": 0})
    follower = Follower(str(tmp_path), Fold(CATALOG))
    follower.drain()
    state = follower.fold.state
    assert (state.events["nixl_received"], state.duplicates, state.gone) == (2, 0, 1)
    assert follower.leftover == [first.name]


def test_writers_that_live_on_in_a_snapshot_alone_are_gone(tmp_path):
    log = Lines()
    lines = [
        log.header(),
        log("load_started", engine="vllm", model="m", model_role="main", load_id="l"),
    ]
    put(tmp_path, fold(lines, gone=False).state, {"aaaaaaaaaaaa": 0})
    follower = Follower(str(tmp_path), Fold(CATALOG))
    follower.drain()
    assert follower.fold.state.gone == 1
    assert sum(follower.fold.state.loads.abandoned.values()) == 1


def test_a_snapshot_is_readable_by_all_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        put(tmp_path, some_state(), {})
    finally:
        os.umask(before)
    assert (tmp_path / SNAPSHOT_NAME).stat().st_mode & 0o777 == 0o644


#: More than any snapshot, in bytes.
HUGE = 600 * 10**6


def another_byte(pattern: bytes, byte: bytes) -> Callable[[Path], object]:
    """Replaces the last byte of the first match."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        found = re.search(pattern, data)
        assert found
        path.write_bytes(data[: found.end() - 1] + byte + data[found.end() :])

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        another_byte(rb"\d\d:\d\d:\d\d\.\d\d\d", b"c"),
        another_byte(rb'"0x\d+', b"7"),
        another_byte(rb"\[0(?:,0)*,[1-9]", b"8"),
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, HUGE),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["time", "sum", "count", "cut off", "empty", "huge", "directory"],
)
def test_a_damaged_snapshot_is_never_believed(
    damage: Callable[[Path], object], tmp_path: Path, run: Run, checked: Checked
) -> None:
    """What it stood for is missing, and that is said; what the segments give is right."""
    first, second, *rest = load_logs.ranks(tmp_path, processes=2, segments=2)
    put(tmp_path, fold(load_logs.lines_of([first, second])).state, {"0" * 12: 1})
    first.unlink()
    second.unlink()
    expected = fold(load_logs.lines_of(rest)).state
    path = tmp_path / SNAPSHOT_NAME
    damage(path)

    tracemalloc.start()
    live = follow(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 50 * 10**6
    tracemalloc.stop()
    assert live.snapshot_trouble
    for show in (classic_page, whole_page):
        assert show(live.fold.state) == show(expected)
    for given in (tmp_path, path) if path.is_file() else (tmp_path,):
        with pytest.raises(MxError, match=f"{path}: .*name the segments alone") as caught:
            run(given, output="openmetrics")
        assert caught.value.exit_code == 1
    code, report = checked(tmp_path)
    assert (code, report[-1].endswith(": 1 snapshot that cannot be used")) == (3, True)

    compactor = Compactor(1, 10**9, min_age=0)
    compactor.compact(live)
    assert (compactor.trouble, compactor.compactions) == ("", 1)
    assert os.path.lexists(tmp_path / BAD_SNAPSHOT_NAME)
    for show in (classic_page, whole_page):
        assert show(follow(tmp_path).fold.state) == show(expected)


def test_a_snapshot_that_we_may_not_read_is_not_believed_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = load_logs.ranks(tmp_path, processes=1, segments=1)
    expected = whole_page(fold(load_logs.lines_of([path])).state)
    put(tmp_path, some_state(), {})
    (tmp_path / SNAPSHOT_NAME).chmod(0)
    tmp_path.chmod(0o777)
    # From within, since pytest's own directories are for their user alone.
    monkeypatch.chdir(tmp_path)
    user = os.geteuid()
    os.seteuid(user or NOBODY)
    try:
        live = follow(Path())
        assert "Permission denied" in live.snapshot_trouble
        assert whole_page(live.fold.state) == expected
        compactor = Compactor(1, 10**9, min_age=0)
        compactor.compact(live)
        assert "Permission denied" in compactor.trouble
        assert compactor.compactions == 0
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "read"])
def test_one_that_cannot_be_read_for_now_is_read_later(
    call: str,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is known to be wrong with it, so it is neither moved away nor compacted onto."""
    first, second, *rest = load_logs.ranks(tmp_path, processes=2, segments=2)
    expected = whole_page(fold(load_logs.lines_of([first, second, *rest])).state)
    put(tmp_path, fold(load_logs.lines_of([first, second])).state, {"0" * 12: 1})
    first.unlink()
    second.unlink()
    before = (tmp_path / SNAPSHOT_NAME).read_bytes()
    compactor = Compactor(1, 10**9, min_age=0, clock=itertools.count(10**9, 100).__next__)
    live = Follower(str(tmp_path), Fold(CATALOG))

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        if call == "open":
            patched.setattr(snapshot, "open_regular", fail)
        else:
            patched.setattr(snapshot, "check_size", fail)
        for _ in range(2):
            live.drain()
            compactor.compact(live)
    assert os.strerror(number) in live.snapshot_trouble
    assert os.strerror(number) in compactor.trouble
    assert len([r for r in caplog.records if "cannot be read" in r.message]) == 2
    assert (compactor.compactions, live.snapshot_is_bad) == (0, False)
    assert (tmp_path / SNAPSHOT_NAME).read_bytes() == before
    compactor.compact(live)
    assert compactor.compactions == 0, "what can be read now is not on the page yet"

    live.drain()
    assert live.snapshot_trouble == ""
    assert whole_page(live.fold.state) == expected
    compactor.compact(live)
    assert (compactor.trouble, compactor.compactions) == ("", 1)
    for state in (live.fold.state, follow(tmp_path).fold.state):
        assert whole_page(state) == expected
    assert not os.path.lexists(tmp_path / BAD_SNAPSHOT_NAME)


def test_a_good_one_that_is_put_in_its_place_is_never_moved_away(tmp_path: Path) -> None:
    """Also not between a drain and the compaction after it."""
    first, *rest = load_logs.ranks(tmp_path, processes=2, segments=1)
    expected = whole_page(fold(load_logs.lines_of([first, *rest])).state)
    path = tmp_path / SNAPSHOT_NAME
    path.write_bytes(b"junk")
    held = fold(load_logs.lines_of([first])).state
    first.unlink()
    live = follow(tmp_path)
    assert live.snapshot_is_bad
    put(tmp_path, held, {"0" * 12: 0})
    compactor = Compactor(1, 10**9, min_age=0)
    compactor.compact(live)
    assert (compactor.compactions, os.path.lexists(tmp_path / BAD_SNAPSHOT_NAME)) == (0, False)
    live.drain()
    compactor.compact(live)
    assert compactor.compactions == 1
    assert whole_page(live.fold.state) == whole_page(follow(tmp_path).fold.state) == expected


def test_one_that_is_damaged_after_it_was_read_is_moved_away_too(tmp_path: Path) -> None:
    """As by a disk: its time and its size stay."""
    first, *rest = load_logs.ranks(tmp_path, processes=2, segments=1)
    expected = whole_page(fold(load_logs.lines_of(rest)).state)
    put(tmp_path, fold(load_logs.lines_of([first])).state, {"0" * 12: 0})
    first.unlink()
    live = follow(tmp_path)
    path = tmp_path / SNAPSHOT_NAME
    status = path.stat()
    another_byte(rb"\d\d:\d\d:\d\d\.\d\d\d", b"c")(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    compactor = Compactor(1, 10**9, min_age=0, clock=itertools.count(10**9, 100).__next__)
    compactor.compact(live)
    assert "is damaged" in live.snapshot_trouble
    assert (compactor.compactions, path.exists()) == (0, True)
    live.drain()
    compactor.compact(live)
    assert (compactor.trouble, compactor.compactions, live.snapshot_trouble) == ("", 1, "")
    assert (tmp_path / BAD_SNAPSHOT_NAME).is_file()
    assert whole_page(follow(tmp_path).fold.state) == expected


@pytest.mark.parametrize("taken", [Path.mkdir, lambda path: _full_directory(path)])
def test_one_is_made_under_another_name_where_its_own_cannot_be_had(
    taken: Callable[[Path], object], tmp_path: Path
) -> None:
    load_logs.ranks(tmp_path, processes=1, segments=1)
    taken(tmp_path / f".{SNAPSHOT_NAME}")
    left = tmp_path / f".{SNAPSHOT_NAME}.1"
    left.write_bytes(b"of a crash")
    compactor = Compactor(1, 10**9, min_age=0)
    live = follow(tmp_path)
    assert left.name in live.temporary
    compactor.compact(live)
    assert (compactor.trouble, compactor.compactions) == ("", 1)
    assert sorted(os.listdir(tmp_path)) == [f".{SNAPSHOT_NAME}", SNAPSHOT_NAME]


@pytest.mark.parametrize("name", [f"{SNAPSHOT_NAME}.1", f"{SNAPSHOT_NAME}.bad.01", "a.bad.1"])
def test_what_has_a_number_of_somebody_elses_is_not_ours(name: str) -> None:
    assert not is_ours(name)


def _full_directory(path: Path) -> None:
    path.mkdir()
    (path / "something").touch()


@pytest.mark.parametrize("bad", [lambda path: path.write_bytes(b"junk"), _full_directory])
@pytest.mark.parametrize("taken", [_full_directory, lambda path: path.write_bytes(b"old")])
def test_a_bad_one_has_another_name_where_its_own_cannot_be_replaced(
    taken: Callable[[Path], object], bad: Callable[[Path], object], tmp_path: Path
) -> None:
    load_logs.ranks(tmp_path, processes=1, segments=1)
    bad(tmp_path / SNAPSHOT_NAME)
    moved = numbered(BAD_SNAPSHOT_NAME)
    names = [next(moved) for _ in range(3)]
    for name in names[:2]:
        taken(tmp_path / name)
    compactor = Compactor(1, 10**9, min_age=0)
    compactor.compact(follow(tmp_path))
    assert (compactor.trouble, compactor.compactions) == ("", 1)
    replaced = bad is not _full_directory and taken is not _full_directory
    assert (tmp_path / names[2]).exists() is not replaced
    assert all(is_ours(name) for name in names)
