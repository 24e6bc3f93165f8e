"""Reducers: what events that agree in all labels do to the series of one family.

There is one for each way in which a family measures. A reducer takes events in order of their
stamps and returns those that it refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any, Generic, Protocol

from . import series
from .decode import Event
from .load_tracker import LoadLabels, Loads, LoadTable
from .series import stamp
from .series_table import S, SeriesTable
from .state import State
from .unanswered import Calls

#: Why an event can be refused though its line is good.
REFUSALS = {
    "missing": "the value is missing or null",
    "boolean": "the value is a boolean",
    "not_a_number": "the value is no number",
    "not_finite": "the value is NaN or an infinity",
    "negative": "a counter only grows, and the amount is negative",
    "unknown_phase": "the phase is not one that the family knows",
    "unknown_step": "the step is not one that the family knows",
}

#: Why an event is counted as skipped: the schema does not know it.
SKIPPED = "skipped"

_NOT_FINITE = frozenset({"nan", "inf", "-inf", "infinity", "-infinity"})

_NUMBERS = frozenset({float, int})

#: Later than every timestamp.
NEVER = "~"

#: Events that were refused, and why.
Refused = Sequence[tuple[Event, str]]

#: A series that an event feeds: the family's name and the series' label values.
Target = tuple[str, tuple[str, ...]]

#: Workers whose series a reducer remembers; their ids are free text.
_MAX_WORKERS = 20_000


class Reducer(Protocol):
    """Applies events to the series of one family."""

    def apply(self, events: list[Event]) -> Refused:
        """Apply one or more events, which come in order of their stamps; return those refused."""

    def targets(self, event: Event) -> Iterator[Target]:
        """The series that the event feeds, or would feed if it held an observation."""


def refusal(value: object) -> str | None:
    """Why a value is no observation, or None when it is a finite number."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (float, int)):
        return None if _is_finite(value) else "not_finite"
    if value is None:
        return "missing"
    if isinstance(value, str) and value.lower() in _NOT_FINITE:
        return "not_finite"
    return "not_a_number"


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


class _TableReducer(Generic[S]):
    """A reducer of one table. The series is found when the first event is accepted."""

    __slots__ = ("_generation", "_series", "_table")

    def __init__(self, table: SeriesTable[S]) -> None:
        self._table: SeriesTable[S] = table
        self._series: S | None = None
        self._generation = 0

    def targets(self, event: Event) -> Iterator[Target]:
        labels = self._table.labels_of(event)
        if not isinstance(labels, str):
            yield self._table.family.name, labels

    def _find(self, events: list[Event]) -> S | Refused:
        """The series; or the events with why there is none, which is the same for all of them."""
        found, table = self._series, self._table
        if found is None or self._generation != table.generation:
            first = table.find(events[0])
            if isinstance(first, str):
                return [(event, first) for event in events]
            found = self._series = first
            self._generation = table.generation
        # What is older may have been refused: only what is accepted brings a series into being.
        if events[0].timestamp < found.created:
            found.created = events[0].timestamp
        return found


class Present(_TableReducer[series.Present]):
    """That there was such an event is what the family says."""

    def apply(self, events: list[Event]) -> Refused:
        found = self._find(events)
        return () if isinstance(found, series.Present) else found


class Count(_TableReducer[series.Counted]):
    """Each event adds one."""

    def apply(self, events: list[Event]) -> Refused:
        found = self._find(events)
        if not isinstance(found, series.Counted):
            return found
        found.value += len(events)
        return ()


class CountDetail(Count):
    """The same with opt-in labels: a series that shows only when asked for refuses no event."""

    def apply(self, events: list[Event]) -> Refused:
        super().apply(events)
        return ()


class Sum(_TableReducer[series.Summed]):
    """Each event adds the amount in one of its fields."""

    __slots__ = ("_values",)

    def __init__(self, table: SeriesTable[series.Summed]) -> None:
        super().__init__(table)
        self._values = _Values(table.family.value_of())

    def apply(self, events: list[Event]) -> Refused:
        good, amounts, refused = self._values.split(events)
        if good and min(amounts) < 0:
            judged = list(zip(good, amounts, strict=True))
            refused = [*refused, *((event, "negative") for event, amount in judged if amount < 0)]
            good = [event for event, amount in judged if amount >= 0]
            amounts = [amount for amount in amounts if amount >= 0]
        if not good:
            return refused
        found = self._find(good)
        if not isinstance(found, series.Summed):
            return [*refused, *found]
        found.total.add(amounts)
        return refused


class Observe(_TableReducer[series.Observed]):
    """Each event observes the value in one of its fields."""

    __slots__ = ("_values",)

    def __init__(self, table: SeriesTable[series.Observed]) -> None:
        super().__init__(table)
        self._values = _Values(table.family.value_of())

    def apply(self, events: list[Event]) -> Refused:
        good, values, refused = self._values.split(events)
        if not good:
            return refused
        found = self._find(good)
        if not isinstance(found, series.Observed):
            return [*refused, *found]
        found.observe(good, values)
        return refused


class SetLatest(_TableReducer[series.Latest]):
    """The value in one of an event's fields counts until a more recent event."""

    __slots__ = ("_values",)

    def __init__(self, table: SeriesTable[series.Latest]) -> None:
        super().__init__(table)
        self._values = _Values(table.family.value_of())

    def apply(self, events: list[Event]) -> Refused:
        good, values, refused = self._values.split(events)
        if not good:
            return refused
        found = self._find(good)
        if not isinstance(found, series.Latest):
            return [*refused, *found]
        found.set(float(values[-1]), stamp(good[-1]))
        return refused


