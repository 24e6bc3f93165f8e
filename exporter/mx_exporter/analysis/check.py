"""Whether logs are whole, and where not, by file and line.

Faulty are lines that were rejected, observations that were refused, numbers that are lost and
files that could not be read to their end, those that a snapshot stands for included. A line that
came twice is no fault: collectors ship at least once. Nor is a rejected one whose number another
line gave well. Nor is the end of a log whose writer still
lives.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.catalog import Catalog
from ..core.decode import Event, Rejected, name_of
from ..core.fold import Fold
from ..core.reducers import REFUSALS
from ..offline.inputs import find_inputs, merge_snapshots
from ..offline.reader import read
from ..offline.sources import Source, Unreadable
from ..offline.writers import Writers
from .check_report import FileReport, Report, SnapshotReport

#: Names of events of one file that are counted each; names are free text.
_NAMES = 1000


def examine(catalog: Catalog, logs: tuple[str, ...]) -> Report:
    """Read ``logs`` once and say what is amiss.

    :param catalog: what is derived from them.
    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :raises UsageError: a path names nothing.
    :raises MxError: two snapshots know the same process.
    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """
    found, snapshots, writers = find_inputs(catalog, logs)
    reports = [SnapshotReport.of(snapshot) for snapshot in snapshots]
    fold = Fold(catalog, merge_snapshots(catalog, snapshots))
    files = []
    for source in found.sources:
        report = _check(source, fold, writers)
        if report.unreadable is not None and report.unreadable.vanished:
            found.generations.check()
        files.append(report)
    for report in files:
        report.acquit(fold.state.books)
    return Report(found, writers, reports, files, fold.state)


def _check(source: Source, fold: Fold, writers: Writers) -> FileReport:
    writing = source.path in writers.open
    procs = writers.alive if writing else set()
    report = FileReport(source)
    state = fold.state
    skipped, duplicates = state.skipped, state.duplicates
    try:
        for number, events in read(source, fold.catalog.decoder, writing=writing, numbered=True):
            _fold_watched(number, events, fold, report, procs)
    except Unreadable as error:
        report.unreadable = error
    report.skipped = state.skipped - skipped
    report.duplicates = state.duplicates - duplicates
    return report


def _fold_watched(
    first: int, events: list[Event | Rejected], fold: Fold, report: FileReport, procs: set[str]
) -> None:
    """Fold what lines gave, and note what the fold makes of each."""
    start = 0
    for at, line in enumerate(events):
        if isinstance(line, Rejected):
            _fold_events(first + start, events[start:at], fold, report, procs)
            doubles = fold.state.duplicates
            fold.feed([line], procs)
            if fold.state.duplicates == doubles:
                report.add_rejected(first + at, line)
            start = at + 1
    _fold_events(first + start, events[start:], fold, report, procs)


def _fold_events(
    first: int, events: list[Any], fold: Fold, report: FileReport, procs: set[str]
) -> None:
    refused = {(event.proc, event.seq): reason for event, reason in fold.feed(events, procs)}
    for number, event in enumerate(events, first):
        name = name_of(event)
        if name not in report.events and len(report.events) >= _NAMES:
            name = "(other names)"
        report.events[name] += 1
        if not refused:
            continue
        reason = refused.pop((event.proc, event.seq), None)
        if reason is not None:
            report.add_refused(number, reason, _why(fold.catalog, event, reason))


def _why(catalog: Catalog, event: Event, reason: str) -> str:
    name = name_of(event)
    if reason.startswith("unknown_"):
        key = reason.removeprefix("unknown_")
    else:
        fields = [family.field for family in catalog.families if name in family.events]
        key = next(filter(None, fields), "")
    if not key:
        return f"{name}: {REFUSALS[reason]}"
    shown = msgspec.json.encode(getattr(event, key)).decode()
    value = f" ({shown})" if len(shown) <= 40 else ""
    return f'"{key}" of {name}: {REFUSALS[reason]}{value}'
