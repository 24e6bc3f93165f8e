"""Making a segment, and whether its descriptor is still ours."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mx_emitter.log.segment import MARK, Segment, is_there
from mx_log.files import SegmentName

NAME = SegmentName("aaaaaaaaaaaa", 0)
HEADER = b'{"event":"process_started"}\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the segments, which is not that of the process."""
    place = tmp_path / "log"
    place.mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return place


@pytest.fixture
def folder(place: Path) -> Iterator[int]:
    folder = os.open(place, os.O_RDONLY)
    yield folder
    os.close(folder)


def header(_locked: bool) -> bytes:
    return HEADER


@contextmanager
def made(
    folder: int,
    header: Callable[[bool], bytes] = header,
    abandoned: Callable[[], bool] = lambda: False,
) -> Iterator[Segment]:
    segment = Segment(folder, NAME, header, abandoned)
    try:
        yield segment
    finally:
        segment.close()


def refused(
    folder: int,
    header: Callable[[bool], bytes] = header,
    abandoned: Callable[[], bool] = lambda: False,
) -> int | None:
    """Why no segment could be made."""
    with pytest.raises(OSError) as failed, made(folder, header, abandoned):  # noqa: PT011 - returned
        pass
    return failed.value.errno


def test_a_segment_gets_its_name_when_its_header_is_written(place: Path, folder: int) -> None:
    seen = []

    def look(locked: bool) -> bytes:
        (path,) = place.iterdir()
        seen.append((locked, path.name, stat.S_IMODE(path.stat().st_mode), path.read_bytes()))
        return HEADER

    with made(folder, look) as segment:
        (path,) = place.iterdir()
        assert (path.name, path.read_bytes()) == (str(NAME), HEADER)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert segment.size == len(HEADER)
        assert os.fstat(segment.fd).st_ino == path.stat().st_ino
        flags = fcntl.fcntl(segment.fd, fcntl.F_GETFL)
        assert (flags & os.O_APPEND, flags & os.O_ACCMODE) == (os.O_APPEND, os.O_WRONLY)
        assert not os.get_inheritable(segment.fd)
    assert seen == [(True, NAME.temporary, 0o600, b"")]


def test_what_an_earlier_try_left_is_replaced(place: Path, folder: int) -> None:
    (place / NAME.temporary).write_bytes(b"half")
    with made(folder):
        assert os.listdir(place) == [str(NAME)]
        assert (place / str(NAME)).read_bytes() == HEADER


