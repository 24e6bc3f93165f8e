"""No acknowledged event is lost or counts twice, when ranks and exporter are killed at random."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support
from tests.support.books import all_gone, books_close
from tests.support.crashing import Crashes
from tests.support.pages import replayed

#: How long ranks and exporter are killed; `make test-thorough` asks for a minute.
SECONDS = float(os.environ.get("CRASH_SECONDS", "20"))

SEED = int(os.environ.get("CRASH_SEED", "20260101"))


@pytest.fixture
def crashes(tmp_path: Path) -> Iterator[Crashes]:
    made = Crashes(tmp_path, seed=SEED)
    yield made
    made.end()


@pytest.mark.long
def test_every_acknowledged_event_is_on_the_page_exactly_once(
    crashes: Crashes, spawn: support.Spawner
) -> None:
    crashes.run(SECONDS)
    last = support.wait_until(lambda: all_gone(crashes.scrape()))
    acknowledged = sum(sum(rank.read()[:3]) for rank in crashes.ranks)
    lives = sum(rank.lives for rank in crashes.ranks)
    books_close(spawn, crashes.directory, last, acknowledged, lives)
    # A restart changes nothing, and a replay says the same.
    page = crashes.exporter.derived()
    crashes.exporter.kill()
    crashes.exporter.start()
    support.wait_until(crashes.scrape)
    assert crashes.exporter.derived() == page
    assert replayed(spawn, crashes.directory) == page
    print(  # noqa: T201 - the figures of a long run
        f"{acknowledged} events acknowledged; {crashes.exporter.lives} lives of the exporter, "
        f"{lives} of ranks; {crashes.scrapes} scrapes"
    )
