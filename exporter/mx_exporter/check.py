"""``mx-metrics check``: whether logs are whole, and where not, by file and line.

Faulty are lines that were rejected, observations that were refused, numbers that are lost and
files that could not be read to their end. A line that came twice is no fault: collectors ship
at least once. Nor is the end of a log whose writer still lives.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from .families import FAMILIES
from .fold import REFUSALS, Fold
from .parse import Record, Rejected
from .reading import read
from .sources import Found, Source, Unreadable, find
from .writers import Writers, survey

FAULTY = 3

#: Faults of one file that are told one by one; the others are counted.
_TOLD = 100

#: Names of events of one file that are counted each; names are free text.
_NAMES = 1000

#: The field that a refused observation of an event was looked for in.
_FIELDS = {event: family.field for family in FAMILIES for event in family.events if family.field}


class Fault(NamedTuple):
    """A line that gave no event, or an event that was no observation."""

    line: int
    #: ``rejected`` or ``refused``
    kind: str
    #: A key of `parse.REASONS` or `fold.REFUSALS`.
    reason: str
    detail: str


@dataclass
class FileReport:
    """What one file holds."""

    source: Source
    #: Events by name, duplicates and refused ones included.
    events: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    #: Events that the schema does not know.
    skipped: int = 0
    duplicates: int = 0
    #: The first `_TOLD` of them.
    faults: list[Fault] = field(default_factory=list)
    #: Why the file could not be read to its end.
    unreadable: Unreadable | None = None

    @property
    def faulty(self) -> bool:
        damaged = self.unreadable is not None and self.unreadable.ours
        return damaged or bool(self.rejected or self.refused)

    def add(self, kind: str, line: int, reason: str, detail: str) -> None:
        """Count a fault, and keep it while there are few."""
        (self.rejected if kind == "rejected" else self.refused)[reason] += 1
        if len(self.faults) < _TOLD:
            self.faults.append(Fault(line, kind, reason, _clean(detail)))


def run(logs: tuple[str, ...], *, as_json: bool = False) -> int:
    """Read ``logs`` and print the report.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param as_json: print one JSON object (`as_object`) in place of the text.
    :return: 0, or 3 when anything is faulty.
    :raises UsageError: a path names nothing.
    """
    found = find(logs)
    writers = survey(found)
    fold = Fold()
    reports = []
    for source in found.sources:
        report = _check(source, fold, writing=source.path in writers.open)
        reports.append(report)
        if not as_json:
            _print("".join(f"{line}\n" for line in _file_lines(report)).encode())
    faulty = fold.state.lost > 0 or any(report.faulty for report in reports)
    if as_json:
        _print(orjson.dumps(as_object(reports, fold, writers, faulty)) + b"\n")
    else:
        _print("".join(f"{line}\n" for line in _closing_lines(reports, fold, found)).encode())
    return FAULTY if faulty else 0


def _check(source: Source, fold: Fold, *, writing: bool) -> FileReport:
    report = FileReport(source)
    state = fold.state
    skipped, duplicates = state.skipped, state.duplicates
    try:
        for number, records in read(source, writing=writing):
            fold.feed(_watched(number, records, fold, report))
    except Unreadable as error:
        report.unreadable = error
    report.skipped = state.skipped - skipped
    report.duplicates = state.duplicates - duplicates
    return report


def _watched(
    first: int, records: list[Record | Rejected], fold: Fold, report: FileReport
) -> Iterator[Record | Rejected]:
    """Hand records to the fold one by one, and note what it makes of each."""
    refused = fold.state.refused
    for number, record in enumerate(records, first):
        if isinstance(record, Rejected):
            report.add("rejected", number, record.reason, record.detail)
            yield record
            continue
        name = record["event"]
        if name not in report.events and len(report.events) >= _NAMES:
            name = "(other names)"
        report.events[name] += 1
        before = dict(refused)
        yield record
        if refused != before:
            reason = next(key for key, count in refused.items() if count > before.get(key, 0))
            report.add("refused", number, reason, _why(record, reason))


def _why(record: Record, reason: str) -> str:
    name = record["event"]
    key = reason.removeprefix("unknown_") if reason.startswith("unknown_") else _FIELDS.get(name)
    if key is None or reason == "series_cap":
        return f"{name}: {REFUSALS[reason]}"
    shown = orjson.dumps(record.get(key)).decode()
    value = f" ({shown})" if len(shown) <= 40 else ""
    return f'"{key}" of {name}: {REFUSALS[reason]}{value}'


# --------------------------------------------------------------------------------------
# The report as text


def _file_lines(report: FileReport) -> Iterator[str]:
    path = report.source.shown
    if report.unreadable is not None and not report.unreadable.ours:
        yield f"{path}: {report.unreadable}"
        return
    names = ", ".join(f"{count} {_clean(name)}" for name, count in sorted(report.events.items()))
    notes = [
        f"{count} {what}"
        for count, what in ((report.skipped, "not known"), (report.duplicates, "met before"))
        if count
    ]
    yield (
        f"{path}: {_count(report.events.total(), 'event')}"
        + (f" ({', '.join(notes)})" if notes else "")
        + (f": {names}" if names else "")
    )
    for fault in report.faults:
        yield f"{path} line {fault.line}: {fault.kind}, {fault.reason}: {fault.detail}"
    more = report.rejected.total() + report.refused.total() - len(report.faults)
    if more:
        counts = ", ".join(
            f"{count} {reason}" for reason, count in (report.rejected + report.refused).items()
        )
        yield f"{path}: {more} more such lines; in all {counts}"
    if report.unreadable is not None:
        yield f"{path}: {report.unreadable}"


def _closing_lines(reports: list[FileReport], fold: Fold, found: Found) -> Iterator[str]:
    state = fold.state
    for proc, book in sorted(state.books.items()):
        if book.lost:
            yield (
                f"process {_clean(proc)}: {_count(book.lost, 'event')} lost of {book.logged}, "
                f"seq {_ranges(book.lost_ranges())}{_missing_segments(proc, found)}"
            )
    if not reports:
        yield "no segments there (events-<12 hex digits>-<number>.jsonl, plain, .gz or .zst)"
        return
    unread = sum(r.unreadable is not None and r.unreadable.ours for r in reports)
    faults = [
        _count(count, *names)
        for count, *names in (
            (state.rejected.total(), "line rejected", "lines rejected"),
            (state.refused.total(), "observation refused", "observations refused"),
            (state.lost, "event lost", "events lost"),
            (unread, "file not read whole", "files not read whole"),
        )
        if count
    ]
    yield (
        f"{_count(len(reports), 'file')}, "
        f"{_count(sum(r.events.total() for r in reports), 'event')} "
        f"of {_count(len(state.books), 'process', 'processes')}: "
        + (", ".join(faults) or "nothing is faulty")
    )


def _ranges(ranges: list[tuple[int, int]]) -> str:
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_TOLD]]
    return ", ".join(shown) + (" and more" if len(ranges) > _TOLD else "")


def _missing_segments(proc: str, found: Found) -> str:
    """Which segments would hold the lost numbers, when not all were given."""
    numbers = sorted({s.segment.n for s in found.sources if s.segment and s.proc == proc})
    gaps = [
        (last + 1, n - 1) for last, n in zip([-1, *numbers], numbers, strict=False) if n > last + 1
    ]
    if not gaps:
        return ""
    return f" (its segments {_ranges(gaps)} are not among these logs)"


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _clean(text: str) -> str:
    """Text out of a log, made harmless for a terminal and for a report of lines."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _print(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


