"""Nothing that was acknowledged is lost or counts twice, whoever is killed when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support
from tests.support.closing import books_close
from tests.support.compacting import derived, replayed
from tests.support.crashing import Crashes

#: How long ranks and exporter are killed.
SECONDS = float(os.environ.get("CRASH_SECONDS", "60"))

SEED = int(os.environ.get("CRASH_SEED", "20260101"))


@pytest.fixture
def crashes(tmp_path: Path) -> Iterator[Crashes]:
    made = Crashes(tmp_path, seed=SEED)
    yield made
    made.end()


def test_every_acknowledged_event_is_on_the_page_exactly_once(
    crashes: Crashes, spawn: support.Spawner
) -> None:
    crashes.run(SECONDS)
    last = support.wait_until(crashes.scrape)
    acknowledged = sum(sum(rank.read()[:3]) for rank in crashes.ranks)
    lives = sum(rank.lives for rank in crashes.ranks)
    books_close(spawn, crashes.directory, last, acknowledged, lives)
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
    print(  # noqa: T201 - the figures of a long run
        f"{acknowledged} events acknowledged; {crashes.exporter.lives} lives of the exporter, "
        f"{lives} of ranks; {crashes.scrapes} scrapes"
    )
