"""What `mx-metrics check` found: of each file, of each snapshot, of all together.

Text out of a log is made harmless here before it reaches a terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

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
TOLD = 100


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
    #: The first `TOLD` of them.
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
        if recorder not in self.unanswered and len(self.unanswered) >= TOLD:
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
        kept = len(self.faults) < TOLD
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
