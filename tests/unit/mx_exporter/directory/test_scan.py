"""What a listing holds, and when it says that something changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_exporter.directory.scan import Scan
from mx_log.files import LOCK_NAME, SNAPSHOT_NAME

FIRST, SECOND = "events-aaaaaaaaaaaa-0.jsonl", "events-bbbbbbbbbbbb-0.jsonl"


@pytest.fixture
def dir_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_before_the_first_listing_there_is_nothing():
    scan = Scan()
    assert (scan.segments, scan.others_bytes, scan.foreign_db_files) == ({}, 0, 0)


def test_what_did_not_change_is_not_sorted_out_again(tmp_path, dir_fd, monkeypatch):
    (tmp_path / FIRST).write_bytes(b"")
    scan = Scan()
    scan.refresh(dir_fd)
    monkeypatch.setattr(scan, "_sort_out", None)
    assert not scan.refresh(dir_fd)
    assert list(scan.segments) == [FIRST]


def test_a_file_that_goes_while_the_directory_is_listed_has_no_size(tmp_path, dir_fd, monkeypatch):
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"12")
    (tmp_path / LOCK_NAME).write_bytes(b"1")
    scan = Scan()

    def sort_out(entries, real=scan._sort_out):
        real(entries)
        (tmp_path / SNAPSHOT_NAME).unlink()

    monkeypatch.setattr(scan, "_sort_out", sort_out)
    scan.refresh(dir_fd)
    assert scan.others_bytes == 1


def test_a_listing_says_whether_something_changed(tmp_path, dir_fd):
    scan = Scan()
    assert scan.refresh(dir_fd), "the first one"
    assert not scan.refresh(dir_fd)
    (tmp_path / FIRST).write_bytes(b"")
    assert scan.refresh(dir_fd), "a file came"
    (tmp_path / FIRST).write_bytes(b"more")
    assert not scan.refresh(dir_fd), "a file grew"
    (tmp_path / SECOND).write_bytes(b"")
    (tmp_path / SECOND).rename(tmp_path / FIRST)
    assert scan.refresh(dir_fd), "a file was replaced"
    scan.forget()
    assert scan.refresh(dir_fd), "all is new"
    (tmp_path / FIRST).unlink()
    assert scan.refresh(dir_fd), "a file went"
    assert scan.segments == {}


def test_a_directory_whose_listing_failed_is_sorted_out_again(tmp_path, dir_fd, monkeypatch):
    (tmp_path / FIRST).write_bytes(b"")
    scan = Scan()
    scan.refresh(dir_fd)
    (tmp_path / SECOND).write_bytes(b"")

    def failing(_entries):
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(scan, "_sort_out", failing)
        with pytest.raises(OSError):  # noqa: PT011 - it has no words
            scan.refresh(dir_fd)
    (tmp_path / SECOND).unlink()
    assert scan.refresh(dir_fd), "as it was before the failure, which may have been half-way"


def test_names_are_sorted_out_by_what_they_are(tmp_path, dir_fd):
    (tmp_path / FIRST).write_bytes(b"12345")
    (tmp_path / SECOND).mkdir()
    (tmp_path / f".{FIRST}").write_bytes(b"123")
    (tmp_path / LOCK_NAME).write_bytes(b"1")
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"12")
    for name in ("counter_1.db", "counter_2.db", "notes", ".notes"):
        (tmp_path / name).write_bytes(b"1234567")
    scan = Scan()
    for _ in range(2):
        scan.forget()
        scan.refresh(dir_fd)
        assert list(scan.segments) == [FIRST]
        assert scan.not_regular == [SECOND]
        assert scan.temporary == [f".{FIRST}"]
        assert scan.others_bytes == 6
        assert scan.foreign_db_files == 2


def test_a_link_in_a_snapshots_place_has_its_own_size(tmp_path, dir_fd):
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (tmp_path / SNAPSHOT_NAME).symlink_to("large")
    scan = Scan()
    scan.refresh(dir_fd)
    assert scan.others_bytes == len("large")


def test_a_file_in_the_place_of_what_was_none_is_a_change_whatever_its_inode(tmp_path, dir_fd):
    """An inode is used again: names and inodes may be the same as before."""
    target = tmp_path / "target"
    target.write_bytes(b"")
    (tmp_path / FIRST).symlink_to(target)
    (tmp_path / SECOND).write_bytes(b"")
    scan = Scan()
    scan.refresh(dir_fd)
    assert scan.not_regular == [FIRST]
    assert not scan.refresh(dir_fd), "a link to a file is none"
    (tmp_path / FIRST).unlink()
    (tmp_path / FIRST).write_bytes(b"")
    with os.scandir(dir_fd) as entries:
        found = list(entries)
        scan._seen = ([entry.name for entry in found], [entry.inode() for entry in found])
    assert scan.refresh(dir_fd)
    assert (set(scan.segments), scan.not_regular) == ({FIRST, SECOND}, [])
