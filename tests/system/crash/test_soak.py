"""A long run at a steady pace: nothing grows, nothing is lost, nothing counts twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support
from tests.support.books import all_gone, books_close
from tests.support.pages import replayed, total
from tests.support.soaking import RATE, TOLERATED, Soak

#: `make soak` asks for an hour.
SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))

#: Its machine is a quiet one, so that how long things take means something.
QUIET = "SOAK_SECONDS" in os.environ


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - how it goes, and its figures


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    made = Soak(tmp_path, SECONDS, say)
    yield made
    made.end()


@pytest.mark.long
def test_nothing_grows_and_nothing_is_lost(soak: Soak, spawn: support.Spawner) -> None:
    soak.run()
    last = support.wait_until(lambda: all_gone(soak.scrape()))
    acknowledged = soak.acknowledged
    say(
        f"{acknowledged} events in {soak.seconds:.0f} s, {acknowledged / soak.seconds:.0f}/s; "
        f"{soak.lives} lives of ranks; "
        f"{total(last, 'mx_exporter_compactions_total'):.0f} compactions, "
        f"{total(last, 'mx_exporter_segments_archived_total'):.0f} segments archived; "
        f"the exporter used {soak.cpu_seconds / soak.seconds:.1%} of a core"
    )
    quarters = soak.quarters()
    for name, (before, after) in quarters.items():
        say(f"{name}: {before:.6g} in the first quarter, {after:.6g} in the last")

    books_close(spawn, soak.directory, last, acknowledged, soak.lives)
    # A restart changes nothing, and a replay says the same: of what the exporter kept, and of all
    # that was ever logged.
    page = soak.exporter.derived()
    soak.exporter.kill()
    soak.exporter.start()
    support.wait_until(soak.exporter.page)
    assert soak.exporter.derived() == page
    soak.exporter.kill()
    assert replayed(spawn, soak.directory, limit=900) == page
    assert replayed(spawn, soak.archive, *soak.directory.glob("events-*.jsonl"), limit=900) == page

    if QUIET:
        assert acknowledged / soak.seconds >= 0.95 * RATE
    for name, (before, after) in quarters.items():
        tolerated = TOLERATED[name]
        # On a busy machine the exporter now and then has much to read at once.
        more = tolerated.more * (1 if QUIET else 4)
        if QUIET or name != "scrape_seconds":
            assert after <= (1 + tolerated.share) * before + more, name
