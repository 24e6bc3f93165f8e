"""Reading a segment: what is new in it, its deadline, and what is left alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import reading, segments
from mx_exporter.directory.reading import Look, SegmentReader
from mx_exporter.directory.segments import Segment
from mx_log.files import SegmentName

NAME = SegmentName("aaaaaaaaaaaa", 0)


class Clock:
    """Goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def dir_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def reader(tmp_path: Path) -> SegmentReader:
    return SegmentReader(str(tmp_path), Clock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A segment of 4,000 bytes: lines of ten."""
    path = tmp_path / str(NAME)
    path.write_bytes(b"%09d\n" % 7 * 400)
    return path


@pytest.fixture
def segment(path: Path) -> Segment:
    return Segment(NAME, path.stat().st_ino)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "BLOCK_BYTES", 1000)


def lines_in(fold: Fold) -> int:
    return fold.state.rejected["not_object"] + fold.state.rejected["not_json"]


def test_a_look_reads_what_is_new_up_to_the_size_of_now(
    reader: SegmentReader, path: Path, segment: Segment, dir_fd: int
) -> None:
    fold = Fold(CATALOG)
    assert reader.read(segment, fold, dir_fd) == Look(whole=True, unlocked=True)
    assert (lines_in(fold), reader.bytes_read, segment.size) == (400, 4000, 4000)
    with path.open("ab") as file:
        file.write(b"more\n")
    assert reader.read(segment, fold, dir_fd) == Look(whole=True, unlocked=True)
    assert (lines_in(fold), reader.bytes_read, segment.size) == (401, 4005, 4005)
    assert (reader.bytes_unread, reader.rewritten, reader.ignored) == (0, 0, {})


# --------------------------------------------------------------------------------------
# Its deadline


def test_a_deadline_is_looked_at_before_each_block(
    reader: SegmentReader, segment: Segment, dir_fd: int
) -> None:
    """Two looks at the clock before the first block, one more before each."""
    fold = Fold(CATALOG)
    reader.limit(5.0)
    assert reader.read(segment, fold, dir_fd) == Look(whole=False, unlocked=True)
    assert (reader.bytes_read, reader.bytes_unread) == (2000, 2000)
    assert reader.read(segment, fold, dir_fd) == Look(whole=False, unlocked=True)
    assert (reader.bytes_read, reader.bytes_unread) == (2000, 4000)
    reader.forget_counts()
    assert reader.bytes_unread == 0
    reader.limit(None)
    assert reader.read(segment, fold, dir_fd) == Look(whole=True, unlocked=True)
    assert (reader.bytes_read, reader.bytes_unread) == (4000, 0)


@pytest.mark.parametrize("first", [None, 4.0, 100.0])
def test_of_two_deadlines_the_earlier_one_holds(
    first: float | None, reader: SegmentReader, segment: Segment, dir_fd: int
) -> None:
    reader.limit(first)
    reader.limit_earlier(5.0)
    reader.limit_earlier(50.0)
    reader.read(segment, Fold(CATALOG), dir_fd)
    assert reader.bytes_read == (1000 if first == 4.0 else 2000)


def test_a_limit_that_was_lifted_holds_again_in_the_next_drain(
    reader: SegmentReader, path: Path, segment: Segment, dir_fd: int
) -> None:
    reader.limit(1.0)
    reader.lift_limit()
    reader.limit_earlier(0.5)
    reader.read(segment, Fold(CATALOG), dir_fd)
    assert reader.bytes_unread == 0
    with path.open("ab") as file:
        file.write(b"more\n")
    reader.limit(1.0)
    reader.read(segment, Fold(CATALOG), dir_fd)
    assert reader.bytes_unread == 5


# --------------------------------------------------------------------------------------
# A file that is not as it was


def test_a_file_that_ends_before_its_size_is_read_to_its_end(
    reader: SegmentReader,
    path: Path,
    segment: Segment,
    dir_fd: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was cut in the middle of the look."""

    def cut(fd: int, start: int, end: int, real=segments.read_blocks) -> Iterator[bytes]:
        os.truncate(path, 1500)
        return real(fd, start, end)

    monkeypatch.setattr(reading, "read_blocks", cut)
    fold = Fold(CATALOG)
    assert reader.read(segment, fold, dir_fd) == Look(whole=True, unlocked=True)
    assert (segment.size, reader.bytes_read, reader.bytes_unread) == (1500, 1500, 0)


def test_a_file_that_was_cut_or_rewritten_is_read_again_and_said(
    reader: SegmentReader,
    path: Path,
    segment: Segment,
    dir_fd: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fold = Fold(CATALOG)
    reader.read(segment, fold, dir_fd)
    for count, text in enumerate((b"%09d\n" % 7 * 300, b"%09d\n" % 8 * 300), 1):
        path.write_bytes(text)
        assert reader.read(segment, fold, dir_fd) == Look(whole=True, unlocked=True)
        assert (reader.rewritten, segment.position) == (count, 3000)
    reader.count_replaced()
    reader.count_replaced()
    assert reader.rewritten == 4
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} was truncated or rewritten; what it held may be lost"
    ] * 2


