"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from mx_exporter.directory import atomic_write


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(b"old")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def new(file: BinaryIO) -> None:
    file.write(b"new, and longer")


def test_the_new_file_takes_the_place_of_the_old_one(folder: int, tmp_path: Path) -> None:
    status = atomic_write.put("file", folder, new)
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new, and longer"
    there = os.stat(tmp_path / "file")
    assert (status.st_ino, status.st_mtime_ns, status.st_size) == (
        there.st_ino,
        there.st_mtime_ns,
        there.st_size,
    )


@pytest.mark.parametrize("step", ["write", "fsync", "fstat", "rename"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    step: str, folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step != "write":
        monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write.put("file", folder, full if step == "write" else new)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_it_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_returns(
    folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    fsync, rename = os.fsync, os.rename

    def synced(fd: int) -> None:
        calls.append("directory" if fd == folder else f"{os.fstat(fd).st_size} bytes")
        fsync(fd)

    def renamed(*names: str, **folders: int) -> None:
        calls.append("rename")
        rename(*names, **folders)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    atomic_write.put("file", folder, new)
    assert calls == ["15 bytes", "rename", "directory"]


def test_what_a_crash_left_is_replaced(folder: int, tmp_path: Path) -> None:
    (tmp_path / ".file").write_bytes(b"half of one that was longer than the next")
    atomic_write.put("file", folder, new)
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new, and longer"


@pytest.mark.parametrize("planted", ["symlink", "hard link", "pipe"])
def test_what_somebody_put_there_is_neither_followed_nor_waited_for(
    planted: str, folder: int, tmp_path: Path
) -> None:
    temporary, victim = tmp_path / ".file", tmp_path / "victim"
    victim.write_bytes(b"theirs")
    if planted == "symlink":
        temporary.symlink_to(victim)
    elif planted == "hard link":
        temporary.hardlink_to(victim)
    else:
        os.mkfifo(temporary)
    atomic_write.put("file", folder, new)
    assert victim.read_bytes() == b"theirs"
    assert (tmp_path / "file").read_bytes() == b"new, and longer"
    assert sorted(os.listdir(tmp_path)) == ["file", "victim"]
