"""An owner that compacts and is restarted loses nothing and counts nothing twice."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from mx_log.files import SNAPSHOT_NAME
from tests import support
from tests.support.compacting import (
    all_done,
    directory_size,
    fill,
    start,
    start_ranks,
    stop,
    wait_for_compaction,
)
from tests.support.log_lines import segments_in, size_of
from tests.support.pages import Samples, counters, replayed


def test_a_restart_after_compactions_gives_the_same_bytes(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    exporter = start(spawn, log)
    ranks = start_ranks(spawn, log, 3, loops=400)
    support.wait_until(lambda: len(ranks[0].output) + len(segments_in(log)) > 3)
    ranks[0].send_signal(signal.SIGKILL)
    ranks[0].result()
    support.wait_until(lambda: all_done(ranks[1:]), limit=60)
    wait_for_compaction(exporter)
    for number, how in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)):
        before = exporter.derived()
        assert b"mx_p2p_transfer_seconds_bucket" in before
        stop(exporter, how)
        exporter = start(spawn, log)
        assert exporter.derived() == before
        # More is logged between the restarts, and compacted.
        fill(log, f"{number:012x}", 8)
        wait_for_compaction(exporter)


def test_a_small_retention_beside_ranks_that_write(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    exporter = start(spawn, log)
    ranks = start_ranks(spawn, log, 4, loops=500)
    last: Samples = {}
    exporters = 1
    while not all_done(ranks):
        found = counters(exporter.derived())
        assert all(found[key] >= value for key, value in last.items())
        last = found
        if exporters < 4:
            exporters += 1
            stop(exporter, signal.SIGKILL)
            exporter = start(spawn, log)
    for rank in ranks:
        rank.end()
    answer = exporter.get()
    name = 'mx_p2p_list_sources_total{{policy="random",result="{}",scheme=""}}'
    assert answer.sample(name.format("ok")) == 4 * 333
    assert answer.sample(name.format("empty")) == 4 * 167
    assert answer.sample('mx_exporter_events_folded_total{event="transfer_finished"}') == 4 * 500
    assert answer.sample("mx_exporter_events_lost") == 0
    assert answer.sample("mx_exporter_duplicates_total") == 0
    support.wait_until(lambda: size_of(log) <= 20000)
    assert (log / SNAPSHOT_NAME).exists()
    assert directory_size(log) < 100_000
    assert exporter.derived() == exporter.derived()


ARCHIVE = "mx_exporter_segments_archived_total"


def test_the_archive_gets_each_segment_once_and_replays_to_the_page(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log, archive = tmp_path / "log", tmp_path / "archive"
    archive.mkdir()
    ranks = start_ranks(spawn, log, 3, loops=500)
    seen: dict[str, tuple[int, int]] = {}

    def look() -> int:
        """Files of the archive never change once they are there."""
        for path in archive.glob("events-*.gz"):
            status = path.stat()
            assert seen.setdefault(path.name, (status.st_ino, status.st_mtime_ns)) == (
                status.st_ino,
                status.st_mtime_ns,
            )
        return len(seen)

    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        exporter = start(spawn, log, "--archive-dir", str(archive))
        before = look()
        support.wait_until(lambda before=before: look() > before or all_done(ranks))
        stop(exporter, how)
        look()
    exporter = start(spawn, log, "--archive-dir", str(archive))
    support.wait_until(lambda: all_done(ranks), limit=60)
    written = {f"{name}.gz" for name in segments_in(log)}
    for rank in ranks:
        rank.end()
    support.wait_until(
        lambda: (
            exporter.derived()
            and exporter.get().sample("mx_exporter_segments_pending") == 0
            and written <= {path.name for path in archive.iterdir()}
        )
    )
    look()
    assert exporter.get().sample("mx_exporter_compactions_total") > 0
    assert exporter.get().sample("mx_exporter_unshipped_segments_total") == 0
    assert len(seen) > 3 * 30
    assert not list(archive.glob(".*"))
    assert replayed(spawn, archive) == exporter.derived()


@pytest.mark.long
def test_segments_wait_for_the_archive_while_there_is_room(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log, archive, made = tmp_path / "log", tmp_path / "archive", tmp_path / "made"
    archive.mkdir()
    log.mkdir()
    env = {"MX_METRICS_MAX_BYTES": "200000"}
    exporter = start(spawn, log, "--archive-dir", str(archive), env=env)
    archive.rmdir()
    fill(made, "aaaaaaaaaaaa", 40)
    for path in made.iterdir():
        path.rename(log / path.name)
    # It is not there any more: what has no room goes without, the rest waits.
    unshipped = "mx_exporter_unshipped_segments_total"
    support.wait_until(lambda: exporter.get().sample(unshipped) and directory_size(log) <= 110_000)
    answer = exporter.get()
    lost = answer.sample(unshipped)
    assert answer.sample("mx_exporter_segments_pending") == 40 - lost
    assert directory_size(log) > 100_000
    assert exporter.get().sample('mx_exporter_shipping_failures_total{to="archive"}') > 0
    archive.mkdir()
    support.wait_until(lambda: len(list(archive.iterdir())) == 40 - lost)
    support.wait_until(lambda: len(segments_in(log)) < 8)
    answer = exporter.get()
    assert answer.sample(unshipped) == lost
    assert answer.sample(ARCHIVE) == 40 - lost
    assert (
        answer.sample('mx_p2p_source_attempts_total{policy="random",result="success",scheme=""}')
        == 800
    )
    assert exporter.log.count("was not archived") == 1
    assert exporter.log.count("before it was shipped") == 1


def test_the_page_with_all_of_this_passes_promtool(
    spawn: support.Spawner, tmp_path: Path, promtool: str
) -> None:
    log, archive = tmp_path / "log", tmp_path / "archive"
    archive.mkdir()
    fill(log, "aaaaaaaaaaaa", 20)
    exporter = start(spawn, log, "--tee", "--archive-dir", str(archive))
    wait_for_compaction(exporter)
    page = exporter.get()
    assert page.sample("mx_exporter_lines_teed_total") == 20 * 21
    assert page.sample("mx_exporter_segments_removed_total") > 10
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page.body, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
    kept = f"owner (compacts, tees, archives in {archive})<"
    assert kept in exporter.get("/status").text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--archive-dir", "{log}"), "is the directory of the segments"),
        (("--archive-dir", "{log}/../log/"), "is the directory of the segments"),
        (("--archive-dir", "{log}/events-aaaaaaaaaaaa-0.jsonl"), "is not a directory"),
        (("--archive-dir", "{log}/none"), "/none does not exist; make it, or mount"),
        (("--archive-dir", ""), "--archive-dir: bad value ''"),
        (("--retain-seconds", "-1"), "--retain-seconds: bad value '-1'"),
        (("--retain-seconds", "nan"), "expected a number of seconds"),
        (("--retain-seconds", "inf"), "expected a number of seconds"),
    ],
)
def test_invalid_bounds_are_a_usage_error(
    spawn: support.Spawner, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    log = tmp_path / "log"
    fill(log, "aaaaaaaaaaaa", 1)
    given = [option.format(log=log) for option in options]
    process = spawn.python("-m", "mx_exporter", "serve", "--dir", log, *given)
    assert process.result() == 2
    assert said in process.error_output
    assert process.error_output.count("\n") == 1