def test_another_file_under_the_name_is_not_read(
    reader: SegmentReader, path: Path, segment: Segment, dir_fd: int
) -> None:
    """Its inode is not the one that was listed."""
    (path.parent / "other").write_bytes(b"other\n")
    (path.parent / "other").rename(path)
    assert reader.read(segment, Fold(CATALOG), dir_fd) is None
    assert (reader.bytes_read, reader.ignored) == (0, {})


def test_a_file_that_is_gone_is_said_to_be(
    reader: SegmentReader, path: Path, segment: Segment, dir_fd: int
) -> None:
    path.unlink()
    with pytest.raises(FileNotFoundError):
        reader.read(segment, Fold(CATALOG), dir_fd)
    assert reader.ignored == {}


# --------------------------------------------------------------------------------------
# What is left alone


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        ("open_regular", OSError(errno.EIO, "Input/output error"), "unreadable"),
        ("open_regular", OSError("no words of the system"), "unreadable"),
        ("open_regular", reading.NotRegular("no words of the system"), "not_regular"),
        ("open_regular", reading.NotRegular(errno.EINVAL, "a directory", "x"), "not_regular"),
        ("probe", OSError(errno.EIO, "Input/output error"), "unreadable"),
        ("probe", OSError("no words of the system"), "unreadable"),
    ],
)
def test_a_file_that_cannot_be_read_is_counted_and_said_once(
    call: str,
    error: OSError,
    reason: str,
    reader: SegmentReader,
    path: Path,
    segment: Segment,
    dir_fd: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(*_: object) -> None:
        raise error

    fold = Fold(CATALOG)
    with monkeypatch.context() as patched:
        patched.setattr(reading, call, failing)
        for count in (1, 2):
            assert reader.read(segment, fold, dir_fd) is None
            assert reader.ignored == {reason: count}
    why = error.strerror or str(error)
    assert [record.getMessage() for record in caplog.records] == [f"left alone: {path}: {why}"]
    reader.forget_counts()
    assert reader.read(segment, fold, dir_fd) is not None
    assert reader.ignored == {}


def test_files_that_are_not_regular_are_counted_anew_with_each_listing(
    reader: SegmentReader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.ignore_listed(["a", "b"])
    reader.ignore("unreadable", "c", "why")
    reader.ignore_listed(["b", "d", "e"])
    assert reader.ignored == {"not_regular": 3, "unreadable": 1}
    assert len(caplog.records) == 5
    assert caplog.records[0].getMessage().endswith(f"/a: {reading.IGNORED['not_regular']}")


def test_so_many_files_are_said_and_no_more(
    reader: SegmentReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory may hold any number."""
    monkeypatch.setattr(reading, "_MAX_WARNINGS", 3)
    reader.ignore_listed("abcde")
    reader.ignore_listed("abcde")
    assert len(caplog.records) == 3
    assert reader.ignored == {"not_regular": 5}
