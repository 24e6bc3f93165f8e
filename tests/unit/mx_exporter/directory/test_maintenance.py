"""The positions of shipping are kept in the snapshot and change nothing else in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mx_exporter.core import snapshot_codec as snapshot
from mx_exporter.core.builtin import CATALOG
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.retention import GRACE_SECONDS
from mx_log.files import SNAPSHOT_NAME
from tests.support.compacting import fill
from tests.support.folding import follow, pages
from tests.support.log_lines import segments_in
from tests.support.snapshots import content_of, sealed


def names(directory: Path) -> list[str]:
    return sorted(segments_in(directory), key=lambda name: int(name.split("-")[2][:-6]))


def compactor_of(retain: int = 20_000, maximum: int = 10**9) -> Compactor:
    return Compactor(retain, maximum, min_age=0)


def snapshot_in(directory: Path) -> snapshot.Snapshot:
    return snapshot.load(CATALOG, (directory / SNAPSHOT_NAME).read_bytes())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    fill(tmp_path / "log", "aaaaaaaaaaaa", 10)
    return tmp_path / "log"


def test_positions_are_kept_without_a_compaction(log: Path) -> None:
    follower = follow(log)
    positions = dict.fromkeys(names(log), 5)
    assert compactor_of().save_positions(follower, positions)
    assert snapshot_in(log).shipped == positions
    assert snapshot_in(log).segments == {}
    again = follow(log)
    assert again.shipped == positions
    assert pages(again.fold.state) == pages(follower.fold.state)


def test_a_compaction_keeps_those_of_the_segments_that_stay(log: Path) -> None:
    follower = follow(log)
    positions = dict.fromkeys(names(log), 7)
    compactor_of().compact(follower, shipped=lambda: positions)
    left = names(log)
    assert 0 < len(left) < 10
    assert snapshot_in(log).shipped == dict.fromkeys(left, 7)
    # Another owner, who does not tee, hands them on.
    compactor_of(5_000).compact(follow(log))
    assert len(names(log)) < len(left)
    assert snapshot_in(log).shipped == dict.fromkeys(names(log), 7)


def test_other_positions_are_another_file_but_the_same_state(log: Path) -> None:
    owner, compactor = follow(log), compactor_of()
    compactor.compact(owner)
    reader = follow(log)
    before = pages(reader.fold.state)
    assert compactor.save_positions(owner, {names(log)[-1]: 3})
    owner.drain()
    read = reader.bytes_read
    reader.drain()
    # It does not start over: nothing is read again.
    assert reader.bytes_read == read
    assert pages(reader.fold.state) == pages(owner.fold.state) == before
    assert reader.shipped == {names(log)[-1]: 3}
    fill(log, "bbbbbbbbbbbb", 5)
    owner.drain()
    compactor.compact(owner)
    reader.drain()
    assert pages(reader.fold.state) == pages(owner.fold.state) == pages(follow(log).fold.state)


def test_what_an_older_table_derived_stays_as_it_is(log: Path) -> None:
    owner, compactor = follow(log), compactor_of()
    compactor.compact(owner)
    path = log / SNAPSHOT_NAME
    content = content_of(path.read_bytes())
    for family in content["families"].values():
        family["table"] = "another"
    path.write_bytes(sealed(content))
    assert compactor.save_positions(follow(log), {"x": 1})
    assert path.read_bytes() == sealed({**content, "shipped": {"x": 1}})


def test_a_snapshot_that_was_not_taken_up_is_left_alone(log: Path) -> None:
    owner, compactor = follow(log), compactor_of()
    compactor.compact(owner)
    path = log / SNAPSHOT_NAME
    # Somebody put a good one in its place.
    os.utime(path, (0, 0))
    before = path.read_bytes()
    assert not compactor.save_positions(owner, {"x": 1})
    path.write_bytes(b"junk")
    owner.drain()
    assert owner.snapshot_trouble
    assert not compactor.save_positions(owner, {"x": 1})
    assert path.read_bytes() == b"junk"
    path.write_bytes(before)
    owner.drain()
    assert compactor.save_positions(owner, {"x": 1})
    assert snapshot_in(log).shipped == {"x": 1}


def test_positions_that_cannot_be_written_are_logged_once(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [time.time()]
    follower, compactor = follow(log), Compactor(10**6, 10**9, clock=lambda: now[0])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        for _ in range(3):
            assert not compactor.save_positions(follower, {"x": 1})
            now[0] += 10
    assert len(caplog.records) == 1
    assert "No space left" in compactor.trouble
    assert not (log / SNAPSHOT_NAME).exists()
    assert compactor.save_positions(follower, {"x": 1})


def test_what_was_not_shipped_goes_only_as_far_as_writers_need_room(log: Path) -> None:
    total = sum((log / name).stat().st_size for name in names(log))
    each = total / 10
    follower = follow(log)
    # Crowded from the middle between the two bounds on: here above six segments and a half.
    now = [time.time()]
    compactor = Compactor(int(2 * each), int(11 * each), min_age=0, clock=lambda: now[0])
    compactor.compact(follower, released=lambda _: False)
    assert compactor.removed == 0
    now[0] += GRACE_SECONDS
    compactor.compact(follower, released=lambda _: False)
    assert compactor.unshipped == compactor.removed == 4
    follower.drain()
    compactor.compact(follower, released=lambda segment: segment.name.n != 9)
    assert compactor.unshipped == 4
    assert names(log) == ["events-aaaaaaaaaaaa-9.jsonl"]
