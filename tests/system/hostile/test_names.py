"""Links, pipes, devices and folders that have the name of a segment or of the lock."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_exporter.directory.ownership import STATES, Ownership
from mx_log.files import LOCK_NAME
from tests import support
from tests.support import serving

SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'
IGNORED = 'mx_exporter_files_ignored{reason="not_regular"}'


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_device(kind: int, major: int, minor: int) -> Callable[[Path], None]:
    return lambda path: os.mknod(path, kind | 0o666, os.makedev(major, minor))


#: What a name can be instead of a file: a device that never ends, one that nobody has, ...
KINDS: dict[str, Callable[[Path], None]] = {
    "directory": Path.mkdir,
    "fifo": os.mkfifo,
    "socket": make_socket,
    "link": lambda path: path.symlink_to("events-aaaaaaaaaaaa-0.jsonl"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "device": make_device(stat.S_IFCHR, 1, 5),
    "block device": make_device(stat.S_IFBLK, 7, 250),
}


def make(kind: str, path: Path) -> None:
    try:
        KINDS[kind](path)
    except PermissionError:
        support.leave_out(f"may not make a {kind} here")


def test_segments_that_are_no_files(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 3)
    for number, kind in enumerate(KINDS):
        make(kind, tmp_path / f"events-{number:012x}-0.jsonl")
    exporter = serving.start(spawn, tmp_path)
    for _ in range(3):
        page = exporter.get()
        assert page.sample(SUCCESS) == 3
        assert page.sample(IGNORED) == len(KINDS)
        assert page.sample("mx_exporter_events_logged_total") == 4
    for number in range(len(KINDS)):
        assert exporter.log.count(f"events-{number:012x}-0.jsonl") == 1
    assert len(list(tmp_path.glob("events-*"))) == len(KINDS) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_is_no_file(tmp_path: Path, kind: str) -> None:
    """Whether it can be locked or not, that is no error, and the name stays what it is."""
    path = tmp_path / LOCK_NAME
    make(kind, path)
    before = os.lstat(path)
    claim = Ownership(str(tmp_path))
    try:
        assert claim.claim() in STATES
    finally:
        claim.release()
    assert os.lstat(path).st_ino == before.st_ino


def test_a_lock_that_is_a_directory_does_not_keep_from_serving(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    (tmp_path / LOCK_NAME).mkdir()
    serving.attempts(tmp_path, 3)
    assert serving.start(spawn, tmp_path).get().sample(SUCCESS) == 3
