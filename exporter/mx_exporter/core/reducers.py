"""Steps: what becomes of events that say the same, one for each way in which a family measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any, Generic

from .series import Counted, Latest, Observed, Present, Summed, stamp
from .series_table import S, Table
from .typed import Event

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

#: Why an event is counted as skipped: the schema does not know it.
SKIPPED = "skipped"

_NOT_FINITE = frozenset({"nan", "inf", "-inf", "infinity", "-infinity"})

_NUMBERS = frozenset({float, int})

#: Events that were refused, and why.
Refused = Sequence[tuple[Event, str]]

#: Takes events that say the same, one or more, in order of their stamps.
Step = Callable[[list[Event]], Refused]

#: Workers whose series a step remembers; they are free text.
_MAX_WORKERS = 20_000


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


class _Bound(Generic[S]):
    """The series of a plan in one table, made when the first event is accepted."""

    __slots__ = ("series", "table")
    table: Table[S]
    series: S | None

    def __init__(self, table: Table[S]) -> None:
        self.table = table
        self.series = None

    def find(self, events: list[Event]) -> S | Refused:
        """The series; or the events with why there is none for them, which is the same for all."""
        if self.series is None:
            found = [self.table.find(event) for event in events]
            if isinstance(found[0], str):
                return [(event, str(reason)) for event, reason in zip(events, found, strict=True)]
            self.series = found[0]
        series = self.series
        # What is older may have been refused: only what is accepted brings a series into being.
        if events[0].timestamp < series.created:
            series.created = events[0].timestamp
        return series


def skip(events: list[Event]) -> Refused:
    return [(event, SKIPPED) for event in events]


def presenting(table: Table[Present]) -> Step:
    bound = _Bound(table)

    def present(events: list[Event]) -> Refused:
        series = bound.find(events)
        return () if isinstance(series, Present) else series

    return present


def counting(table: Table[Counted]) -> Step:
    bound = _Bound(table)

    def count(events: list[Event]) -> Refused:
        series = bound.find(events)
        if not isinstance(series, Counted):
            return series
        series.value += len(events)
        return ()

    return count


def counting_detail(table: Table[Counted]) -> Step:
    """A series that is shown only when asked for refuses no event."""
    count = counting(table)

    def count_detail(events: list[Event]) -> Refused:
        count(events)
        return ()

    return count_detail


def summing(table: Table[Summed], field: str) -> Step:
    bound, finite = _Bound(table), _finite(field)

    def add(events: list[Event]) -> Refused:
        good, amounts, refused = finite(events)
        if good and min(amounts) < 0:
            judged = list(zip(good, amounts, strict=True))
            refused = [*refused, *((event, "negative") for event, amount in judged if amount < 0)]
            good = [event for event, amount in judged if amount >= 0]
            amounts = [amount for amount in amounts if amount >= 0]
        if not good:
            return refused
        series = bound.find(good)
        if not isinstance(series, Summed):
            return [*refused, *series]
        series.total.add(amounts)
        return refused

    return add


def observing(table: Table[Observed], field: str) -> Step:
    bound, finite = _Bound(table), _finite(field)

    def observe(events: list[Event]) -> Refused:
        good, values, refused = finite(events)
        if not good:
            return refused
        series = bound.find(good)
        if not isinstance(series, Observed):
            return [*refused, *series]
        series.observe(good, values)
        return refused

    return observe


def _finite(field: str) -> Callable[[list[Event]], tuple[list[Event], list[float], Refused]]:
    """Tells the events whose field is a finite number, these numbers, and the others with why it
    is none."""
    value_of: Callable[[Event], Any] = attrgetter(field)

    def finite(events: list[Event]) -> tuple[list[Event], list[float], Refused]:
        values = list(map(value_of, events))
        try:
            if _NUMBERS.issuperset(map(type, values)) and isfinite(sum(values)):
                return events, values, ()
        except OverflowError:
            pass  # an integer that no float can hold
        judged = list(zip(events, values, map(refusal, values), strict=True))
        return (
            [event for event, _, reason in judged if reason is None],
            [value for _, value, reason in judged if reason is None],
            [(event, reason) for event, _, reason in judged if reason is not None],
        )

    return finite


def latest_loads(table: Table[Latest], detail: Table[Latest], field: str) -> Step:
    """Loads of candidates, best first: the chosen one's, and each one's with its id.

    A candidate that published none (null) is never read as 0.
    """
    chosen = _Bound(table)
    known: dict[str, Latest] = {}

    def detail_of(worker: str, event: Event) -> Latest | None:
        found = known.get(worker)
        if found is None or event.timestamp < found.created:
            each = detail.find(event, source_worker_id=worker)
            if isinstance(each, str):
                return None
            if len(known) >= _MAX_WORKERS:
                known.clear()
            found = known[worker] = each
        return found

    def latest(event: Event) -> str | None:
        when = stamp(event)
        refused = None
        for at, candidate in enumerate(getattr(event, field)):
            load = candidate.load
            if load is None:
                continue
            reason = refusal(load)
            if reason is not None:
                refused = refused or reason
                continue
            each = detail_of(candidate.source_worker_id, event)
            if each is not None:
                each.set(load, when)
            if at == 0:
                first = chosen.find([event])
                if isinstance(first, Latest):
                    first.set(load, when)
                else:
                    refused = refused or first[0][1]
        return refused

    def latest_of(events: list[Event]) -> Refused:
        return [(event, reason) for event in events if (reason := latest(event)) is not None]

    return latest_of
