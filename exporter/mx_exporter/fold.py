"""The fold: events into state. It knows no file, no clock, no thread and no metrics library.

What it gives depends on which events it was fed and on nothing else: not on their order, not on
how they were split, not on whether some came twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from math import isfinite
from operator import itemgetter
from typing import Any, Generic, TypeVar

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
from .state import SeriesByLabels, State

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

#: Raw label values are free text; their cache is emptied when it has grown to this many.
_CACHE_LIMIT = 20_000

S = TypeVar("S", Present, Counted, Summed, Observed, Latest)

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


class _Table(Generic[S]):
    """The series of one family, found by an event's raw label values."""

    def __init__(
        self,
        family: Family,
        store: SeriesByLabels,
        cap: int | None,
        *,
        opt_in: bool = False,
    ) -> None:
        self._labels = family.shown(opt_in=opt_in)
        self._raw = itemgetter(*family.label_names(opt_in=opt_in))
        self._store: dict[tuple[str, ...], S] = store  # type: ignore[assignment]
        self._make: Callable[[str], S] = maker(family)
        self._cap = cap
        self._cache: dict[object, S | str] = {}
        self.capped = False

    def find(self, event: Record) -> S | str:
        """The event's series, made when it is the first; or why there is none."""
        try:
            raw = self._raw(event)
        except KeyError:
            raw = tuple(event.get(label.name) for label in self._labels)
        found = self._cache.get(raw)
        if found is None:
            found = self._resolve(event)
            if found == "series_cap":
                return found
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            self._cache[raw] = found
        if not isinstance(found, str) and event["timestamp"] < found.created:
            found.created = event["timestamp"]
        return found

    def _resolve(self, event: Record) -> S | str:
        values = label_values(self._labels, event)
        if isinstance(values, str):
            return f"unknown_{values}"
        return self.at(values, event["timestamp"]) or "series_cap"

    def at(self, values: tuple[str, ...], timestamp: str) -> S | None:
        """The series of these label values, made if need be; None past the cap."""
        series = self._store.get(values)
        if series is None:
            if self._cap is not None and len(self._store) >= self._cap:
                self.capped = True
                return None
            series = self._store[values] = self._make(timestamp)
        elif timestamp < series.created:
            series.created = timestamp
        return series

    def bear(self, given: dict[str, str], timestamp: str) -> None:
        """Make the zero series of the given labels, one for each value of the others' domains."""
        domains = [
            (label.resolve(given[label.name]),) if label.name in given else label.domain or ()
            for label in self._labels
        ]
        for values in product(*domains):
            self.at(values, timestamp)  # type: ignore[arg-type]


def maker(family: Family) -> Callable[[str], Any]:
    """What makes a fresh series of a family from the timestamp of its first event."""
    if family.measure == HISTOGRAM:
        return partial(Observed, bounds=family.buckets)
    return {PRESENCE: Present, SUM: Summed, LATEST: Latest}.get(family.measure, Counted)


class Fold:
    """Folds events into `state`.

    ``max_series`` bounds the series of each family: past it new label sets are refused and
    counted. It protects a live exporter; without it (a replay) nothing is left out.
    """

    def __init__(self, state: State | None = None, max_series: int | None = None) -> None:
        self.state = state if state is not None else State()
        self._cap = max_series
        self._tables: dict[str, _Table[Any]] = {
            family.name: _Table(family, self.state.series[family.name], max_series)
            for family in FAMILIES
        }
        self._details: dict[str, _Table[Any]] = {
            name: _Table(BY_NAME[name], store, max_series, opt_in=True)
            for name, store in self.state.detail.items()
        }
        self._loads_capped = False
        self._load_labels = BY_NAME["mx_loads_in_progress"].labels
        self._derivations: dict[str, tuple[Derivation, ...]] = {
            name: self._derivations_of(name) for name in EVENTS
        }

    def fresh(self, state: State) -> Fold:
        """A fold of the same kind that goes on from another state."""
        return Fold(state, self._cap)

    @property
    def capped(self) -> set[str]:
        """Families that refused a new label set because of ``max_series``."""
        capped = {name for name, table in self._tables.items() if table.capped}
        if self._loads_capped:
            capped.update(f.name for f in FAMILIES if f.measure in (IN_PROGRESS, ABANDONED))
        return capped

    @property
    def detail_capped(self) -> set[str]:
        """The same for the series with opt-in labels, which no event is refused for."""
        return {name for name, table in self._details.items() if table.capped}

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
        births: dict[tuple[str, ...], str] = {}

        def bear(event: Record) -> None:
            key = tuple(event[name] for name in names)
            timestamp = event["timestamp"]
            known = births.get(key)
            if known is not None and timestamp >= known:
                return
            for table in tables:
                table.bear(dict(zip(names, key, strict=True)), timestamp)
            if len(births) >= _CACHE_LIMIT:
                births.clear()
            births[key] = timestamp

        return bear

    def _count(self, family: Family) -> Derivation:
        table: _Table[Counted] = self._tables[family.name]
        detail: _Table[Counted] | None = self._details.get(family.name)

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
        table: _Table[Summed] = self._tables[family.name]
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
        table: _Table[Observed] = self._tables[family.name]
        field = family.field

        def observe(event: Record) -> str | None:
            value: Any = event.get(field)
            refused = refusal(value)
            if refused is not None:
                return refused
            series = table.find(event)
            if isinstance(series, str):
                return series
            stamp = (event["timestamp"], event["proc"], event["seq"])
            series.observe(value, (*stamp, value, event.get("rank"), event.get("load_id")))
            return None

        return observe

    def _present(self, family: Family) -> Derivation:
        table: _Table[Present] = self._tables[family.name]

        def present(event: Record) -> str | None:
            series = table.find(event)
            return series if isinstance(series, str) else None

        return present

    def _latest(self, family: Family) -> Derivation:
        """Loads of candidates, best first: the chosen one's, and each one's with its id.

        A candidate that published none (null) is never read as 0.
        """
        table: _Table[Latest] = self._tables[family.name]
        detail: _Table[Latest] = self._details[family.name]

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
        if load_id is None:
            return None
        proc = event["proc"]
        refused = self._track(event, proc, load_id)
        if refused is None and event["event"] == "load_finished":
            self.state.loads.tidy(proc, load_id, self.state.books[proc].next)
        return refused

    def _track(self, event: Record, proc: str, load_id: str) -> str | None:
        loads, name, seq = self.state.loads, event["event"], event["seq"]
        if name == "load_finished":
            loads.finished(proc, load_id, seq)
            return None
        starts = name != "load_phase_finished"
        whole = name == "load_started"
        engine, model, phase, scheme = (
            label.resolve(event.get(label.name)) for label in self._load_labels
        )
        if whole:
            phase = ""
        if phase is None:
            return None
        labels = (engine or "", model or "", phase, scheme or "")
        if starts and self._at_cap(labels):
            return "series_cap"
        if starts:
            loads.note(labels, event["timestamp"])
        if whole:
            loads.started(proc, load_id, seq, (labels[0], labels[1], labels[3]))
        else:
            loads.phase(proc, load_id, seq, phase, runs=starts)
        return None

    def _at_cap(self, labels: LoadLabels) -> bool:
        series = self.state.loads.series
        if self._cap is None or labels in series or len(series) < self._cap:
            return False
        self._loads_capped = True
        return True


_MEASURES: dict[str, Callable[[Fold, Family], Derivation]] = {
    COUNT: Fold._count,
    SUM: Fold._sum,
    HISTOGRAM: Fold._observe,
    LATEST: Fold._latest,
    PRESENCE: Fold._present,
}
