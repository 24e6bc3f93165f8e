"""Whether logs are whole, and where not, by file and line.

Faulty are lines that were rejected, observations that were refused, numbers that are lost and
files that could not be read to their end, those that a snapshot stands for included. A line that
came twice is no fault: collectors ship at least once. Nor is a rejected one whose number another
line gave well. Nor is the end of a log whose writer still
lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..core.catalog import Catalog
from ..core.decode import Event, Rejected, name_of
from ..core.fold import Fold
from ..core.reducers import REFUSALS, refusal
from ..offline.absence import without_events
from ..offline.inputs import find_inputs, merge_snapshots
from ..offline.lookup import close_seams
from ..offline.parts import Seams
from ..offline.reader import files, read_file
from ..offline.sources import Source
from ..offline.stores import Unreadable
from ..offline.tally import Tally
from ..offline.writers import Writers
from .check_report import FileReport, Report, SnapshotReport, Totals

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
    before = Totals.of(fold.state)
    all_files: list[FileReport] = []
    seams, tallies = Seams(), dict[str, Tally]()
    by_path: dict[str, FileReport] = {}
    for source in found.sources:
        given = list(_check(source, fold, writers, seams))
        if any(report.unreadable and report.unreadable.vanished for report in given):
            found.generations.check()
        all_files += given
        by_path.update((report.source.name, report) for report in given)
    tally_of = {path: report.tally for path, report in by_path.items()}
    for path, number, events in close_seams(seams, catalog.decoder, tally_of.__getitem__):
        with by_path[path].watching(fold.state):
            _fold_watched(number, events, fold, by_path[path], set())
    for report in all_files:
        report.acquit(fold.state.books)
        tallies.setdefault(report.source.argument, Tally()).add(report.tally)
    absent = list(without_events(found, snapshots, tallies))
    return Report(found, writers, reports, all_files, fold.state, absent, before)


def _check(source: Source, fold: Fold, writers: Writers, seams: Seams) -> Iterator[FileReport]:
    """A report of each file of a source; an archive has many."""
    writing = source.path in writers.open
    procs = writers.alive if writing else set()
    report: FileReport | None = None
    try:
        for file, content in files(source):
            report = FileReport(file)
            with report.watching(fold.state):
                try:
                    for number, events in read_file(
                        file,
                        content,
                        fold.catalog.decoder,
                        report.tally,
                        seams,
                        writing=writing,
                        numbered=True,
                    ):
                        _fold_watched(number, events, fold, report, procs)
                except Unreadable as error:
                    report.unreadable = error
            yield report
    except Unreadable as error:
        report = FileReport(source)
        report.unreadable = error
        yield report


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
        if name == "recorder_called":
            report.add_unanswered(getattr(event, "recorder", ""))
        if not refused:
            continue
        reason = refused.pop((event.proc, event.seq), None)
        if reason is not None:
            report.add_refused(number, reason, _why(fold.catalog, event, reason))


def _why(catalog: Catalog, event: Event, reason: str) -> str:
    """What is said of a refused event: which value of it is at fault, and why."""
    name = name_of(event)
    asked = [family for family in catalog.families if name in family.events]
    if reason.startswith("unknown_"):
        key: str | int = reason.removeprefix("unknown_")
        labels = [label for family in asked for label in family.labels if label.name == key]
        value, why = labels[0].read(event), f"the {key} is not one that the family knows"
    else:
        why = REFUSALS[reason]
        found = [
            (family.field or family.paths[0][-1], family.value_of()(event))
            for family in asked
            if family.field or family.paths
        ]
        if not found:
            return f"{name}: {why}"
        # Of several families, the one that could have refused it.
        key, value = next((each for each in found if refusal(each[1]) == reason), found[0])
    shown = msgspec.json.encode(value).decode()
    given = f" ({shown})" if len(shown) <= 40 else ""
    return f'"{key}" of {name}: {why}{given}'
