"""Handlers: what is done with all events of one name that agree in all labels.

A log of any length has only a few hundred such kinds of events. What follows from each kind (its
series, the zero series it brings into being, its load) is worked out once and kept, and is done
for many events at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mx_log.schema import HEADERS

from . import unanswered
from .catalog import (
    ABANDONED,
    COUNT,
    HISTOGRAM,
    IN_PROGRESS,
    LATEST,
    PRESENCE,
    SUM,
    VALUE,
    WITH_HEADER,
    WITH_POLICY,
    Catalog,
    Family,
)
from .decode import Event
from .load_tracker import LoadTable
from .reducers import (
    NEVER,
    Count,
    CountCalls,
    CountDetail,
    Latest,
    NoteLocks,
    Observe,
    Present,
    Reducer,
    SetLatest,
    Skip,
    Sum,
    Target,
    TrackLoad,
)
from .series_table import SeriesTable
from .state import State

#: Label values are free text. Handlers are forgotten when there are this many, or when their
#: values have this many characters together; one whose own values are longer is not kept.
_MAX_HANDLERS = 20_000
_MAX_CHARACTERS = 4_000_000
_MAX_LABELS = 2_000


class ZeroSeries:
    """Makes the zero series that come with an event of some label values.

    :param tables: of the families that have such series.
    :param names: the labels that the event gives; all others take each value of their domain.
    """

    def __init__(self, tables: Iterable[SeriesTable[Any]], names: tuple[str, ...]) -> None:
        self._tables = list(tables)
        self._names = names
        #: label values -> smallest timestamp of an event that they were made for
        self._made: dict[tuple[str, ...], str] = {}

    def make(self, event: Event) -> None:
        """Make them as of the event's timestamp; those that are there become no younger."""
        given: dict[str, str] = {name: getattr(event, name) for name in self._names}
        key = tuple(given.values())
        if event.timestamp >= self._made.get(key, NEVER):
            return
        for table in self._tables:
            table.make_zeros(given, event.timestamp)
        if _length(key) > _MAX_LABELS:
            return
        if len(self._made) >= _MAX_HANDLERS:
            self._made.clear()
        self._made[key] = event.timestamp


class Handler:
    """Handles the events of one name that agree in all labels.

    ``zeros`` are made for the first event and for each that is older than all before it; the
    ``reducers`` are applied to every one. An event that several refuse is refused once.
    """

    __slots__ = ("event", "oldest", "pending", "reducers", "zeros")

    def __init__(
        self, event: str, zeros: tuple[ZeroSeries, ...], reducers: tuple[Reducer, ...]
    ) -> None:
        self.event = event
        self.zeros = zeros
        self.reducers = reducers
        #: Events that wait for the fold's flush.
        self.pending: list[Event] = []
        #: Smallest timestamp of an event that zero series were made for.
        self.oldest = NEVER

    def targets(self, event: Event) -> Iterator[Target]:
        """The series that one of these events feeds: family and label values."""
        for reducer in self.reducers:
            yield from reducer.targets(event)


#: What tells the events of one type apart, as one value; and the handlers by that.
ByLabels = tuple[Callable[[Event], Any], dict[object, Handler]]


class Handlers:
    """The handlers of one fold.

    :param cap: most series of a family that a page shows; None: no limit.
    """

    def __init__(self, catalog: Catalog, state: State, cap: int | None) -> None:
        self._catalog = catalog
        self._state = state
        self._cap = cap
        self._tables: dict[str, SeriesTable[Any]] = {
            family.name: SeriesTable(family, state.series[family.name], cap)
            for family in catalog.families
        }
        self._details: dict[str, SeriesTable[Any]] = {
            name: SeriesTable(catalog.by_name[name], store, cap, opt_in=True)
            for name, store in state.detail.items()
        }
        self._loads = LoadTable(catalog, state.loads, cap)
        self._zeros = {
            WITH_HEADER: self._zero_series(WITH_HEADER, "scheme"),
            WITH_POLICY: self._zero_series(WITH_POLICY, "policy", "scheme"),
        }
        #: Ends of loads that were met since the last flush.
        self.ended: list[Any] = []
        self._skip = Handler("", (), (Skip(),))
        #: How many handlers are kept, and how long the values are by which they are found.
        self._kept = self._characters = 0
        #: By type of event.
        self.by_type: dict[type[Event], ByLabels] = {
            kind: (catalog.key_of(name), {}) for name, kind in catalog.decoder.types.items()
        }

    def find(self, event: Event) -> Handler:
        """The handler of an event."""
        kind = type(event)
        if kind not in self.by_type:
            return self._skip
        labels_of, handlers = self.by_type[kind]
        labels = labels_of(event)
        handler = handlers.get(labels)
        if handler is None:
            handler = self._make(event)
            length = _length(labels if isinstance(labels, tuple) else (labels,))
            if length <= _MAX_LABELS:
                self._make_room(length)
                handlers[labels] = handler
        return handler

    def _make_room(self, length: int) -> None:
        """Count one more handler, found by values so long; forget the others if too many."""
        self._kept += 1
        self._characters += length
        if self._kept > _MAX_HANDLERS or self._characters > _MAX_CHARACTERS:
            for _, handlers in self.by_type.values():
                handlers.clear()
            self._kept, self._characters = 1, length

    def _make(self, event: Event) -> Handler:
        name = type(event).__name__
        zeros: list[ZeroSeries] = []
        reducers: list[Reducer] = []
        fields = {field.name for field in self._catalog.events[name].fields}
        if name in HEADERS:
            zeros.append(self._zeros[WITH_HEADER])
            reducers.append(NoteLocks(self._state))
        if "policy" in fields:
            zeros.append(self._zeros[WITH_POLICY])
        recorder = getattr(event, "recorder", "") if name == unanswered.EVENT else ""
        for family in self._catalog.families:
            if name in family.events and family.recorder in ("", recorder):
                reducers += self._reducers(family)
        if name == unanswered.EVENT and not reducers:
            reducers.append(CountCalls(self._state.calls, self._cap))
        if name in self._loads.events:
            loads = self._state.loads
            reducers.append(TrackLoad(loads, self._loads, name, "timed" in fields, self.ended))
        return Handler(name, tuple(zeros), tuple(reducers))

    def _reducers(self, family: Family) -> Iterator[Reducer]:
        table, detail = self._tables[family.name], self._details.get(family.name)
        if family.measure == COUNT:
            yield Count(table)
            if detail is not None:
                yield CountDetail(detail)
        elif family.measure == SUM:
            yield Sum(table)
        elif family.measure == HISTOGRAM:
            yield Observe(table)
        elif family.measure == PRESENCE:
            yield Present(table)
        elif family.measure == VALUE:
            yield SetLatest(table)
        elif family.measure == LATEST and detail is not None:
            yield Latest(table, detail, family.field)
        else:
            assert family.measure in (IN_PROGRESS, ABANDONED), family.name

    def _zero_series(self, kind: str, *names: str) -> ZeroSeries:
        families = [family for family in self._catalog.families if family.zeros == kind]
        return ZeroSeries([self._tables[family.name] for family in families], names)


def _length(values: Iterable[str | None]) -> int:
    """How many characters there are."""
    return sum(len(value) for value in values if value is not None)
