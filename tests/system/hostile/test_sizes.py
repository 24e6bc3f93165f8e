"""Directories and files far beyond what an exporter was made for, read by a real one."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.follower import Follower
from mx_log.schema import MAX_LINE_BYTES
from tests import support
from tests.support import Lines, serving
from tests.support.writers import Writer

LOGGED = "mx_exporter_events_logged_total"
OPEN = 'mx_exporter_segments{state="open"}'
SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'
TOO_LONG = 'mx_exporter_lines_rejected_total{reason="too_long"}'

#: Memory, in bytes, that reading a huge file may cost beyond what the exporter takes anyway.
FEW_BYTES = 24 * 1024 * 1024


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Path]:
    """A directory for thousands of files, which goes with the test."""
    place = tmp_path / "crowd"
    place.mkdir()
    yield place
    shutil.rmtree(place, ignore_errors=True)  # an exporter may still write there


def fill(directory: Path, first: int, count: int, **header: object) -> None:
    """Segments of so many processes, with a header and an attempt each; they appear whole."""
    lines = Lines()
    text = lines.header(**header)
    text += lines("source_attempted", policy="policy-0", result="success")
    for number in range(first, first + count):
        proc = f"{number:012x}"
        made = directory / f".events-{proc}-0.jsonl"
        made.write_bytes(text.replace(b"aaaaaaaaaaaa", proc.encode()))
        os.utime(made, (1, 1))
        made.rename(directory / made.name[1:])


def test_20000_segments_and_256_descriptors(spawn: support.Spawner, crowd: Path) -> None:
    fill(crowd, 0, 20_000)
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 256))
    exporter = serving.start(spawn, crowd, preexec_fn=few)
    page = exporter.get()
    assert page.sample(LOGGED) == 40_000
    assert page.sample(SUCCESS) == 20_000
    assert page.sample('mx_exporter_writers{state="gone"}') == 20_000

    with Writer(crowd, "f" * 12) as writer:
        for round_ in range(3):
            fill(crowd, 20_000 + 100 * round_, 100)
            writer.log(policy="policy-0")
            page = exporter.get()
            assert page.sample(SUCCESS) == 20_000 + 101 * (round_ + 1)
            support.wait_until(lambda: exporter.get().sample(OPEN) == 1)
        page = exporter.get()
        # What was read whole is listed, and neither opened nor looked at.
        assert page.sample("mx_exporter_last_drain_seconds") < support.SOON
    assert page.sample("mx_exporter_events_lost") == 0


@pytest.mark.long
def test_as_many_segments_where_nobody_can_lock(crowd: Path) -> None:
    """Each newest one may still grow, and is looked at again by every drain."""
    fill(crowd, 0, 20_000, locked=False)
    follower = Follower(str(crowd), Fold(CATALOG))
    for _ in range(2):
        follower.drain()
        assert follower.fold.state.logged == 40_000
        assert follower.writers_alive == 20_000


def peak(exporter: serving.Exporter) -> int:
    """The most memory that the process ever had, in bytes. Its own: the usage that the kernel
    counts for a child begins with its parent's."""
    status = Path(f"/proc/{exporter.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_a_sparse_file_of_2_gib(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 3)
    exporter = serving.start(spawn, tmp_path)
    assert exporter.get().sample(SUCCESS) == 3
    before = peak(exporter)
    path = tmp_path / ".events-bbbbbbbbbbbb-0.jsonl"
    with path.open("wb") as file:
        file.truncate(2 * 1024**3)
        file.seek(0, 2)
        # A line cannot be longer than 1 MiB, whatever of it is zeros.
        file.write(Lines("b" * 12)("source_attempted", policy="policy-0", result="success"))
        file.write(Lines("b" * 12)("source_attempted", policy="policy-0", result="success"))
    path.rename(tmp_path / path.name[1:])
    page = exporter.get(limit=120)
    assert page.sample(SUCCESS) == 4
    assert page.sample(TOO_LONG) == 1
    assert page.sample("mx_exporter_unread_bytes") == 0
    assert peak(exporter) - before < FEW_BYTES


def test_a_line_of_50_mb(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 3)
    exporter = serving.start(spawn, tmp_path)
    exporter.get()
    before = peak(exporter)
    with Writer(tmp_path, "b" * 12) as writer:
        writer.write(b'{"event":"' + b"x" * 25_000_000)
        assert exporter.get().sample(SUCCESS) == 3
        writer.write(b"x" * 25_000_000 + b'"}\n')
        writer.log(policy="policy-0")
        page = exporter.get()
    assert page.sample(SUCCESS) == 4
    assert page.sample(TOO_LONG) == 1
    assert peak(exporter) - before < FEW_BYTES


def test_zeros_that_a_crash_left_before_a_good_line(tmp_path: Path) -> None:
    """Up to the limit the line is recovered; nothing is lost, and nothing is rejected."""
    line = Lines()("source_attempted", policy="policy-0", result="success")
    fitting = MAX_LINE_BYTES - len(line)
    for proc, zeros in (("a", 1), ("b", 4096), ("c", fitting), ("d", fitting + 1)):
        text = line.replace(b"a" * 12, proc.encode() * 12)
        (tmp_path / f"events-{proc * 12}-0.jsonl").write_bytes(b"\0" * zeros + text + text)
    follower = Follower(str(tmp_path), Fold(CATALOG))
    follower.drain()
    assert follower.fold.state.events["source_attempted"] == 4
    assert follower.fold.state.duplicates == 3
    assert follower.fold.state.rejected == {"too_long": 1}


def test_a_file_that_went_through_other_systems(tmp_path: Path) -> None:
    """A byte order mark before the first line, carriage returns behind each, blank lines."""
    lines = Lines()
    path = lines.segment(
        tmp_path, 0, [("source_attempted", {"policy": "p", "result": "success"})] * 3
    )
    text = path.read_bytes().replace(b"\n", b"\r\n\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text)
    follower = Follower(str(tmp_path), Fold(CATALOG))
    follower.drain()
    assert follower.fold.state.events["source_attempted"] == 3
    assert follower.fold.state.logged == 4
    assert not follower.fold.state.rejected
