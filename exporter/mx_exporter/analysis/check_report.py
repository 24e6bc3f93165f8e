"""What `mx-metrics check` found, as text and as JSON.

Text out of a log is made harmless here before it reaches a terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

from mx_log.schema import RECORDERS
from mx_log.words import counted

from ..core import ranges
from ..core.decode import Rejected
from ..core.ledger import Book
from ..core.ranges import Ranges
from ..core.state import State, add_to
from ..offline.inputs import SnapshotInput
from ..offline.sources import Found, Source
from ..offline.stores import Unreadable
from ..offline.tally import Tally
from ..offline.writers import Writers
from .text_table import harmless

#: Faults of one file that are told one by one; the others are counted.
_TOLD = 100

#: Names that are shown of the recorders that no family answers.
_SHOWN = 10


class Fault(NamedTuple):
    """A line that gave no event, or an event that was no observation."""

    line: int
    #: ``rejected`` or ``refused``
    kind: str
    #: A key of `decode.REASONS` or `reducers.REFUSALS`.
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
    #: Process and reason -> numbers of its lines that were rejected.
    _numbers: dict[tuple[str, str], Ranges] = field(default_factory=dict)
    #: Those of the faults that have a number -> process and number.
    _numbered: dict[Fault, tuple[str, int]] = field(default_factory=dict)
    #: Why the file could not be read to its end.
    unreadable: Unreadable | None = None
    #: What its lines were.
    tally: Tally = field(default_factory=Tally)
    #: Calls of recorders that nothing answers, by name.
    unanswered: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def watching(self, state: State) -> Iterator[None]:
        """Count as this file's what a fold finds of doubles and events that are not known."""
        skipped, duplicates = state.skipped, state.duplicates
        yield
        self.skipped += state.skipped - skipped
        self.duplicates += state.duplicates - duplicates

    def add_unanswered(self, recorder: str) -> None:
        """Count a call of a recorder that the emitter does not know."""
        if recorder not in self.unanswered and len(self.unanswered) >= _TOLD:
            recorder = "(other names)"
        self.unanswered[recorder] += 1

    @property
    def faulty(self) -> bool:
        damaged = self.unreadable is not None and self.unreadable.ours
        return damaged or bool(self.rejected or self.refused)

    def add_refused(self, line: int, reason: str, detail: str) -> None:
        """Count an event that was no observation, and keep why while there are few."""
        self.refused[reason] += 1
        self._keep(Fault(line, "refused", reason, harmless(detail)))

    def add_rejected(self, line: int, rejected: Rejected) -> None:
        """The same for a line that gave no event, of a number that was not met before if any."""
        reason = rejected.reason
        if rejected.proc:
            ranges.add(self._numbers.setdefault((rejected.proc, reason), []), rejected.seq)
        self.rejected[reason] += 1
        fault = Fault(line, "rejected", reason, harmless(rejected.detail))
        if self._keep(fault) and rejected.proc:
            self._numbered[fault] = (rejected.proc, rejected.seq)

    def _keep(self, fault: Fault) -> bool:
        kept = len(self.faults) < _TOLD
        if kept:
            self.faults.append(fault)
        return kept

    def acquit(self, books: Mapping[str, Book]) -> None:
        """Forget the rejected lines whose number is known by another line, now that all were read.

        :param books: by process, of everything that was read.
        """
        for (proc, reason), numbers in self._numbers.items():
            left = sum(ranges.common(numbers, of) for of in books[proc].rejections.values())
            add_to(self.rejected, {reason: left - ranges.count(numbers)})
        self.faults = [
            fault
            for fault in self.faults
            if fault not in self._numbered or _is_rejected(*self._numbered[fault], books)
        ]


def _is_rejected(proc: str, seq: int, books: Mapping[str, Book]) -> bool:
    return books[proc].rejection(seq) is not None


@dataclass
class SnapshotReport:
    """What a snapshot stands for: its totals, before anything was folded onto it."""

    given: SnapshotInput
    events: Counter[str]
    rejected: Counter[str]
    refused: Counter[str]
    skipped: int
    duplicates: int
    #: proc -> first and last numbers
    lost: dict[str, list[tuple[int, int]]]
    processes: int

    @classmethod
    def of(cls, given: SnapshotInput) -> SnapshotReport:
        """Note the totals, which the fold will go on from."""
        state = given.snapshot.state
        return cls(
            given,
            events=Counter(state.events),
            rejected=Counter(state.rejected),
            refused=Counter(state.refused),
            skipped=state.skipped,
            duplicates=state.duplicates,
            lost={proc: book.lost_ranges() for proc, book in state.books.items() if book.lost},
            processes=len(state.books),
        )

    @property
    def met(self) -> int:
        """How many events it stands for."""
        return self.events.total() + self.refused.total() + self.skipped