class _Values:
    """Splits events into those whose field is a finite number, and the others."""

    __slots__ = ("_value_of",)

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        self._value_of = value_of

    def split(self, events: list[Event]) -> tuple[list[Event], list[float], Refused]:
        """Good events, their numbers, and the events that were refused with the reason."""
        values = list(map(self._value_of, events))
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


class Latest(_TableReducer[series.Latest]):
    """The loads that candidates published, best candidate first: the most recent one counts.

    The plain series holds the load of the chosen candidate, the first. With the opt-in label each
    candidate has a series of its own. A candidate that published none (null) is never read as 0.
    """

    __slots__ = ("_candidates", "_detail", "_known", "_known_generation")

    def __init__(
        self, table: SeriesTable[series.Latest], detail: SeriesTable[series.Latest], field: str
    ) -> None:
        super().__init__(table)
        self._detail = detail
        self._candidates = attrgetter(field)
        self._known: dict[str, series.Latest] = {}
        self._known_generation = 0

    def apply(self, events: list[Event]) -> Refused:
        return [(event, reason) for event in events if (reason := self._apply(event)) is not None]

    def targets(self, event: Event) -> Iterator[Target]:
        for at, candidate in enumerate(self._candidates(event)):
            if refusal(candidate.load) is None:
                if at == 0:
                    yield from super().targets(event)
                worker = candidate.source_worker_id
                labels = self._detail.labels_of(event, source_worker_id=worker)
                if not isinstance(labels, str):
                    yield self._detail.family.name, labels

    def _apply(self, event: Event) -> str | None:
        when = stamp(event)
        refused = None
        for at, candidate in enumerate(self._candidates(event)):
            load = candidate.load
            if load is None:
                continue
            reason = refusal(load)
            if reason is not None:
                refused = refused or reason
                continue
            each = self._find_detail(candidate.source_worker_id, event)
            if each is not None:
                each.set(float(load), when)
            if at == 0:
                chosen = self._find([event])
                if isinstance(chosen, series.Latest):
                    chosen.set(float(load), when)
                else:
                    refused = chosen[0][1]
        return refused

    def _find_detail(self, worker: str, event: Event) -> series.Latest | None:
        if self._known_generation != self._detail.generation:
            self._known.clear()
            self._known_generation = self._detail.generation
        found = self._known.get(worker)
        if found is None or event.timestamp < found.created:
            each = self._detail.find(event, source_worker_id=worker)
            if isinstance(each, str):
                return None
            if len(self._known) >= _MAX_WORKERS:
                self._known.clear()
            found = self._known[worker] = each
        return found


class TrackLoad:
    """Keeps track of loads and their phases. It refuses no event.

    :param table: where label sets of loads are noted.
    :param event: name of the events that it is applied to.
    :param timed: whether these events say in ``timed`` that a timer logged them.
    :param ended: where ends of loads are left for `Loads.forget`.
    """

    __slots__ = ("_ended", "_event", "_labels", "_loads", "_noted", "_table", "_timed", "_whole")

    def __init__(
        self, loads: Loads, table: LoadTable, event: str, timed: bool, ended: list[Any]
    ) -> None:
        self._loads = loads
        self._table = table
        self._event = event
        self._whole = event in ("load_started", "load_finished")
        self._timed = timed
        self._ended = ended
        self._labels: LoadLabels | None = None
        self._noted = NEVER

    def apply(self, events: list[Any]) -> Refused:
        events = [event for event in events if event.load_id is not None]
        if self._timed:  # what a timer did not log may be of another load than it was logged in
            events = [event for event in events if event.timed is not False]
        if self._event == "load_finished":
            for event in events:
                self._loads.of(event.proc, event.load_id).end(event.seq)
            self._ended += events
            return ()
        if self._labels is None and events:
            self._labels = self._table.labels_of(events[0], whole=self._whole)
        labels = self._labels
        if labels is None or not events:
            return ()  # none has a load, or the phase is not a known one
        oldest = events[0].timestamp
        if self._event != "load_phase_finished" and oldest < self._noted:
            self._table.note(labels, oldest)
            self._noted = oldest
        phase, runs = labels[2], self._event == "load_phase_started"
        for event in events:
            load = self._loads.of(event.proc, event.load_id)
            if self._whole:
                load.start(event.seq, labels, event.timestamp)
            else:
                load.note_phase(phase, event.seq, runs)
        return ()

    def targets(self, event: Any) -> Iterator[Target]:
        if event.load_id is not None:
            labels = self._table.labels_of(event, whole=self._whole)
            if labels is not None:
                for name in self._table.families:
                    yield name, labels


class CountCalls:
    """Counts calls of recorders that no family answers.

    :param cap: most names that are told apart; None: no limit.
    """

    __slots__ = ("_calls", "_cap")

    def __init__(self, calls: Calls, cap: int | None) -> None:
        self._calls = calls
        self._cap = cap

    def apply(self, events: list[Any]) -> Refused:
        self._calls.note(events, self._cap)
        return ()

    def targets(self, event: Event) -> Iterator[Target]:  # noqa: ARG002
        return iter(())


class NoteLocks:
    """Notes which processes write where there are no locks: one that is granted says nothing."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def apply(self, events: list[Any]) -> Refused:
        for event in events:
            if event.locked is False:
                self._state.books.open(event.proc).locked = False
        return ()

    def targets(self, event: Event) -> Iterator[Target]:  # noqa: ARG002
        return iter(())


class Skip:
    """Counts events that the schema does not know."""

    __slots__ = ()

    def apply(self, events: list[Event]) -> Refused:
        return [(event, SKIPPED) for event in events]

    def targets(self, event: Event) -> Iterator[Target]:  # noqa: ARG002
        return iter(())
