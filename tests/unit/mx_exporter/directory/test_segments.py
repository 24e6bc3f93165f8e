"""One segment: opening it follows no link and never blocks; what is known of it, and its lines."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import segments
from mx_exporter.directory.segments import Segment, read_blocks
from mx_log.files import SegmentName
from mx_log.locks import NotRegular, open_regular
from mx_log.schema import MAX_LINE_BYTES
from tests.support import Lines

# --------------------------------------------------------------------------------------
# Opening it


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Also one that was put in a segment's place after the directory was listed."""
    (tmp_path / "secret").write_bytes(b"line\n")
    (tmp_path / "link").symlink_to("secret")
    with pytest.raises(OSError, match="link") as failed:
        open_regular(str(tmp_path / "link"))
    assert failed.value.errno == errno.ELOOP


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_what_is_no_regular_file_is_refused_at_once(
    kind: str, relative: bool, tmp_path: Path
) -> None:
    path = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(path)  # nobody writes to it: opening it would wait for ever
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path(os.devnull)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with pytest.raises(NotRegular, match=path.name):
            open_regular(path.name, folder) if relative else open_regular(str(path))
    finally:
        os.close(folder)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "odd"))
        with pytest.raises(OSError):  # noqa: PT011 - the kernel refuses it in words of its own
            open_regular(str(tmp_path / "odd"))


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"line\n")
    fd = open_regular(str(tmp_path / "segment"))
    try:
        assert not os.get_inheritable(fd)
        assert os.pread(fd, 10, 0) == b"line\n"
    finally:
        os.close(fd)


# --------------------------------------------------------------------------------------
# What is known of it


def status(size: int, mtime: float) -> os.stat_result:
    return os.stat_result((0, 0, 0, 0, 0, 0, size, 0, int(mtime), 0))


@pytest.fixture
def segment() -> Segment:
    return Segment(SegmentName("aaaaaaaaaaaa", 3), 7)


@pytest.mark.parametrize("mtime", [-2, -1, 0, 1])
def test_the_first_look_finds_a_segment_changed_whatever_its_time(
    segment: Segment, mtime: int
) -> None:
    segment.note_look(status(0, mtime), 100.0, 101.0)
    assert (segment.size, segment.mtime, segment.unchanged_for) == (0, mtime, -1.0)
    segment.note_look(status(0, mtime), 105.0, 106.0)
    assert segment.unchanged_for == 4.0
    segment.start_again()
    segment.note_look(status(0, mtime), 107.0, 108.0)
    assert segment.unchanged_for == -1.0


@pytest.mark.parametrize("changed", [status(11, 5), status(10, 6)])
def test_a_change_starts_the_time_without_one_again(
    segment: Segment, changed: os.stat_result
) -> None:
    segment.note_look(status(10, 5), 100.0, 100.0)
    segment.note_look(changed, 103.0, 104.0)
    assert segment.unchanged_for == -1.0


def test_what_was_seen_from_outside_is_known_of_a_segment_that_is_read_again(
    segment: Segment,
) -> None:
    segment.note_look(status(10, 5), 100.0, 100.0)
    segment.was_locked = True
    segment.feed(Fold(CATALOG), b"half")
    again = segment.unread()
    assert (again.name, again.inode, again.size, again.mtime) == (segment.name, 7, 10, 5)
    assert (again.was_locked, again.done, again.position, again.anchor) == (True, False, 0, b"")
    again.note_look(status(10, 5), 100.5, 100.5)
    assert again.unchanged_for == 0.5
    segment.finish(Fold(CATALOG))
    again = segment.unread()
    again.note_look(status(10, 5), 100.5, 100.5)
    assert again.unchanged_for == float("inf")
    again.note_look(status(11, 5), 101.0, 101.0)
    assert again.unchanged_for == 0.0


def test_a_segment_that_was_not_looked_at_is_empty_and_may_be_read_again(segment: Segment) -> None:
    assert (segment.unread().size, segment.size, segment.was_locked) == (0, 0, False)


# --------------------------------------------------------------------------------------
# Its lines


def test_the_last_bytes_that_were_read_are_kept_until_it_is_finished(segment: Segment) -> None:
    fold, text = Fold(CATALOG), b"".join(b"%d\n" % n for n in range(1000))
    for at in range(0, len(text), 100):
        segment.feed(fold, text[at : at + 100])
        assert segment.position == min(at + 100, len(text))
        assert segment.anchor == text[: segment.position][-512:]
    segment.finish(fold)
    assert segment.done
    assert segment.anchor == b""


def test_a_segment_that_is_read_from_its_beginning_knows_nothing_of_what_it_held(
    segment: Segment,
) -> None:
    """Half a line belongs to the bytes that are no more."""
    fold, line = Fold(CATALOG), Lines()("nixl_received", result="complete")
    segment.feed(fold, line[:50])
    segment.start_again()
    assert (segment.position, segment.anchor) == (0, b"")
    segment.feed(fold, line)
    assert (fold.state.logged, fold.state.rejected) == (1, {})


def test_lines_go_to_the_fold_also_the_last_one_and_those_that_are_too_long(
    segment: Segment,
) -> None:
    fold, log = Fold(CATALOG), Lines()
    segment.feed(fold, log.header() + b"x" * (MAX_LINE_BYTES + 1))
    for _ in range(2):
        segment.feed(fold, b"x")
    segment.feed(fold, b"\n" + log("nixl_received", result="complete")[:-1])
    assert fold.state.logged == 1
    segment.finish(fold)
    assert (fold.state.logged, fold.state.rejected) == (2, {"too_long": 1})


def test_bytes_are_read_up_to_an_end_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "segment").write_bytes(b"0123456789")
    fd = open_regular(str(tmp_path / "segment"))
    try:
        assert list(read_blocks(fd, 0, 10)) == [b"0123456789"]
        monkeypatch.setattr(segments, "BLOCK_BYTES", 4)
        assert list(read_blocks(fd, 0, 9)) == [b"0123", b"4567", b"8"]
        assert list(read_blocks(fd, 5, 8)) == [b"567"]
        assert list(read_blocks(fd, 5, 15)) == [b"5678", b"9"]
        assert list(read_blocks(fd, 5, 5)) == []
        assert list(read_blocks(fd, 20, 30)) == []
    finally:
        os.close(fd)