class Totals(NamedTuple):
    """What became of the lines that a state was folded from."""

    events: int
    doubles: int
    rejected: int

    @classmethod
    def of(cls, state: State) -> Totals:
        """The totals as they are now."""
        events = state.events.total() + state.refused.total() + state.skipped
        return cls(events, state.duplicates, state.rejected.total())


class Lines(NamedTuple):
    """The lines of all files: each is an event, one that was met before, a fault, or somebody
    else's."""

    all: int
    events: int
    met_before: int
    rejected: int
    foreign: int


@dataclass
class Report:
    """All that was found."""

    found: Found
    writers: Writers
    snapshots: list[SnapshotReport]
    files: list[FileReport]
    #: Of everything together.
    state: State
    #: A line for each argument that names no event.
    absent: list[str]
    #: Of the snapshots.
    before: Totals

    @property
    def lines(self) -> Lines:
        """What the lines of the files were."""
        after, before = Totals.of(self.state), self.before
        return Lines(
            all=sum(file.tally.lines for file in self.files),
            events=after.events - before.events,
            met_before=after.doubles - before.doubles,
            rejected=after.rejected - before.rejected,
            foreign=sum(file.tally.foreign for file in self.files),
        )

    @property
    def unanswered(self) -> Counter[str]:
        """Calls of recorders that nothing answers, by name."""
        return sum((file.unanswered for file in self.files), Counter())

    @property
    def faulty(self) -> bool:
        state = self.state
        return (
            state.lost > 0
            or state.rejected.total() > 0
            or state.refused.total() > 0
            or any(report.faulty for report in self.files)
            or any(report.given.problem for report in self.snapshots)
            or bool(self.absent)
        )


# --------------------------------------------------------------------------------------
# The report as text


def as_lines(report: Report, *, verbose: bool = False) -> Iterator[str]:
    """The report as lines of text.

    :param verbose: with the events of each file by name, and with all faults that were kept.
    """
    for snapshot in report.snapshots:
        yield from _snapshot_lines(snapshot)
    told = (line for file in report.files for line in _file_lines(file, verbose))
    yield from told if verbose else islice(told, _TOLD + 2)
    more = sum(1 for _ in told)
    if more:
        yield f"{counted(more, 'more such line')} about files; -v shows all"
    yield from _closing_lines(report)


def _snapshot_lines(report: SnapshotReport) -> Iterator[str]:
    path = report.given.source.shown
    if report.given.problem:
        yield f"{path}: {harmless(report.given.problem)}"
        return
    lost = sum(last - first + 1 for ranges in report.lost.values() for first, last in ranges)
    counts = [
        f"{count} {what}"
        for count, what in (
            (report.skipped, "not known"),
            (report.refused.total(), "refused"),
            (lost, "lost"),
            (report.duplicates, "met before"),
        )
        if count
    ]
    rejected = report.rejected.total()
    if not report.given.snapshot.segments:
        yield f"{path}: stands for no segments yet"
        return
    yield (
        f"{path}: stands for segments of {counted(report.processes, 'process', 'processes')}: "
        + counted(report.met, "event")
        + (f" ({', '.join(counts)})" if counts else "")
        + (f", {counted(rejected, 'line')} rejected" if rejected else "")
    )
    for proc, lost_ranges in sorted(report.lost.items())[:_TOLD]:
        yield f"{path}: process {harmless(proc)}: without seq {_ranges(lost_ranges)}"
    for what, reasons in (("rejected", report.rejected), ("refused", report.refused)):
        if reasons:
            named = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            yield f"{path}: {what}: {named}"
    for family in report.given.snapshot.changed:
        yield f"{path}: derived with another table of {family}, which lacks these events"