@pytest.mark.parametrize("what", ["file", "link"])
def test_what_somebody_puts_in_its_place_is_not_written_to(
    what: str, place: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the way was cleared for it."""
    theirs = place.parent / "theirs"
    theirs.write_bytes(b"WEIGHTS")

    def put(name: str, **_: int) -> None:
        os.link(theirs, place / name) if what == "file" else os.symlink(theirs, place / name)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", put)
        assert refused(folder) == errno.EEXIST
    assert theirs.read_bytes() == b"WEIGHTS"


def test_a_segment_whose_header_fails_leaves_nothing(place: Path, folder: int) -> None:
    def fail(_locked: bool) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    assert refused(folder, fail) == errno.EIO
    assert list(place.iterdir()) == []


def test_a_segment_that_its_header_does_not_fit_into_leaves_nothing(
    place: Path, folder: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(_locked: bool) -> bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(HEADER) - 1, hard))
        return HEADER

    try:
        assert refused(folder, limited) == errno.ENOSPC
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        (0, {NAME.temporary: b"the parent's"}),
        (1, {}),
        (2, {NAME.temporary: b""}),
        (3, {NAME.temporary: HEADER}),
    ],
    ids=["clearing", "making", "writing", "naming"],
)
def test_a_forked_child_does_not_go_on_with_its_parents_segment(
    steps: int, left: dict[str, bytes], place: Path, folder: int
) -> None:
    """It was forked after so many steps. What the parent has made by then stays."""
    (place / NAME.temporary).write_bytes(b"the parent's")
    asked = iter([False] * steps)
    assert refused(folder, abandoned=lambda: next(asked, True)) == errno.ECANCELED
    assert {path.name: path.read_bytes() for path in place.iterdir()} == left


def test_a_file_system_without_locks(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the operating system is replaced: none that is at hand gives it."""

    def unsupported(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    said = []
    with made(folder, lambda locked: said.append(locked) or HEADER):
        assert said == [False]


# --------------------------------------------------------------------------------------
# Whether the descriptor is still ours


def test_an_open_segment_is_ours_and_as_long_as_its_file(place: Path, folder: int) -> None:
    with made(folder) as segment:
        assert segment.is_ours() is True
        assert (segment.state(), segment.length()) == ("ok", len(HEADER))
        os.write(segment.fd, b"more")
        assert segment.length() == len(HEADER) + 4
        (place / str(NAME)).unlink()
        assert segment.is_ours() is True
        assert (segment.state(), segment.length()) == ("removed", len(HEADER) + 4)


def test_a_closed_descriptor_is_not(folder: int) -> None:
    with made(folder) as segment:
        os.close(segment.fd)
        assert segment.is_ours() is False
        assert (segment.state(), segment.length()) == ("lost", 0)


def test_nor_is_one_that_is_another_file_by_now(place: Path, folder: int) -> None:
    (place / "theirs").write_bytes(b"WEIGHTS")
    with made(folder) as segment:
        number = segment.fd
        theirs = os.open(place / "theirs", os.O_RDWR)
        os.dup2(theirs, number)
        os.close(theirs)
        assert segment.is_ours() is False
        assert (segment.state(), segment.length()) == ("lost", 0)
    assert os.pread(number, 100, 0) == b"WEIGHTS", "it is not closed"
    os.close(number)


def test_nor_is_one_that_somebody_opened_for_the_same_file(place: Path, folder: int) -> None:
    """It may not be open for appending, or not for writing."""
    with made(folder) as segment:
        theirs = os.open(place / str(NAME), os.O_RDWR)
        os.dup2(theirs, segment.fd)
        os.close(theirs)
        assert segment.is_ours() is False


def test_no_program_marks_a_file_as_we_do() -> None:
    assert MARK not in signal.valid_signals()


@pytest.mark.parametrize("how", ["refuses", "forgets"])
def test_where_no_file_can_be_marked_it_is_known_by_its_inode(
    how: str, place: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's answer is replaced: some that are not Linux itself refuse, or do nothing."""
    real = fcntl.fcntl

    def unmarked(fd: int, command: int, argument: int = 0) -> int:
        if command != fcntl.F_SETSIG:
            return real(fd, command, argument)
        if how == "refuses":
            raise OSError(errno.EINVAL, "Invalid argument")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", unmarked)
    (place / "theirs").write_bytes(b"WEIGHTS")
    with made(folder) as segment:
        assert segment.is_ours() is True
        number = segment.fd
        theirs = os.open(place / "theirs", os.O_RDWR)
        os.dup2(theirs, number)
        os.close(theirs)
        assert segment.is_ours() is False
    os.close(number)


def test_a_segment_that_is_closed_twice_closes_nothing_of_others(folder: int) -> None:
    with made(folder) as segment:
        number = segment.fd
        segment.close()
        assert segment.fd == -1
        assert (segment.is_ours(), segment.state()) == (False, "lost")
        theirs = os.open(os.devnull, os.O_RDWR)
        os.dup2(theirs, number)
        os.close(theirs)
    os.close(number)


def test_a_name_is_there_whatever_has_it(place: Path, folder: int) -> None:
    assert is_there(folder, NAME) is False
    (place / str(NAME)).symlink_to("nowhere")
    assert is_there(folder, NAME) is True


# --------------------------------------------------------------------------------------
# The number of the descriptor


@contextmanager
def free_only(*numbers: int, limit: int = 64) -> Iterator[None]:
    """All descriptors below ``limit`` are in use but these, and there are no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = {}
    for number in numbers:
        try:
            inheritable = os.get_inheritable(number)
        except OSError:
            continue
        kept[number] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, limit), inheritable
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    used = []
    try:
        while True:
            try:
                used.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for number in numbers:
            os.close(number)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in set(used) - set(numbers):
            os.close(number)
        for number, (copy, inheritable) in kept.items():
            os.dup2(copy, number, inheritable)
            os.close(copy)


@pytest.mark.parametrize(
    ("free", "number"),
    [
        ([25, 40], 40),
        ([32, 33], 32),
        ([5, 6], 5),
        ([0, 5], 5),
        ([3], 3),
    ],
    ids=["in the upper half", "there already", "none there", "beside standard ones", "the lowest"],
)
def test_the_number_is_high_and_none_of_the_standard_streams(
    free: list[int], number: int, folder: int
) -> None:
    assert folder not in free
    with free_only(*free), made(folder) as segment:
        assert segment.fd == number
        for other in set(free) - {number}:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(other)


def test_without_a_number_above_the_standard_streams_none_is_made(place: Path, folder: int) -> None:
    with free_only(0, 1):
        assert refused(folder) == errno.EMFILE
        assert fcntl.fcntl(folder, fcntl.F_GETFD) == fcntl.FD_CLOEXEC
        for number in (0, 1):
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("unlimited", [False, True])
def test_the_number_is_4000_at_most(
    unlimited: bool, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, 8192)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        if unlimited:  # no Linux has no limit, other kernels may
            infinity = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            monkeypatch.setattr(resource, "getrlimit", lambda _which: infinity)
            limit = 8192
        with made(folder) as segment:
            assert segment.fd == min(4000, limit // 2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
