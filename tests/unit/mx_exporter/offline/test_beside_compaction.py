"""Replay and check beside an exporter that compacts what they read: never a wrong total."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.analysis import check
from mx_exporter.cli import check as check_command
from mx_exporter.cli import replay
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import generations
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower, StartOver
from mx_exporter.errors import MxError
from mx_exporter.offline import fold_logs, inputs, read_sources, sources
from mx_exporter.offline.engines import process_pool
from mx_log.files import SNAPSHOT_NAME
from tests.support import ROOT, Spawner, wait_until
from tests.support.folding import derived_page, replayed_page
from tests.support.load_logs import ranks


class Owner:
    """Compacts a few segments more each time it is asked to."""

    def __init__(self, directory: Path) -> None:
        self.follower = Follower(str(directory), Fold(CATALOG))
        self.follower.drain()
        self.compactions = 0

    def compact(self) -> None:
        most = max(0, len(self.follower.segments) - 1)
        compactor = Compactor(10**9, 2 * 10**9, min_age=0, max_segments=most)
        compactor.compact(self.follower)
        assert (compactor.compactions, compactor.trouble) == (1, "")
        self.compactions += 1


def page(directory: Path, jobs: int = 1) -> bytes:
    return generations.retry_overtaken(lambda: replayed_page(directory, jobs=jobs))


def before(real: Callable[..., Any], act: Callable[[], None], times: int) -> Callable[..., Any]:
    """``real``, with ``act`` done before each of the first calls."""
    left = [times]

    def call(*given: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            act()
        return real(*given, **options)

    return call


#: Where a compaction can come between the steps of a reader.
MOMENTS: dict[str, tuple[Any, str]] = {
    "between marking and listing": (sources, "ours_in"),
    "between listing and the snapshot": (inputs, "_read_snapshots"),
    "between the snapshot and the locks": (inputs, "survey"),
    "before a segment is opened": (read_sources, "files"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("compacted", [False, True], ids=["first", "again"])
def test_a_replay_that_is_overtaken_starts_over(
    moment: str, compacted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path, processes=4, segments=6, end=False)
    right = page(tmp_path)
    owner = Owner(tmp_path)
    if compacted:
        owner.compact()
    done = owner.compactions
    where, name = MOMENTS[moment]
    monkeypatch.setattr(where, name, before(getattr(where, name), owner.compact, 3))
    assert page(tmp_path) == right
    assert owner.compactions == done + 3


@pytest.mark.parametrize(
    ("where", "name"), [(inputs, "_read_snapshots"), (inputs, "survey"), (check, "files")]
)
def test_a_check_that_is_overtaken_starts_over(
    where: Any,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ranks(tmp_path, processes=4, segments=6)
    owner = Owner(tmp_path)
    events = owner.follower.fold.state.logged
    monkeypatch.setattr(where, name, before(getattr(where, name), owner.compact, 2))
    assert check_command.run((str(tmp_path),)) == 0
    assert owner.compactions == 2
    report = capfd.readouterr().out.splitlines()
    assert report[-1].endswith(
        f" and 1 snapshot, {events} events of 4 processes: nothing is faulty"
    )


def test_a_worker_that_is_overtaken_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path, processes=4, segments=6, end=False)
    right = page(tmp_path)
    owner = Owner(tmp_path)
    real, used = fold_logs._spread, []

    def compact_then_spread(*given: Any) -> Any:
        used.append(1)
        if len(used) < 3:
            owner.compact()
        return real(*given)

    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    monkeypatch.setattr(fold_logs, "_spread", compact_then_spread)
    assert page(tmp_path, jobs=2) == right
    assert len(used) == 3


def test_a_segment_that_somebody_removed_is_told_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    paths = ranks(tmp_path, processes=2)
    Owner(tmp_path).compact()
    path = next(path for path in paths if path.exists())
    monkeypatch.setattr(read_sources, "files", before(read_sources.files, path.unlink, 1))
    assert replay.run((str(tmp_path),)) == 0
    said = capfdbinary.readouterr().err.decode().splitlines()
    assert said[0] == f"mx-metrics: {path}: cannot be opened: No such file or directory"


def test_a_directory_that_never_rests_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path)
    Owner(tmp_path).compact()
    path = tmp_path / SNAPSHOT_NAME
    times = iter(range(1, 10**6))
    touch = lambda: os.utime(path, (0, next(times)))  # noqa: E731
    monkeypatch.setattr(inputs, "survey", before(inputs.survey, touch, 10**6))
    for command in (replay.run, check_command.run):
        with pytest.raises(MxError, match="was compacted while it was read") as caught:
            command((str(tmp_path),))
        assert str(caught.value).startswith(f"{tmp_path}: ")
        assert caught.value.exit_code == 1
    assert next(times) == 2 * generations._ATTEMPTS + 1


def test_a_new_snapshot_is_a_new_generation(tmp_path: Path) -> None:
    kept = generations.Generations()
    kept.note(str(tmp_path))
    kept.check()
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"1")
    kept.note(str(tmp_path))  # the first one counts
    with pytest.raises(StartOver, match=re.escape(str(tmp_path))):
        kept.check()
    later = generations.Generations()
    later.note(str(tmp_path))
    later.note(str(tmp_path / "nowhere"))
    later.check()
    (tmp_path / SNAPSHOT_NAME).unlink()
    with pytest.raises(StartOver):
        later.check()


# --------------------------------------------------------------------------------------
# The race itself

_OWNER = """
import fcntl, itertools, mmap, os, sys
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.follower import Follower
from mx_exporter.directory.compaction import Compactor
from tests.support import Lines

