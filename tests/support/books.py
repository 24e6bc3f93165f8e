"""What must hold once all ranks have ended, whoever was killed before."""

from __future__ import annotations

import json
from pathlib import Path

from tests import support
from tests.support.pages import Samples, total


def all_gone(page: Samples | None) -> Samples | None:
    """The page once no writer counts as alive: a rank whose segment was never seen with a lock is
    gone when that stayed as it is for a while."""
    return page if page and total(page, "mx_exporter_writers", state="alive") == 0 else None


def books_close(
    spawn: support.Spawner, directory: Path, last: Samples, acknowledged: int, lives: int
) -> None:
    """The books close, on the ``last`` page and by process, over rotation, compaction, restarts.

    :param acknowledged: events whose recorder returned.
    :param lives: ranks that were started; each was killed, perhaps with an event in hand.
    """
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
    checked = spawn.python("-m", "mx_exporter", "check", "--json", directory)
    assert checked.result() in (0, 3)
    report = json.loads(checked.output)
    assert sum(sum(f["rejected"].values()) for f in report["files"] + report["snapshots"]) == total(
        last, "mx_exporter_lines_rejected_total"
    )
    books = report["processes"]
    assert len(books) <= lives
    for book in books:
        met = book["folded"] + book["refused"] + book["skipped"] + book["rejected"]
        assert book["logged"] == met + book["lost"]
        assert book["lost"] == 0
    assert sum(book["logged"] for book in books) == logged
    # There was a lot to be compacted.
    snapshot = sum(report["snapshots"][0]["events"].values())
    assert snapshot > 0.5 * logged
