"""The fold: events into state. It knows no file, no clock, no thread and no metrics library.

What it gives depends on which events it was fed and on nothing else: not on their order, not on
how they were split, not on whether some came twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import isfinite
from operator import itemgetter
from typing import Any

from mx_emitter.events import EVENTS, HEADERS

from .books import Book
from .families import (
    ABANDONED,
    BY_NAME,
    COUNT,
    FAMILIES,
    HISTOGRAM,
    IN_PROGRESS,
    LATEST,
    PRESENCE,
    SUM,
    Family,
    label_values,
)
from .loads import LoadLabels
from .parse import Record, Rejected, parse_lines
from .series import Counted, Latest, Observed, Present, Summed
from .state import State
from .tables import CACHE_LIMIT, Table

#: Why an event can be refused though its line is good.
REFUSALS = {
    "missing": "the value is missing or null",
    "boolean": "the value is a boolean",
    "not_a_number": "the value is no number",
    "not_finite": "the value is NaN or an infinity",
    "negative": "a counter only grows, and the amount is negative",
    "unknown_phase": "the phase is not one that the family knows",
    "unknown_step": "the step is not one that the family knows",
    "series_cap": "the family has as many series as the exporter was told to hold",
}

_NOT_FINITE = frozenset({"nan", "inf", "-inf", "infinity", "-infinity"})

#: Takes an event; returns why it was refused, or None.
Derivation = Callable[[Record], str | None]


def refusal(value: object) -> str | None:
    """Why a value is no observation, or None when it is a finite number."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (float, int)):
        return None if isfinite(value) else "not_finite"
    if value is None:
        return "missing"
    if isinstance(value, str) and value.lower() in _NOT_FINITE:
        return "not_finite"
    return "not_a_number"