directory, counts_path = sys.argv[1:]
with open(counts_path, "r+b") as file:
    counts = memoryview(mmap.mmap(file.fileno(), 24)).cast("q")
TRIED, DONE, COMPACTIONS = range(3)
numbers = itertools.count()


class Writer:
    def __init__(self):
        self.lines, self.n, self.fd = Lines(f"{next(numbers):012x}"), 0, -1
        self.open()

    def open(self):
        name = f"events-{self.lines.proc}-{self.n}.jsonl"
        fd = os.open(f"{directory}/.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, self.lines.header(self.n))
        os.rename(f"{directory}/.{name}", f"{directory}/{name}")
        self.close()
        self.fd = fd

    def log(self):
        counts[TRIED] += 1
        os.write(self.fd, self.lines("source_attempted", policy="p", result="r"))
        counts[DONE] += 1

    def rotate(self):
        self.n += 1
        self.open()

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)


writers = [Writer() for _ in range(3)]
live = Follower(directory, Fold(CATALOG))
compactor = Compactor(1500, 10**9, min_age=0, max_segments=6)
for turn in itertools.count():
    for writer in writers:
        writer.log()
        writer.log()
        if turn % 2:
            writer.rotate()
    if turn % 10 == 9:
        writers.append(Writer())
        writers.pop(0).close()
    live.drain()
    compactor.compact(live)
    counts[COMPACTIONS] = compactor.compactions
    assert not compactor.trouble, compactor.trouble
    assert (live.fold.state.lost, live.fold.state.events["source_attempted"]) == (0, counts[DONE])
"""


@pytest.fixture
def counts(tmp_path: Path) -> Iterator[tuple[Path, memoryview]]:
    """Counts that another process keeps: events it began to log, events logged, compactions."""
    import mmap

    path = tmp_path / "counts"
    path.write_bytes(bytes(24))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 24) as shared:
        view = memoryview(shared).cast("q")
        yield path, view
        view.release()


def test_totals_beside_a_compacting_owner(
    tmp_path: Path, spawn: Spawner, counts: tuple[Path, memoryview]
) -> None:
    path, shared = counts
    log = tmp_path / "log"
    log.mkdir()
    owner = spawn.python("-c", _OWNER, log, path, env={"PYTHONPATH": str(ROOT)})
    wait_until(lambda: shared[2] > 10 or owner.poll() is not None)
    first = shared[2]
    attempts, replays, wrong = 0, 0, []

    def attempt() -> Any:
        nonlocal attempts
        attempts += 1
        return fold_logs.fold_logs(CATALOG, (str(log),), jobs=1)

    until = time.monotonic() + 15
    while replays < 2000 and (replays < 300 or time.monotonic() < until):
        assert owner.poll() is None, owner.error_output
        least = shared[1]
        state = generations.retry_overtaken(attempt)[2].state
        most = shared[0]
        page = derived_page(state)
        (total,) = re.findall(rb'^mx_p2p_source_attempts_total\{.*result="r".*\} (.+)$', page, re.M)
        if not least <= float(total) <= most or state.lost or state.rejected:
            wrong.append((least, total, most, state.lost, state.rejected))
        replays += 1
    assert wrong == [], f"{len(wrong)} of {replays}"
    assert shared[2] - first > 50, "the owner compacted all the while"
    assert attempts > replays, "a replay was overtaken now and then"
