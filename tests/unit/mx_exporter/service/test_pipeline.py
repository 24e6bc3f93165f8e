"""What a scrape costs, in counts; seconds would differ between machines."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.process_collector import ProcessCollector

from mx_exporter.config import Directory, Settings
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.load_tracker import Loads
from mx_exporter.directory.follower import Follower
from mx_exporter.directory.maintenance import Maintenance
from mx_exporter.directory.scan import Scan
from mx_exporter.exposition import fold_metrics, text
from mx_exporter.exposition.samples import Collector, derived_collectors, derived_families
from mx_exporter.offline.fold_logs import fold_logs
from mx_exporter.service import pipeline as pipeline_module
from mx_exporter.service.pipeline import Pipeline
from tests.support import Lines, wait_until
from tests.support.pages import parse
from tests.support.writers import Writer

_OPENING = {"open", "os.listdir", "os.scandir"}

_opened: list[list[str]] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _opened and event in _OPENING:
        _opened[-1].append(str(arguments[0]))


@contextmanager
def opened() -> Iterator[list[str]]:
    """What this process opens or lists meanwhile."""
    _opened.append([])
    try:
        yield _opened[-1]
    finally:
        _opened.pop()


@pytest.fixture(scope="module", autouse=True)
def _audited() -> None:
    sys.addaudithook(_note)  # for as long as the process lives


@pytest.fixture(autouse=True)
def _settles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments without a lock are finished at the first look."""
    monkeypatch.setattr("mx_exporter.service.pipeline.SETTLE_SECONDS", 0.0)


@contextmanager
def pipeline(
    directory: Path,
    *,
    with_ids: bool = False,
    max_series: int = 50,
    clock: Callable[[], float] = time.time,
    grace_seconds: float = 0.0,
    **more: Any,
) -> Iterator[Pipeline]:
    settings = Settings(
        directory=Directory(str(directory), named=True),
        source_id_label=with_ids,
        max_series=max_series,
        **more,
    )
    running = Pipeline(
        CATALOG,
        settings,
        Maintenance(CATALOG, settings),
        lambda: None,
        clock,
        grace_seconds=grace_seconds,
    )
    try:
        running.drain(None)
        yield running
    finally:
        running.close()


def finished(directory: Path, count: int) -> None:
    """So many processes that logged, and are gone."""
    directory.mkdir()
    for n in range(count):
        attempt = ("source_attempted", {"policy": "random", "result": "success"})
        Lines(f"{n:012x}").segment(directory, 0, [attempt])


def test_a_start_says_what_it_found_and_what_it_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log = tmp_path / "log"

    def found(**retention: float) -> str:
        caplog.clear()
        with pipeline(log, **retention):
            (message,) = [each for each in caplog.messages if each.startswith("found ")]
        return message

    finished(log, 1)
    assert found() == "found 1 segment"
    finished(tmp_path / "more", 3)
    for path in (tmp_path / "more").iterdir():
        path.rename(log / path.name)
    assert found() == "found 3 segments"
    size = max(path.stat().st_size for path in log.glob("events-*"))
    some = found(retain_seconds=0, retain_bytes=2 * size + 1)
    assert re.fullmatch("found 3 segments, of which [12] went into the snapshot", some)
    for path in log.glob("*"):
        path.unlink()
    shutil.rmtree(log)
    finished(log, 2)
    all_ = found(retain_seconds=0, retain_bytes=1)
    assert all_ == "found 2 segments, of which all went into the snapshot"
    assert found().startswith("found no segment but the snapshot of earlier ones")


