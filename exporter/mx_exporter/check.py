"""``mx-metrics check``: whether logs are whole, and where not, by file and line.

Faulty are lines that were rejected, observations that were refused, numbers that are lost and
files that could not be read to their end, those that a snapshot stands for included. A line that
came twice is no fault: collectors ship at least once. Nor is the end of a log whose writer still
lives.
"""

from __future__ import annotations

import orjson

from .bases import gather, merged
from .families import FAMILIES
from .fold import Fold
from .marks import settled
from .output import put
from .parse import Record, Rejected
from .reading import read
from .report import FileReport, Report, SnapshotReport, as_lines, as_object
from .sources import Source, Unreadable
from .steps import REFUSALS

FAULTY = 3

#: Names of events of one file that are counted each; names are free text.
_NAMES = 1000

#: The field that a refused observation of an event was looked for in.
_FIELDS = {event: family.field for family in FAMILIES for event in family.events if family.field}


def run(logs: tuple[str, ...], *, as_json: bool = False) -> int:
    """Read ``logs`` and print the report.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param as_json: print one JSON object (`as_object`) in place of the text.
    :return: 0, or 3 when anything is faulty.
    :raises UsageError: a path names nothing.
    :raises MxError: two snapshots know the same process.
    """
    report = settled(lambda: look_at(logs))
    if as_json:
        text = orjson.dumps(as_object(report)) + b"\n"
    else:
        text = "".join(f"{line}\n" for line in as_lines(report)).encode()
    put(text)
    return FAULTY if report.faulty else 0


def look_at(logs: tuple[str, ...]) -> Report:
    """Read ``logs`` once; errors as for `run`.

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
