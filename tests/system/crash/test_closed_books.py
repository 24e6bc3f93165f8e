"""The books close over rotation, compaction and restarts, also where events are refused, skipped,
rejected and lost."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from tests import support
from tests.support import compacting, serving
from tests.support.log_lines import segments_in
from tests.support.pages import parse, total

#: What the events of one segment come to, beside its header.
FOLDED, REFUSED, SKIPPED, LOST, UNREADABLE, REJECTED = 14, 3, 2, 4, 1, 2


def write(directory: Path, proc: str, segments: int) -> None:
    """Segments of a process with something of each kind, put in place whole."""
    making = directory.parent / f"making-{proc}"
    making.mkdir()
    log = support.Lines(proc)
    for n in range(segments):
        lines = [log.header(n)]
        lines += [log("nixl_received", result="complete") for _ in range(FOLDED)]
        lines += [
            log("transfer_finished", policy="p", outcome="success", seconds=seconds)
            for seconds in (None, "soon", True)
        ]
        lines += [log("of_the_future", field=n) for _ in range(SKIPPED)]
        for _ in range(LOST - UNREADABLE):
            log.record("nixl_received", result="complete")
        lines += [log("nixl_received", result=None) for _ in range(REJECTED)]
        # Its number cannot be read, and shows as lost.
        lines.append(log("nixl_received", result="complete").replace(b"}", b"]"))
        # The last one, so that what is lost is known to be.
        lines.append(log("nixl_received", result="complete"))
        (making / f"events-{proc}-{n}.jsonl").write_bytes(b"".join(lines))
    for n in range(segments):  # in their order, as a writer makes them
        name = f"events-{proc}-{n}.jsonl"
        (making / name).rename(directory / name)
    making.rmdir()


def books(exporter: serving.Exporter) -> Counter[str]:
    page = parse(exporter.get().text)
    found = Counter(
        logged=int(total(page, "mx_exporter_events_logged_total")),
        folded=int(total(page, "mx_exporter_events_folded_total")),
        refused=int(total(page, "mx_exporter_observations_refused_total")),
        skipped=int(total(page, "mx_exporter_events_skipped_total")),
        lost=int(total(page, "mx_exporter_events_lost")),
        rejected=int(
            total(page, "mx_exporter_lines_rejected_total")
            - total(page, "mx_exporter_lines_rejected_total", reason="not_json")
        ),
    )
    assert found["logged"] == sum(
        found[kind] for kind in ("folded", "refused", "skipped", "rejected", "lost")
    )
    assert total(page, "mx_exporter_duplicates_total") == 0
    return found


def checked(spawn: support.Spawner, directory: Path) -> list[dict[str, Any]]:
    process = spawn.python("-m", "mx_exporter", "check", "--json", directory)
    assert process.result() == 3
    found: list[dict[str, Any]] = json.loads(process.output)["processes"]
    return found


def test_books_close_over_rotation_compaction_and_restarts(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    segment = {
        "logged": FOLDED + 2 + REFUSED + SKIPPED + REJECTED + LOST,
        "folded": FOLDED + 2,
        "refused": REFUSED,
        "skipped": SKIPPED,
        "rejected": REJECTED,
        "lost": LOST,
    }
    segments = 0
    exporter = compacting.start(spawn, log)
    for life, proc in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc")):
        write(log, proc, 12)
        segments += 12
        expected = Counter({kind: count * segments for kind, count in segment.items()})
        assert books(exporter) == expected
        compacting.wait_for_compaction(exporter)
        assert len(segments_in(log)) < 8
        assert books(exporter) == expected
        by_process = checked(spawn, log)
        assert len(by_process) == life + 1
        for book in by_process:
            assert {kind: book[kind] for kind in segment} == {
                kind: count * 12 for kind, count in segment.items()
            }
            assert sum(last - first + 1 for first, last in book["lost_ranges"]) == 12 * LOST
        compacting.stop(exporter, signal.SIGTERM if life % 2 else signal.SIGKILL)
        exporter = compacting.start(spawn, log)
        assert books(exporter) == expected