def test_a_segment_that_waits_for_its_second_look_gets_it_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing notifies the exporter that nothing changes any more."""
    monkeypatch.setattr("mx_exporter.service.pipeline.SETTLE_SECONDS", 0.5)
    with pipeline(tmp_path) as running:
        assert running.period() >= 1.0
        Lines().segment(tmp_path, 0, [])
        running.drain(None)
        assert 0.5 <= running.period() < 1.0
        running.settle_at_once()
        running.drain(None)
        assert running.period() >= 1.0


def test_a_process_that_may_be_gone_is_looked_at_when_its_grace_is_over(tmp_path: Path) -> None:
    """Though nobody scrapes, and nothing changes any more."""
    with pipeline(tmp_path, grace_seconds=0.5) as running:
        with Writer(tmp_path):
            running.drain(None)
            assert running.period() >= 1.0
        running.drain(None)
        assert 0.4 < running.period() <= 0.5
        running.settle_at_once()
        running.drain(None)
        assert running.period() >= 1.0


def test_files_opened_where_nothing_changed(tmp_path: Path) -> None:
    counts = []
    for count in (1, 10, 200):
        directory = tmp_path / str(count)
        finished(directory, count)
        with pipeline(directory) as running:
            running.page(False)
            with opened() as names:
                assert running.drain(None)
                running.page(False)
        counts.append(len(names))
        assert not [name for name in names if name.startswith("events-")]
    assert counts[0] == counts[1] == counts[2] <= 10, names


def test_files_opened_for_one_event(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    finished(directory, 100)
    with Writer(directory) as writer, pipeline(directory) as running:
        running.drain(None)
        writer.log()
        with opened() as names:
            assert running.drain(None)
        assert len([name for name in names if name.startswith("events-")]) == 1


def folded_again(running: Pipeline, *, with_ids: bool, openmetrics: bool) -> bytes:
    """The part of the page that the fold alone tells, made from scratch."""
    fold = follower(running).fold
    options: dict[str, Any] = {"source_id_label": with_ids, "max_series": 50}
    collectors = [
        *derived_collectors(fold.catalog, fold.state, **options),
        *fold_metrics.fold_collectors(fold.catalog, fold.state, **options),
    ]
    families = [family for collector in collectors for family in collector.collect()]
    return text.render(families, openmetrics=openmetrics).removesuffix(b"# EOF\n")


def follower(running: Pipeline) -> Follower:
    return running._follower


@pytest.mark.parametrize("with_ids", [False, True])
def test_what_is_kept_of_the_page_is_never_old(tmp_path: Path, with_ids: bool) -> None:
    tmp_path = tmp_path / "log"
    tmp_path.mkdir()

    with pipeline(tmp_path, with_ids=with_ids) as running:

        def changed() -> bool:
            """Whether a drain changed the page, which is right in any case."""
            running.drain(None)
            pages = []
            for openmetrics in (False, True):
                page = running.page(openmetrics)
                made = folded_again(running, with_ids=with_ids, openmetrics=openmetrics)
                assert page.startswith(made)
                assert page.endswith(b"# EOF\n") == openmetrics
                assert page.count(b"# EOF\n") == openmetrics
                pages.append(made)
            new = pages != shown[-1]
            shown.append(pages)
            return new

        shown: list[list[bytes]] = [[]]
        assert changed()
        with Writer(tmp_path) as writer:
            assert changed()
            assert not changed()
            for event, fields in (
                ("source_attempted", {"policy": "random", "result": "success"}),
                ("source_selected", {"policy": "random", "source_worker_id": "w"}),
                ("source_attempted", {"policy": 7, "result": "success"}),
                ("unknown_event", {}),
                ("transfer_finished", {"policy": "p", "outcome": "success", "seconds": "x"}),
                ("load_started", {"engine": "vllm", "model": "m", "load_id": "1"}),
            ):
                writer.write(writer.lines(event, **fields))
                assert changed(), event
                assert not changed(), event
            # The next number, twice.
            line = writer.lines("source_attempted", policy="random", result="success")
            for _ in range(2):
                writer.write(line)
                assert changed()
            writer.write(b"no event\n")
            assert changed()
            for n in range(60):
                writer.write(writer.lines("source_attempted", policy=f"p{n}", result="success"))
            assert changed()
            writer.write(writer.lines("source_attempted", policy="past the cap", result="success"))
            assert changed()
            writer.rotate()
            writer.write(b"torn")
            changed()
        # The load was abandoned, and the line without end is torn.
        assert changed()
        assert not changed()


def test_a_restart_and_a_replay_show_the_series_that_were_shown(tmp_path: Path) -> None:
    """Though they read the younger process first, whose id is smaller; also from a snapshot."""
    directory = tmp_path / "log"
    directory.mkdir()
    old, young = Lines("bbbbbbbbbbbb"), Lines("aaaaaaaaaaaa", start=Lines.START + 60)
    with pipeline(directory, max_series=6) as running:
        for log, name in ((old, "x-old"), (young, "a-young")):
            events = [
                ("source_attempted", {"policy": f"{name}-{n}", "result": "success"})
                for n in range(5)
            ]
            log.segment(directory, 0, events)
            running.drain(None)
        shown = derived(running.page(True))
    assert b'policy="x-old-1"' in shown
    more: dict[str, Any]
    for more in ({}, {"retain_bytes": 1, "retain_seconds": 0.0}):
        with pipeline(directory, max_series=6, **more) as again:
            assert derived(again.page(True)) == shown
    assert not list(directory.glob("events-*")), "nothing was compacted"
    with pipeline(directory, max_series=6) as again:
        assert derived(again.page(True)) == shown
    state = fold_logs(CATALOG, (str(directory),), max_series=6).outcome.state
    replayed = text.render(derived_families(CATALOG, state, max_series=6), openmetrics=True)
    assert replayed.removesuffix(b"# EOF\n") == shown


def test_all_families_of_loads_show_the_same_ones_under_a_cap(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer, pipeline(tmp_path, max_series=2) as running:
        for n in range(4):
            load = {"engine": "vllm", "model": f"m{n}", "model_role": "main", "load_id": f"l{n}"}
            writer.log("load_started", **load)
        running.drain(None)
        page = running.page(False).decode()
    for family in (
        "mx_loads_in_progress",
        "mx_loads_abandoned_total",
        "mx_exporter_oldest_load_seconds",
    ):
        lines = [line for line in page.splitlines() if line.startswith(f"{family}{{")]
        assert [f'model="m{n}"' in line for n, line in enumerate(lines)] == [True, True], family


def derived(page: bytes) -> bytes:
    """The derived families of a page in OpenMetrics."""
    return page[: page.index(b"# HELP mx_exporter_")]


def test_a_page_that_stays_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "log"
    finished(directory, 3)
    made = []

    def counted(*arguments: Any, **options: Any) -> Iterator[Collector]:
        made.append(options)
        return derived_collectors(*arguments, **options)

    monkeypatch.setattr(pipeline_module, "derived_collectors", counted)
    with Writer(directory) as writer, pipeline(directory) as running:
        for openmetrics in (False, True, False, True):
            running.drain(None)
            running.page(openmetrics)
        assert len(made) == 2
        writer.log()
        running.drain(None)
        running.page(True)
        assert len(made) == 3


def test_a_part_that_raises_costs_that_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The diagnosis is made by each drain, which goes on."""
    directory = tmp_path / "log"
    finished(directory, 1)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    with Writer(directory) as writer, pipeline(directory) as running:
        whole = running.page(True)
        monkeypatch.setattr(pipeline_module, "diagnose", broken)
        monkeypatch.setattr(ProcessCollector, "collect", broken)
        monkeypatch.setattr(Follower, "ignored", property(broken))
        writer.log()
        assert running.drain(None)
        running.page(True)
        page = running.page(True)
        left_out = {
            "mx_exporter_files_ignored",
            "mx_exporter_directory_state",
            "process",
        }
        for part in left_out:
            assert f'mx_exporter_page_failures_total{{part="{part}"}} '.encode() in page
        missing = {line for line in helps(whole) if line not in helps(page)}
        assert {name.split()[2] for name in missing if "process_" not in name} == {
            "mx_exporter_files_ignored",
            "mx_exporter_directory_state",
        }
        assert b"the directory could not be shown" in status_of(running)
        monkeypatch.undo()
        running.drain(None)
        assert helps(running.page(True)) == helps(whole)
        assert b"could not be shown" not in status_of(running)
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 5  # three parts of the page, two sections of the other


