"""The loads that an exporter keeps: the same as all events would give, within bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mx_demo.fleet import write_fleet
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.loads.model import Load
from mx_exporter.loads.recent import OVERHEAD, RecentLoads
from mx_exporter.loads.timeline import Timeline
from tests import support
from tests.support.load_logs import loads as load_lines
from tests.support.load_logs import ranks

NOW = "2031-01-01T00:00:00.000000Z"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[list[bytes]]:
    """Logs of a fleet, and of ranks whose loads have events between them that name no load: a list
    of lines a segment."""
    out = tmp_path_factory.mktemp("fleet")
    write_fleet(out, 8, start=1_700_000_000.0)
    ranks(out / "ranks", end=False)
    return [path.read_bytes().splitlines() for path in sorted(out.rglob("*.jsonl"))]


def told(recent: RecentLoads, fold: Fold) -> list[Load]:
    return recent.take(fold.state.books).tell(NOW)


def fold_all(recent: RecentLoads, logs: list[list[bytes]], *, gone: bool = True) -> Fold:
    fold = Fold(CATALOG, tap=recent.feed)
    for lines in logs:
        fold.feed_lines(lines)
    if gone:
        for proc in fold.state.books.alive():
            fold.writer_gone(proc)
    return fold


def by_timeline(logs: list[list[bytes]]) -> list[Load]:
    timeline = Timeline()
    found = [load for lines in logs for load in timeline.feed(CATALOG.decoder.decode(lines))]
    gone = {load.process.proc for load in found} | set(timeline.tracks)
    found += timeline.finish(set(), gone)
    return sorted(found, key=lambda load: (load.began, load.process.proc, load.first_seq))


def test_they_are_what_all_events_give(logs: list[list[bytes]]) -> None:
    recent = RecentLoads()
    fold = fold_all(recent, logs)
    expected = by_timeline(logs)
    assert {load.outcome for load in expected} == {"success", "killed"}
    assert told(recent, fold) == expected
    # As after starting over from another snapshot.
    for lines in logs[::-1]:
        fold.feed_lines(lines)
    assert told(recent, fold) == expected


def test_one_that_runs_goes_up_to_now(logs: list[list[bytes]]) -> None:
    recent = RecentLoads()
    fold = fold_all(recent, logs, gone=False)
    running = [load for load in told(recent, fold) if load.outcome == "running"]
    assert running
    assert {load.last for load in running} == {NOW}
    assert all(load.elapsed > 1e6 for load in running)


@pytest.mark.parametrize("limits", [(3, 2, 10**9), (200, 2000, 60_000), (200, 2000, 0)])
def test_the_oldest_go_first(logs: list[list[bytes]], limits: tuple[int, int, int]) -> None:
    recent = RecentLoads(*limits)
    fold = fold_all(recent, logs)
    taken, whole = recent.take(fold.state.books), by_timeline(logs)
    kept = taken.tell(NOW)
    assert len(kept) + taken.before == len(whole)
    assert len(kept) <= limits[0]
    size = sum(len(line) + OVERHEAD for lines in logs for line in lines)
    assert bool(taken.before) == (limits[2] < size or limits[0] < len(whole))
    assert all(load in whole for load in kept)


def test_events_of_a_megabyte_are_bounded_by_bytes() -> None:
    log, recent = support.Lines(), RecentLoads(most_bytes=4_000_000)
    fold = Fold(CATALOG, tap=recent.feed)
    fold.feed_lines([log.header(0)])
    for number in range(10):
        common: dict[str, Any] = {"engine": "x" * 900_000, "model": None, "load_id": f"l{number}"}
        fold.feed_lines([log("load_started", model_role="main", **common)])
    kept = told(recent, fold)
    assert [load.load_id for load in kept] == ["l6", "l7", "l8", "l9"]


def test_of_a_load_whose_begin_only_a_snapshot_has_the_rest_is_told() -> None:
    log = support.Lines()
    head = log.header(0)
    start, *rest = load_lines(log, 1, random.Random(1), end=False)
    before, recent = Fold(CATALOG), RecentLoads()
    before.feed_lines([head, start])
    fold = Fold(CATALOG, before.state, tap=recent.feed)
    fold.feed_lines(rest)
    (load,) = told(recent, fold)
    assert load.outcome == "running"
    assert load.missing >= 1
    assert load.load_id == "aaaaaaaaaaaa-1"


def test_a_process_that_the_books_lost_is_gone() -> None:
    log, recent = support.Lines(), RecentLoads()
    fold = Fold(CATALOG, tap=recent.feed)
    fold.feed_lines([log.header(0), *load_lines(log, 1, random.Random(1), end=False)])
    (load,) = recent.take({}).tell(NOW)
    assert load.outcome == "killed"


def test_what_comes_after_the_end_of_a_forgotten_load_is_none() -> None:
    log, recent = support.Lines(), RecentLoads(most_over=1)
    fold = Fold(CATALOG, tap=recent.feed)
    fold.feed_lines([log.header(0)])
    for load_id in ("one", "two"):
        common = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": load_id}
        fold.feed_lines([log("load_started", **common)])
        fold.feed_lines([log("load_finished", outcome="success", seconds=1.0, **common)])
    fold.feed_lines([log("log_recorded", load_id="one", message="late")])
    fold.feed_lines([log("log_recorded", load_id="two", message="late, too")])
    kept = told(recent, fold)
    assert [(load.load_id, load.outcome) for load in kept] == [("two", "success")]
    assert recent.take(fold.state.books).before == 1


def test_a_duration_alone_is_a_load() -> None:
    log, recent = support.Lines(), RecentLoads()
    fold = Fold(CATALOG, tap=recent.feed)
    fold.feed_lines([log.header(0, pod_name="pod-7")])
    fields = {"engine": "vllm", "model": "m", "model_role": "main", "timed": False}
    for seconds in (3.0, 4.0):
        fold.feed_lines([log("load_finished", outcome="success", seconds=seconds, **fields)])
    kept = told(recent, fold)
    assert [(load.seconds, load.process.pod) for load in kept] == [(3.0, "pod-7"), (4.0, "pod-7")]
