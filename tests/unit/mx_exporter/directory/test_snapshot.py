"""A snapshot in the directory: a bad one stops nobody, and its segments are not read again."""

from __future__ import annotations

import os

from mx_exporter.core import snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import snapshot
from mx_exporter.directory.follower import Follower
from mx_log.files import SNAPSHOT_NAME
from tests.support import Lines
from tests.support.folding import fold, some_state


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