def _file_lines(report: FileReport, verbose: bool) -> Iterator[str]:
    path = report.source.shown
    if report.unreadable is not None and not report.unreadable.ours:
        yield f"{path}: {report.unreadable}"
        return
    if verbose:
        yield from _counts(path, report)
    for fault in report.faults:
        yield f"{path} line {fault.line}: {fault.kind}, {fault.reason}: {fault.detail}"
    more = report.rejected.total() + report.refused.total() - len(report.faults)
    if more:
        counts = ", ".join(
            f"{count} {reason}" for reason, count in (report.rejected + report.refused).items()
        )
        yield f"{path}: {counted(more, 'more such line')}; in all {counts}"
    if report.unreadable is not None:
        yield f"{path}: {report.unreadable}"


def _counts(path: str, report: FileReport) -> Iterator[str]:
    names = ", ".join(f"{count} {harmless(name)}" for name, count in sorted(report.events.items()))
    notes = [
        f"{count} {what}"
        for count, what in (
            (report.skipped, "not known"),
            (report.duplicates, "met before"),
            (report.tally.foreign, "lines of others"),
        )
        if count
    ]
    yield (
        f"{path}: {counted(report.events.total(), 'event')}"
        + (f" ({', '.join(notes)})" if notes else "")
        + (f": {names}" if names else "")
    )


def _closing_lines(report: Report) -> Iterator[str]:
    state, files, snapshots = report.state, report.files, report.snapshots
    for proc, book in sorted(state.books.items()):
        if book.lost:
            yield (
                f"process {harmless(proc)}: {counted(book.lost, 'event')} lost of {book.end}, "
                f"seq {_ranges(book.lost_ranges())}{_missing_segments(proc, report.found)}"
            )
    unanswered = report.unanswered
    for name, count in unanswered.most_common(_SHOWN):
        yield f"no family answers {harmless(name)} x{count}{_meant(name)}"
    if len(unanswered) > _SHOWN:
        yield f"{len(unanswered) - _SHOWN} more recorders that no family answers"
    yield from report.absent[:_TOLD]
    if len(report.absent) > _TOLD:
        yield f"{len(report.absent) - _TOLD} more without an event"
    if not files and not snapshots:
        return
    lines = report.lines
    yield (
        f"{counted(lines.all, 'line')}: {counted(lines.events, 'event')}, "
        f"{lines.met_before} met before, {lines.rejected} rejected, {lines.foreign} of others"
    )
    unread = sum(r.unreadable is not None and r.unreadable.ours for r in files)
    faults = [
        counted(count, *names)
        for count, *names in (
            (state.rejected.total(), "line rejected", "lines rejected"),
            (state.refused.total(), "observation refused", "observations refused"),
            (state.lost, "event lost", "events lost"),
            (unread, "file not read whole", "files not read whole"),
            (
                sum(bool(snapshot.given.problem) for snapshot in snapshots),
                "snapshot that cannot be used",
                "snapshots that cannot be used",
            ),
        )
        if count
    ]
    events = sum(r.events.total() for r in files) + sum(r.met for r in snapshots)
    yield (
        f"{counted(len(files), 'file')}"
        + (f" and {counted(len(snapshots), 'snapshot')}" if snapshots else "")
        + f", {counted(events, 'event')} "
        f"of {counted(len(state.books), 'process', 'processes')}: "
        + (", ".join(faults) or "nothing is faulty")
    )


def _meant(recorder: str) -> str:
    """Which recorder a name that is none is most like."""
    alike = get_close_matches(recorder, sorted(RECORDERS), 1, 0.8)
    return f": did you mean {alike[0]}?" if alike else ""


def _ranges(ranges: list[tuple[int, int]]) -> str:
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:_TOLD]]
    return ", ".join(shown) + (" and more" if len(ranges) > _TOLD else "")


def _missing_segments(proc: str, found: Found) -> str:
    """Which segments would hold the lost numbers, when not all were given."""
    covered = max((segments.get(proc, -1) for segments in found.covered.values()), default=-1)
    numbers = sorted({s.segment.n for s in found.sources if s.segment and s.proc == proc})
    gaps = [
        (max(last, covered) + 1, n - 1)
        for last, n in zip([-1, *numbers], numbers, strict=False)
        if n > max(last, covered) + 1
    ]
    if not gaps:
        return ""
    return f" (its segments {_ranges(gaps)} are not among these logs)"


# --------------------------------------------------------------------------------------
# The report as JSON


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
