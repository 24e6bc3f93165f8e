"""Whether logs are whole, and where not, by file and line.

Faulty are lines that were rejected, observations that were refused, numbers that are lost and
files that could not be read to their end, those that a snapshot stands for included. A line that
came twice is no fault: collectors ship at least once. Nor is the end of a log whose writer still
lives.
"""

from __future__ import annotations

import orjson

from ..core.builtin import FAMILIES
from ..core.fold import Fold
from ..core.parse import Record, Rejected
from ..core.reducers import REFUSALS
from ..offline.inputs import gather, merged
from ..offline.reader import read
from ..offline.sources import Source, Unreadable
from .check_report import FileReport, Report, SnapshotReport

#: Names of events of one file that are counted each; names are free text.
_NAMES = 1000

#: The field that a refused observation of an event was looked for in.
_FIELDS = {event: family.field for family in FAMILIES for event in family.events if family.field}


def look_at(logs: tuple[str, ...]) -> Report:
    """Read ``logs`` once and say what is amiss.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :raises UsageError: a path names nothing.
    :raises MxError: two snapshots know the same process.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """
    found, bases, writers = gather(logs)
    snapshots = [SnapshotReport.of(base) for base in bases]
    fold = Fold(merged(bases))
    files = []
    for source in found.sources:
        report = _check(source, fold, writing=source.path in writers.open)
        if report.unreadable is not None and report.unreadable.vanished:
            found.marks.check()
        files.append(report)
    return Report(found, writers, snapshots, files, fold.state)


def _check(source: Source, fold: Fold, *, writing: bool) -> FileReport:
    report = FileReport(source)
    state = fold.state
    skipped, duplicates = state.skipped, state.duplicates
    try:
        for number, records in read(source, writing=writing):
            _fold_watched(number, records, fold, report)
    except Unreadable as error:
        report.unreadable = error
    report.skipped = state.skipped - skipped
    report.duplicates = state.duplicates - duplicates
    return report


def _fold_watched(
    first: int, records: list[Record | Rejected], fold: Fold, report: FileReport
) -> None:
    """Fold records, and note what the fold makes of each."""
    refused = {(event.proc, event.seq): reason for event, reason in fold.feed(records)}
    for number, record in enumerate(records, first):
        if isinstance(record, Rejected):
            report.add("rejected", number, record.reason, record.detail)
            continue
        name = record["event"]
        if name not in report.events and len(report.events) >= _NAMES:
            name = "(other names)"
        report.events[name] += 1
        if not refused:
            continue
        reason = refused.pop((record["proc"], record["seq"]), None)
        if reason is not None:
            report.add("refused", number, reason, _why(record, reason))


def _why(record: Record, reason: str) -> str:
    name = record["event"]
    key = reason.removeprefix("unknown_") if reason.startswith("unknown_") else _FIELDS.get(name)
    if key is None or reason == "series_cap":
        return f"{name}: {REFUSALS[reason]}"
    shown = orjson.dumps(record.get(key)).decode()
    value = f" ({shown})" if len(shown) <= 40 else ""
    return f'"{key}" of {name}: {REFUSALS[reason]}{value}'