# --------------------------------------------------------------------------------------
# The report as JSON


def as_object(
    reports: list[FileReport], fold: Fold, writers: Writers, faulty: bool
) -> dict[str, Any]:
    """The report as one object.

    ``faulty``; ``files``: one a file, with ``path``, ``events``, ``rejected`` and ``refused``
    (by name or reason), ``not_known``, ``duplicates``, ``faults`` (the first 100, each with
    ``line``, ``kind``, ``reason``, ``detail``) and ``problem`` (why it was not read whole, or
    null); ``processes``: one a process, with its books (``logged`` = ``folded`` + ``refused``
    + ``skipped`` + ``lost``), ``lost_ranges`` (first and last number) and ``alive``.
    """
    return {
        "faulty": faulty,
        "files": [
            {
                "path": report.source.shown,
                "events": dict(sorted(report.events.items())),
                "rejected": dict(report.rejected),
                "refused": dict(report.refused),
                "not_known": report.skipped,
                "duplicates": report.duplicates,
                "faults": [fault._asdict() for fault in report.faults],
                "problem": None if report.unreadable is None else str(report.unreadable),
            }
            for report in reports
        ],
        "processes": [
            {
                "proc": proc,
                "logged": book.logged,
                "folded": book.folded,
                "refused": book.refused,
                "skipped": book.skipped,
                "lost": book.lost,
                "lost_ranges": book.lost_ranges(),
                "alive": proc in writers.alive,
            }
            for proc, book in sorted(fold.state.books.items())
        ],
    }
