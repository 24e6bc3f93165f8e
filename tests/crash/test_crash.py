"""Nothing that was acknowledged is lost or counts twice, whoever is killed when."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

import support
from crashing import Crashes, Samples, total
from keepers import derived, replayed

#: How long ranks and exporter are killed; `make soak` asks for an hour.
SECONDS = float(os.environ.get("CRASH_SECONDS", "60"))

#: Long enough to see what grows: the exporter is killed rarely, and watched.
SOAK = SECONDS >= 300

SEED = int(os.environ.get("CRASH_SEED", "20260101"))


@pytest.fixture
def crashes(tmp_path: Path) -> Iterator[Crashes]:
    # Each process that ever lived has a book, which is no leak.
    pace = {"rank_life": 20, "exporter_life": 60, "scrape_pause": 1} if SOAK else {}
    made = Crashes(tmp_path, seed=SEED, **pace)
    yield made
    made.end()


def test_every_acknowledged_event_is_on_the_page_exactly_once(
    crashes: Crashes, spawn: support.Spawner
) -> None:
    crashes.run(SECONDS)
    last = support.wait_until(crashes.scrape)
    books_close(crashes, spawn, last)
    # A restart changes nothing, and a replay says the same.
    page = crashes.exporter.page()
    crashes.exporter.kill()
    crashes.exporter.start()
    support.wait_until(crashes.scrape)
    again = crashes.exporter.page()
    assert page is not None
    assert again is not None
    assert derived(again.encode()) == derived(page.encode())
    assert replayed(spawn, crashes.directory) == derived(page.encode())
    acknowledged = sum(sum(rank.read()[:3]) for rank in crashes.ranks)
    print(  # noqa: T201 - the figures of a long run
        f"{acknowledged} events acknowledged; {crashes.exporter.lives} lives of the exporter, "
        f"{sum(rank.lives for rank in crashes.ranks)} of ranks; {crashes.scrapes} scrapes"
    )
    if SOAK:
        stays_flat(crashes)


def books_close(crashes: Crashes, spawn: support.Spawner, last: Samples) -> None:
    """On the page, and by process; over rotation, compaction and restarts."""
    lives = sum(rank.lives for rank in crashes.ranks)
    acknowledged = sum(sum(rank.read()[:3]) for rank in crashes.ranks)
    folded = total(last, "mx_exporter_events_folded_total")
    headers = sum(
        total(last, "mx_exporter_events_folded_total", event=event)
        for event in ("process_started", "segment_continued")
    )
    logged = total(last, "mx_exporter_events_logged_total")
    assert logged == folded
    assert acknowledged <= folded - headers <= acknowledged + lives
    # A kill may tear the line in hand, where it crosses a page of memory; and no other.
    assert total(last, "mx_exporter_lines_rejected_total", reason="torn") <= lives
    for name in ("observations_refused", "events_skipped", "duplicates"):
        assert total(last, f"mx_exporter_{name}_total") == 0
    assert total(last, "mx_emitter_events_dropped_total") == 0
    assert total(last, "mx_exporter_writers", state="alive") == 0
    assert total(last, "mx_loads_in_progress") == 0
    checked = spawn.python("-m", "mx_exporter", "check", "--json", crashes.directory)
    assert checked.result() in (0, 3)
    report = json.loads(checked.output)
    assert sum(sum(f["rejected"].values()) for f in report["files"] + report["snapshots"]) == total(
        last, "mx_exporter_lines_rejected_total"
    )
    books = report["processes"]
    assert len(books) <= lives
    for book in books:
        met = book["folded"] + book["refused"] + book["skipped"]
        assert book["logged"] == met + book["lost"]
        assert book["lost"] == 0
    assert sum(book["logged"] for book in books) == logged
    # There was a lot to be compacted.
    snapshot = sum(report["snapshots"][0]["events"].values())
    assert snapshot > 0.5 * logged


def stays_flat(crashes: Crashes) -> None:
    """Memory, descriptors and the time of a scrape, of exporters that have settled."""
    settled = [vitals for vitals in crashes.vitals if vitals.age > 10]
    quarter = len(settled) // 4
    first, last = settled[:quarter], settled[-quarter:]
    for name, tolerated in (("resident", 8 << 20), ("scrape", 0.1), ("descriptors", 2)):
        before, after = (
            statistics.median(getattr(vitals, name) for vitals in part) for part in (first, last)
        )
        print(f"{name}: {before:g} in the first quarter, {after:g} in the last")  # noqa: T201
        assert after <= 1.2 * before + tolerated, name
