"""The report of `mx-metrics check` as one object of JSON."""

from __future__ import annotations

from typing import Any

from .check_report import Report


def as_object(report: Report) -> dict[str, Any]:
    """The report as one object.

    - ``faulty``
    - ``lines`` of all files: ``all`` = ``events`` + ``met_before`` + ``rejected`` + ``foreign``
    - ``without_events``, one line an argument that names none, and what there is
    - ``unanswered_recorders``: calls of recorders that no family answers, by name
    - ``snapshots``, one a snapshot: ``path``; ``segments`` (the last one that it stands for, by
      process); totals as for a file; ``lost_ranges`` by process; ``families_lacking`` (those
      that it does not hold, since their row of the table was another); ``problem`` (why it
      cannot be used, or null)
    - ``files``, one a file: ``path``; ``events``, ``rejected`` and ``refused`` (by name or
      reason); ``lines``; ``foreign`` (those of other programs); ``not_known``; ``duplicates``;
      ``faults`` (the first 100, each with ``line``, ``kind``, ``reason``, ``detail``);
      ``problem`` (why it was not read whole, or null)
    - ``processes``, one a process: its books (``logged`` = ``folded`` + ``refused`` +
      ``skipped`` + ``rejected`` + ``lost``); ``lost_ranges`` (first and last number); ``alive``
    """
    return {
        "faulty": report.faulty,
        "lines": report.lines._asdict(),
        "without_events": report.absent,
        "unanswered_recorders": dict(report.unanswered),
        "snapshots": [
            {
                "path": snapshot.given.source.shown,
                "segments": snapshot.given.snapshot.segments,
                "events": dict(sorted(snapshot.events.items())),
                "rejected": dict(snapshot.rejected),
                "refused": dict(snapshot.refused),
                "not_known": snapshot.skipped,
                "duplicates": snapshot.duplicates,
                "lost_ranges": snapshot.lost,
                "families_lacking": snapshot.given.snapshot.changed,
                "problem": snapshot.given.problem or None,
            }
            for snapshot in report.snapshots
        ],
        "files": [
            {
                "path": file.source.shown,
                "events": dict(sorted(file.events.items())),
                "rejected": dict(file.rejected),
                "refused": dict(file.refused),
                "lines": file.tally.lines,
                "foreign": file.tally.foreign,
                "not_known": file.skipped,
                "duplicates": file.duplicates,
                "faults": [fault._asdict() for fault in file.faults],
                "problem": None if file.unreadable is None else str(file.unreadable),
            }
            for file in report.files
        ],
        "processes": [
            {
                "proc": proc,
                "logged": book.end,
                "folded": book.folded,
                "refused": book.refused,
                "skipped": book.skipped,
                "rejected": book.rejected,
                "lost": book.lost,
                "lost_ranges": book.lost_ranges(),
                "alive": proc in report.writers.alive,
            }
            for proc, book in sorted(report.state.books.items())
        ],
    }