class Fold:
    """Folds events into `state`.

    ``max_series`` bounds the series of each family: past it new label sets are refused and
    counted. It protects a live exporter; without it (a replay) nothing is left out.
    """

    def __init__(self, state: State | None = None, max_series: int | None = None) -> None:
        self.state = state if state is not None else State()
        self._cap = max_series
        self._tables: dict[str, Table[Any]] = {
            family.name: Table(family, self.state.series[family.name], max_series)
            for family in FAMILIES
        }
        self._details: dict[str, Table[Any]] = {
            name: Table(BY_NAME[name], store, max_series, opt_in=True)
            for name, store in self.state.detail.items()
        }
        self._loads_refused = 0
        self._load_labels: dict[object, LoadLabels] = {}
        self._derivations: dict[str, tuple[Derivation, ...]] = {
            name: self._derivations_of(name) for name in EVENTS
        }

    def fresh(self, state: State) -> Fold:
        """A fold of the same kind that goes on from another state."""
        return Fold(state, self._cap)

    def capped(self, *, opt_in: bool = False) -> dict[str, int]:
        """Families that refused a new label set because of ``max_series``, and how many
        observations found no series for it.

        Those of series with opt-in labels count where the label is shown: no event is refused
        for them.
        """
        tables = [*self._tables.items(), *(self._details.items() if opt_in else ())]
        found: Counter[str] = Counter()
        for name, table in tables:
            if table.capped:
                found[name] += table.refused
        if self._loads_refused:
            for family in FAMILIES:
                if family.measure in (IN_PROGRESS, ABANDONED):
                    found[family.name] += self._loads_refused
        return dict(found)

    def feed_lines(self, lines: Iterable[bytes]) -> None:
        """Parse lines and fold what they give."""
        self.feed(parse_lines(lines))

    def feed(self, records: Iterable[Record | Rejected]) -> None:
        """Fold parsed lines: events by what they say, rejected lines by reason."""
        for record in records:
            if type(record) is Rejected:
                self.reject(record.reason)
            else:
                self._fold(record)  # type: ignore[arg-type]

    def reject(self, reason: str, count: int = 1) -> None:
        """Count lines that give no event (`parse.REASONS`)."""
        if count:
            self.state.rejected[reason] += count

    def writer_gone(self, proc: str) -> None:
        """A process lives no more and all it wrote was fed: its open loads were abandoned."""
        book = self.state.books.get(proc)
        if book is not None:
            self.state.gone += not book.gone
            book.gone = True
            self.state.loads.settle(proc)

    def _fold(self, event: Record) -> None:
        state = self.state
        seq = event["seq"]
        book = state.books.get(event["proc"])
        if book is None:
            book = state.books[event["proc"]] = Book()
        if seq == book.next and not book.later:
            book.next = seq + 1
            state.logged += 1
        elif book.knows(seq):
            state.duplicates += 1
            return
        else:
            before = book.logged
            book.enter(seq, seq + 1)
            grown = book.logged - before
            state.logged += grown
            state.lost += grown - 1
        timestamp = event["timestamp"]
        if timestamp > state.last_event:
            state.last_event = timestamp
        name = event["event"]
        derivations = self._derivations.get(name)
        if derivations is None:
            book.skipped += 1
            state.skipped += 1
            return
        refused = None
        for derive in derivations:
            refused = derive(event) or refused
        if refused is None:
            book.folded += 1
            state.events[name] += 1
        else:
            book.refused += 1
            state.refused[refused] += 1

    def _derivations_of(self, name: str) -> tuple[Derivation, ...]:
        derivations: list[Derivation] = []
        if name in HEADERS:
            derivations.append(self._header)
            derivations.append(self._births_with("header", "scheme"))
        if any(field.name == "policy" for field in EVENTS[name].fields):
            derivations.append(self._births_with("policy", "policy", "scheme"))
        for family in FAMILIES:
            if name in family.events and family.measure in _MEASURES:
                derivations.append(_MEASURES[family.measure](self, family))
        if name in BY_NAME["mx_loads_in_progress"].events:
            derivations.append(self._load_event)
        return tuple(derivations)

    def _header(self, event: Record) -> None:
        # Where the writer's file system has no locks, a lock that is granted says nothing.
        if event.get("locked") is False:
            self.state.books[event["proc"]].locked = False

    def _births_with(self, kind: str, *names: str) -> Derivation:
        tables = [self._tables[family.name] for family in FAMILIES if family.born_with == kind]
        births: dict[object, str] = {}
        named = itemgetter(*names)

        def bear(event: Record) -> None:
            key = named(event)
            timestamp = event["timestamp"]
            known = births.get(key)
            if known is not None and timestamp >= known:
                return
            for table in tables:
                table.bear({name: event[name] for name in names}, timestamp)
            if len(births) >= CACHE_LIMIT:
                births.clear()
            births[key] = timestamp

        return bear

    def _count(self, family: Family) -> Derivation:
        table: Table[Counted] = self._tables[family.name]
        detail: Table[Counted] | None = self._details.get(family.name)

        def count(event: Record) -> str | None:
            if detail is not None:
                each = detail.find(event)
                if not isinstance(each, str):
                    each.value += 1
            series = table.find(event)
            if isinstance(series, str):
                return series
            series.value += 1
            return None

        return count

    def _sum(self, family: Family) -> Derivation:
        table: Table[Summed] = self._tables[family.name]
        field = family.field

        def add(event: Record) -> str | None:
            amount: Any = event.get(field)
            refused = refusal(amount)
            if refused is None and amount < 0:
                refused = "negative"
            if refused is not None:
                return refused
            series = table.find(event)
            if isinstance(series, str):
                return series
            series.add(amount)
            return None

        return add

    def _observe(self, family: Family) -> Derivation:
        table: Table[Observed] = self._tables[family.name]
        field = family.field

        def observe(event: Record) -> str | None:
            value: Any = event.get(field)
            refused = refusal(value)
            if refused is not None:
                return refused
            series = table.find(event)
            if isinstance(series, str):
                return series
            exemplar = (
                event["timestamp"],
                event["proc"],
                event["seq"],
                value,
                event.get("rank"),
                event.get("load_id"),
            )
            series.observe(value, exemplar)
            return None

        return observe

    def _present(self, family: Family) -> Derivation:
        table: Table[Present] = self._tables[family.name]

        def present(event: Record) -> str | None:
            series = table.find(event)
            return series if isinstance(series, str) else None

        return present

    def _latest(self, family: Family) -> Derivation:
        """Loads of candidates, best first: the chosen one's, and each one's with its id.

        A candidate that published none (null) is never read as 0.
        """
        table: Table[Latest] = self._tables[family.name]
        detail: Table[Latest] = self._details[family.name]

        def latest(event: Record) -> str | None:
            stamp = (event["timestamp"], event["proc"], event["seq"])
            refused = None
            for at, candidate in enumerate(event[family.field]):
                load = candidate.get("load")
                if load is None:
                    continue
                reason = refusal(load)
                if reason is not None:
                    refused = refused or reason
                    continue
                each = detail.find({**event, "source_worker_id": candidate["source_worker_id"]})
                if not isinstance(each, str):
                    each.set(load, stamp)
                if at == 0:
                    chosen = table.find(event)
                    if isinstance(chosen, str):
                        refused = refused or chosen
                    else:
                        chosen.set(load, stamp)
            return refused

        return latest

    def _load_event(self, event: Record) -> str | None:
        load_id = event.get("load_id")
        # What a timer did not log may be of another load than the one it was logged in.
        if load_id is None or event.get("timed") is False:
            return None
        loads, name = self.state.loads, event["event"]
        proc, seq = event["proc"], event["seq"]
        if name == "load_finished":
            loads.finished(proc, load_id, seq, self.state.books[proc].next)
            return None
        labels = self._labels_of_load(event, whole=name == "load_started")
        if labels is None:
            return None
        if name == "load_phase_finished":
            loads.phase(proc, load_id, seq, labels[2], runs=False)
            return None
        if self._at_cap(labels):
            return "series_cap"
        loads.note(labels, event["timestamp"])
        if name == "load_started":
            loads.started(proc, load_id, seq, labels)
        else:
            loads.phase(proc, load_id, seq, labels[2], runs=True)
        return None

    def _labels_of_load(self, event: Record, *, whole: bool) -> LoadLabels | None:
        """Labels of a ``whole`` load or of a phase; None when the phase is not a known one."""
        phase = None if whole else event["phase"]
        raw = (event["engine"], event.get("model"), phase, event["scheme"])
        known = self._load_labels.get(raw)
        if known is None:
            labels = BY_NAME["mx_loads_in_progress"].labels
            values = label_values(labels, {**event, "phase": phase})
            if isinstance(values, str):
                return None
            engine, model, phase, scheme = values
            if len(self._load_labels) >= CACHE_LIMIT:
                self._load_labels.clear()
            known = self._load_labels[raw] = (engine, model, phase, scheme)
        return known

    def _at_cap(self, labels: LoadLabels) -> bool:
        series = self.state.loads.series
        if self._cap is None or labels in series or len(series) < self._cap:
            return False
        self._loads_refused += 1
        return True


_MEASURES: dict[str, Callable[[Fold, Family], Derivation]] = {
    COUNT: Fold._count,
    SUM: Fold._sum,
    HISTOGRAM: Fold._observe,
    LATEST: Fold._latest,
    PRESENCE: Fold._present,
}