def status_of(running: Pipeline) -> bytes:
    answer = running.look().answer("/status", {})
    assert answer is not None
    return answer.body


def helps(page: bytes) -> list[str]:
    """The families of a page."""
    return [line for line in page.decode().splitlines() if line.startswith("# HELP")]


def test_segments_are_offered_for_shipping_when_there_are_others(tmp_path: Path) -> None:
    directory, archive = tmp_path / "log", tmp_path / "archive"
    finished(directory, 3)
    archive.mkdir()
    settings = Settings(directory=Directory(str(directory), named=True), archive_dir=str(archive))
    maintenance = Maintenance(CATALOG, settings)
    running = Pipeline(CATALOG, settings, maintenance, lambda: None)
    try:
        for count in (3, 4):
            running.drain(None)
            running.drain(None)
            wait_until(lambda n=count: len(list(archive.glob("events-*"))) == n)
            attempt = ("source_attempted", {"policy": "random", "result": "success"})
            Lines("ffffffffffff").segment(directory, 0, [attempt])
    finally:
        maintenance.finish_shipping(5)
        running.close()


def test_a_segment_that_was_emptied_is_shipped_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it then grows to the size that it had."""
    directory, output = tmp_path / "log", tmp_path / "output"
    directory.mkdir()
    settings = Settings(directory=Directory(str(directory), named=True), tee=True)
    with open(output, "wb") as out:
        monkeypatch.setattr(sys, "stdout", out)
        maintenance = Maintenance(CATALOG, settings)
        running = Pipeline(CATALOG, settings, maintenance, lambda: None)
        try:
            with Writer(directory) as writer:
                writer.log()
                running.drain(None)
                wait_until(lambda: output.read_bytes() == writer.path.read_bytes())
                before = output.read_bytes()
                writer.path.write_bytes(b"")
                running.drain(None)
                wait_until(lambda: not maintenance._positions())
                after = before.replace(b"random", b"rended")
                writer.write(after)
                running.drain(None)
                wait_until(lambda: output.read_bytes() == before + after)
        finally:
            maintenance.finish_shipping(5)
            running.close()


def test_a_file_that_takes_the_place_of_what_is_none(tmp_path: Path) -> None:
    """Also where the inode's number is given again."""
    segment = tmp_path / "events-aaaaaaaaaaaa-0.jsonl"
    segment.mkdir()
    seen = Scan()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert seen.refresh(folder)
        assert not seen.refresh(folder)
        assert seen.not_regular == [segment.name]
        segment.rmdir()
        segment.touch()
        seen._seen = ([segment.name], [segment.stat().st_ino])
        assert seen.refresh(folder)
        assert list(seen.segments) == [segment.name]
        assert seen.not_regular == []
        assert not seen.refresh(folder)
    finally:
        os.close(folder)


