"""Plans: what is done with all events that say the same.

But for when, who, the number and what was measured, a log of any length says a few hundred
different things. What follows from each (its series, the zero series it brings into being, its
loads' labels) is worked out once and kept, and is done for many events at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from mx_log.schema import EVENTS, HEADERS, OPTIONAL_TEXT, TEXT

from .builtin import BY_NAME, FAMILIES
from .catalog import ABANDONED, COUNT, HISTOGRAM, IN_PROGRESS, LATEST, PRESENCE, SUM, label_values
from .load_tracker import LoadLabels
from .reducers import (
    SKIPPED,
    Refused,
    Step,
    counting,
    counting_detail,
    latest_loads,
    observing,
    presenting,
    skip,
    summing,
)
from .series import stamp
from .series_table import Table
from .state import State
from .typed import TYPES, Event

#: Later than every timestamp.
_NEVER = "~"

#: Label values are free text. Plans are forgotten when there are this many, or when their values
#: have this many characters together; one whose values are longer than the last is not kept.
_MAX_PLANS = 20_000
_MAX_CHARACTERS = 4_000_000
_MAX_SAID = 2_000

_LABELS = frozenset(label.name for family in FAMILIES for label in family.labels)

#: event -> fields whose values, all of them text or null, tell what it says.
_SAID = {
    event.name: (
        "scheme",
        *(
            field.name
            for field in event.fields
            if field.kind in (TEXT, OPTIONAL_TEXT) and field.name in _LABELS
        ),
    )
    for event in EVENTS.values()
}


def _length(values: Iterable[str | None]) -> int:
    """How many characters there are."""
    return sum(len(value) for value in values if value is not None)


class Plan:
    """What is done with the events of one name that say the same.

    ``births`` are done for the first event and for those older than all before them, ``steps``
    for every one. At most one of the steps refuses events.
    """

    __slots__ = ("births", "born", "event", "events", "steps")

    def __init__(
        self, event: str, births: tuple[Callable[[Event, str], None], ...], steps: tuple[Step, ...]
    ) -> None:
        self.event = event
        self.births = births
        self.steps = steps
        #: Events that wait for `Plans.carry_out`.
        self.events: list[Event] = []
        #: Smallest timestamp of an event that births were done for.
        self.born = _NEVER


#: What an event says, as one value; and the plans by that.
Shape = tuple[Callable[[Event], Any], dict[object, Plan]]


class Plans:
    """The plans of one fold."""

    def __init__(self, state: State, max_series: int | None) -> None:
        self._state = state
        self._cap = max_series
        self._tables: dict[str, Table[Any]] = {
            family.name: Table(family, state.series[family.name], max_series) for family in FAMILIES
        }
        self._details: dict[str, Table[Any]] = {
            name: Table(BY_NAME[name], store, max_series, opt_in=True)
            for name, store in state.detail.items()
        }
        self._loads_refused = 0
        self._ended: list[Any] = []
        self._births: dict[object, str] = {}
        self._skip = Plan("", (), (skip,))
        #: How many plans are kept, and how long the values are by which they are found.
        self._kept = self._characters = 0
        #: Plans in which events wait for `carry_out`. Should it fail, those that are left go on
        #: waiting here.
        self.touched: deque[Plan] = deque()
        #: By type of event.
        self.shapes: dict[type[Event], Shape] = {
            kind: (attrgetter(*_SAID[name]), {}) for name, kind in TYPES.items()
        }

    def find(self, event: Event) -> Plan:
        """The plan for an event."""
        kind = type(event)
        if kind not in self.shapes:
            return self._skip
        says, plans = self.shapes[kind]
        said = says(event)
        plan = plans.get(said)
        if plan is None:
            plan = self._make(kind.__name__)
            length = _length(said if isinstance(said, tuple) else (said,))
            if length <= _MAX_SAID:
                self._make_room(length)
                plans[said] = plan
        return plan

    def _make_room(self, length: int) -> None:
        """Count one more plan, whose values are so long; forget the others when it is too many."""
        self._kept += 1
        self._characters += length
        if self._kept > _MAX_PLANS or self._characters > _MAX_CHARACTERS:
            for _, plans in self.shapes.values():
                plans.clear()
            self._kept, self._characters = 1, length

    def carry_out(self, *, in_order: bool) -> list[tuple[Event, str]]:
        """Fold the events that wait, and enter what became of them; return those refused.

        ``in_order`` says that they were laid with their plans in order of their stamps.
        """
        state, touched = self._state, self.touched
        all_refused = []
        while touched:
            plan = touched.popleft()
            events = plan.events
            plan.events = []
            if not in_order:
                events.sort(key=stamp)
            oldest = events[0].timestamp
            if oldest < plan.born:
                plan.born = oldest
                for birth in plan.births:
                    birth(events[0], oldest)
            refused: Refused = ()
            for step in plan.steps:
                refused = step(events) or refused
            for event, reason in refused:
                book = state.books[event.proc]
                if reason == SKIPPED:
                    book.skipped += 1
                    state.skipped += 1
                else:
                    book.refused += 1
                    state.refused[reason] += 1
                    all_refused.append((event, reason))
            folded = len(events) - len(refused)
            if folded:
                state.events[plan.event] += folded
        # Not before the other events of the same load were met.
        for event in self._ended:
            proc = event.proc
            state.loads.forget(proc, event.load_id, state.books[proc].complete)
        self._ended.clear()
        return all_refused

    def take_over_refusals(self, other: Plans) -> None:
        """Go on counting what the cap refused where the plans of another state left off."""
        for mine, theirs in ((self._tables, other._tables), (self._details, other._details)):
            for name, table in mine.items():
                table.refused, table.capped = theirs[name].refused, theirs[name].capped
        self._loads_refused = other._loads_refused

    def capped(self, *, opt_in: bool) -> Iterator[tuple[str, int]]:
        """Families that refused a new label set because of the cap, and how many events found no
        series for it."""
        tables = [*self._tables.items(), *(self._details.items() if opt_in else ())]
        for name, table in tables:
            if table.capped:
                yield name, table.refused
        if self._loads_refused:
            for family in FAMILIES:
                if family.measure in (IN_PROGRESS, ABANDONED):
                    yield family.name, self._loads_refused

    def _make(self, name: str) -> Plan:
        births = []
        steps: list[Step] = []
        if name in HEADERS:
            births.append(self._births_with("header", "scheme"))
            steps.append(self._note_locks)
        if any(field.name == "policy" for field in EVENTS[name].fields):
            births.append(self._births_with("policy", "policy", "scheme"))
        for family in FAMILIES:
            if name not in family.events:
                continue
            table, detail = self._tables[family.name], self._details.get(family.name)
            if family.measure == COUNT:
                steps.append(counting(table))
                if detail is not None:
                    steps.append(counting_detail(detail))
            elif family.measure == SUM:
                steps.append(summing(table, family.field))
            elif family.measure == HISTOGRAM:
                steps.append(observing(table, family.field))
            elif family.measure == PRESENCE:
                steps.append(presenting(table))
            elif family.measure == LATEST and detail is not None:
                steps.append(latest_loads(table, detail, family.field))
        if name in BY_NAME["mx_loads_in_progress"].events:
            steps.append(self._following_loads(name))
        return Plan(name, tuple(births), tuple(steps))

    def _births_with(self, kind: str, *names: str) -> Callable[[Event, str], None]:
        """Makes the zero series that come with an event of some label values."""
        tables = [self._tables[family.name] for family in FAMILIES if family.born_with == kind]

        def bear(event: Event, timestamp: str) -> None:
            given = {name: getattr(event, name) for name in names}
            key = (kind, *given.values())
            if timestamp >= self._births.get(key, _NEVER):
                return
            for table in tables:
                table.bear(given, timestamp)
            if _length(given.values()) > _MAX_SAID:
                return
            if len(self._births) >= _MAX_PLANS:
                self._births.clear()
            self._births[key] = timestamp

        return bear

    def _note_locks(self, events: list[Event]) -> Refused:
        for event in events:
            # Where the writer's file system has no locks, a lock that is granted says nothing.
            if getattr(event, "locked", None) is False:
                self._state.books[event.proc].locked = False
        return ()

    def _following_loads(self, name: str) -> Step:
        """Keeps track of loads; refused only where the cap leaves no room for their labels."""
        loads = self._state.loads
        whole = name in ("load_started", "load_finished")
        timed = any(field.name == "timed" for field in EVENTS[name].fields)
        labels: LoadLabels | None = None
        noted = _NEVER

        def follow(events: list[Any]) -> Refused:
            nonlocal labels, noted
            events = [event for event in events if event.load_id is not None]
            if timed:  # what a timer did not log may be of another load than it was logged in
                events = [event for event in events if event.timed is not False]
            if name == "load_finished":
                for event in events:
                    loads.of(event.proc, event.load_id).end(event.seq)
                self._ended += events
                return ()
            if labels is None and events:
                labels = _labels_of_load(events[0], whole=whole)
            if labels is None or not events:
                return ()  # none has a load, or the phase is not a known one
            if name != "load_phase_finished" and events[0].timestamp < noted:
                if self._at_cap(labels):
                    self._loads_refused += len(events)
                    return [(event, "series_cap") for event in events]
                noted = events[0].timestamp
                loads.note(labels, noted)
            phase, runs = labels[2], name == "load_phase_started"
            for event in events:
                load = loads.of(event.proc, event.load_id)
                if whole:
                    load.start(event.seq, labels)
                else:
                    load.note_phase(phase, event.seq, runs)
            return ()

        return follow

    def _at_cap(self, labels: LoadLabels) -> bool:
        series = self._state.loads.series
        return self._cap is not None and labels not in series and len(series) >= self._cap


def _labels_of_load(event: Any, *, whole: bool) -> LoadLabels | None:
    """Labels of a ``whole`` load or of a phase; None when the phase is not a known one."""
    given = {
        "engine": event.engine,
        "model": event.model,
        "phase": None if whole else event.phase,
        "scheme": event.scheme,
    }
    values = label_values(BY_NAME["mx_loads_in_progress"].labels, given)
    if isinstance(values, str):
        return None
    engine, model, phase, scheme = values
    return engine, model, phase, scheme