def test_a_load_that_hangs_grows_older_from_page_to_page(tmp_path: Path) -> None:
    load = {"engine": "vllm", "model": "m"}
    now = float(Lines.START)
    name = "mx_exporter_oldest_load_seconds"

    def ages(running: Pipeline) -> dict[str, float]:
        """By phase."""
        samples = parse(running.page(False).decode())
        return {dict(labels)["phase"]: v for (n, labels), v in samples.items() if n == name}

    with Writer(tmp_path) as writer, pipeline(tmp_path, clock=lambda: now) as running:
        assert ages(running) == {}
        writer.log("load_started", **load, model_role="main", load_id="l1")  # a second after START
        running.drain(None)
        assert ages(running) == {"": 0}, "another clock is behind ours"
        derived = running.page(False).partition(b"# HELP mx_exporter_")[0]
        now += 3601
        assert ages(running) == {"": 3600}
        assert running.page(False).startswith(derived)
        writer.log("load_phase_started", **load, phase="chain", load_id="l1")
        running.drain(None)
        assert ages(running) == {"": 0, "chain": 3600}
        writer.log(
            "load_finished",
            **load,
            model_role="main",
            outcome="success",
            seconds=1,
            load_id="l1",
        )
        running.drain(None)
        assert ages(running) == {"": 0, "chain": 0}


def test_the_ages_of_loads_cost_no_walk_where_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    oldest = Loads.oldest
    monkeypatch.setattr(Loads, "oldest", lambda self: walks.append(1) or oldest(self))
    finished(tmp_path / "log", 3)
    with pipeline(tmp_path / "log") as running:
        for _ in range(5):
            running.page(False)
            running.page(True)
    assert len(walks) == 1
