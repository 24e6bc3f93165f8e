"""The catalogue: which events there are, and which families are derived from them, as one value.

A row says how a family is derived from an event: what it measures, which labels it carries and
what an unexpected label value becomes. The decoder, the fold, the snapshot and the exposition take
a catalogue; none of them reads a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

from mx_log import schema
from mx_log.schema import OPTIONAL_TEXT, TEXT

from .decode import Decoder, Event

#: How a family measures the events it is derived from.
COUNT = "counter, one an event"
SUM = "counter, adds a field"
HISTOGRAM = "histogram of a field"
LATEST = "gauge, most recent value"
VALUE = "gauge, most recent value of a field"
PRESENCE = "gauge, always 1"
IN_PROGRESS = "gauge, loads that run"
ABANDONED = "counter, loads whose writer is gone"

#: What becomes of a label value outside of the label's domain: it is kept, or the observation
#: is dropped (and counted as refused), or it becomes the value given here.
KEEP = "\0keep"
DROP = "\0drop"


#: The event of a call of a recorder that the emitter does not know.
RECORDER_CALLED = "recorder_called"

#: What brings the zero series of a counter into being: a header, for its scheme; or any event that
#: names a policy, for that policy and its scheme.
WITH_HEADER = "header"
WITH_POLICY = "policy"


#: A field of an event, and where in it: the keys of objects and numbers of lists to follow.
Path = tuple[str | int, ...]


def find(event: Event, paths: tuple[Path, ...]) -> Any:
    """What is at the first of the paths that leads somewhere; None where none does."""
    for name, *keys in paths:
        value: Any = getattr(event, str(name), None)
        for key in keys:
            try:
                value = value[key]
            except (TypeError, LookupError):
                value = None
        if value is not None:
            return value
    return None


def as_text(value: object) -> str | None:
    """What an engine logged as a label's value; None for what is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, (int, float)) else None


class Value(NamedTuple):
    """A known value of a label, and what it means."""

    name: str
    doc: str


class Label(NamedTuple):
    """A label, read from the event's field of the same name, or by ``paths``.

    ``doc`` says what the label is. ``values`` are its known values, None for a free label;
    ``unexpected`` says what becomes of any other one, and ``null`` what a missing value becomes.
    ``opt_in`` labels show only when they are asked for: their domain grows without end.
    """

    name: str
    doc: str
    values: tuple[Value, ...] | None = None
    unexpected: str = KEEP
    null: str = ""
    max_length: int | None = None
    opt_in: bool = False
    paths: tuple[Path, ...] = ()

    def read(self, event: Event) -> str | None:
        """The value that an event gives; None where it gives none."""
        if self.paths:
            return as_text(find(event, self.paths))
        found: str | None = getattr(event, self.name, None)
        return found

    @property
    def domain(self) -> tuple[str, ...] | None:
        """Names of the known values, None for a free label."""
        return None if self.values is None else tuple(value.name for value in self.values)

    def resolve(self, value: str | None) -> str | None:
        """The label's value for a logged one; None when the observation is to be dropped."""
        if self.max_length is not None:
            value = (value or "").strip()[: self.max_length] or None
        if value is None:
            value = self.null
        domain = self.domain
        if domain is not None and value not in domain:
            if self.unexpected == DROP:
                return None
            if self.unexpected != KEEP:
                return self.unexpected
        # Prometheus's parser takes a zero byte for the end of the page.
        return value.replace("\0", "\ufffd")


@dataclass(frozen=True)
class Family:
    """One row: a family and how it is derived.

    ``events`` name what it is derived from, ``field`` holds the amount or observation.
    ``recorder``: of `recorder_called` events, the calls of this one. ``paths`` lead to the amount
    or observation where it is in no field of its own. ``own``: it is none of ours, and how it is
    derived may change between two runs.
    ``zeros`` names what brings its zero series into being: `WITH_HEADER` or `WITH_POLICY`; there
    is one for each value in its labels' domains.
    """

    name: str
    measure: str
    help: str
    labels: tuple[Label, ...]
    events: tuple[str, ...]
    since: str
    field: str = ""
    buckets: tuple[float, ...] = ()
    zeros: str = ""
    recorder: str = ""
    paths: tuple[Path, ...] = ()
    own: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """What a series of this family is made of: one with another fingerprint does not merge."""
        parts = (self.measure, " ".join(self.label_names(opt_in=True)), *map(repr, self.buckets))
        return "; ".join((*parts, repr(self._rule)) if self.own else parts)

    @property
    def _rule(self) -> tuple[object, ...]:
        """How it is derived, without what is said of it."""
        labels = [
            (each.domain, each.unexpected, each.null, each.max_length, each.opt_in, each.paths)
            for each in self.labels
        ]
        return self.events, self.recorder, self.field, self.paths, self.zeros, labels

    def value_of(self) -> Callable[[Any], Any]:
        """What reads the amount or observation of an event."""
        return attrgetter(self.field) if self.field else partial(find, paths=self.paths)

    @property
    def type(self) -> str:
        """The Prometheus type."""
        return self.measure.partition(",")[0].partition(" ")[0]

    def label_names(self, *, opt_in: bool = False) -> tuple[str, ...]:
        """Names of its labels in order, with or without the opt-in ones."""
        return tuple(label.name for label in self.shown(opt_in=opt_in))

    def shown(self, *, opt_in: bool = False) -> tuple[Label, ...]:
        """Its labels in order, with or without the opt-in ones."""
        return tuple(label for label in self.labels if opt_in or not label.opt_in)

    @cached_property
    def has_opt_in(self) -> bool:
        """Whether one of its labels shows only when asked for."""
        return any(label.opt_in for label in self.labels)


def label_values(labels: tuple[Label, ...], event: dict[str, Any]) -> tuple[str, ...] | str:
    """The label values of an event, or the name of the label that drops the observation."""
    values = []
    for label in labels:
        value = label.resolve(event.get(label.name))
        if value is None:
            return label.name
        values.append(value)
    return tuple(values)


def _as_tuple(key: Any) -> tuple[str | None, ...]:
    return key if isinstance(key, tuple) else (key,)


class Catalog:
    """Events by name and families in the order of the page. It does not change.

    :param events: the schema of the log (`mx_log.schema`).
    :param families: one row a family; each names events of the schema.
    """

    def __init__(self, events: Iterable[schema.Event], families: Iterable[Family]) -> None:
        #: name -> event
        self.events: Mapping[str, schema.Event] = {event.name: event for event in events}
        self.families: tuple[Family, ...] = tuple(families)
        #: name -> family
        self.by_name: Mapping[str, Family] = {family.name: family for family in self.families}
        #: Lines to these events.
        self.decoder = Decoder(self.events.values())
        labels = {label.name for family in self.families for label in family.labels}
        #: event -> fields, each text or null, by which its events are told apart: two events that
        #: agree in all of them feed the same series.
        self.keys: Mapping[str, tuple[str, ...]] = {
            event.name: (
                "scheme",
                *(["recorder"] if event.name == RECORDER_CALLED else []),
                *(
                    field.name
                    for field in event.fields
                    if field.kind in (TEXT, OPTIONAL_TEXT) and field.name in labels
                ),
            )
            for event in self.events.values()
        }
        #: event -> labels that are read of it in another way; they tell events apart as well.
        self._read: dict[str, tuple[Label, ...]] = {
            name: tuple(
                dict.fromkeys(
                    label
                    for family in self.families
                    if name in family.events
                    for label in family.labels
                    if label.paths
                )
            )
            for name in self.events
        }

    def key_of(self, name: str) -> Callable[[Any], Any]:
        """What gives, of events of a name, a value by which they are told apart: a text or null,
        or a tuple of these."""
        key, read = attrgetter(*self.keys[name]), self._read[name]
        if not read:
            return key
        return lambda event: (*_as_tuple(key(event)), *(label.read(event) for label in read))

    def with_buckets(self, buckets: Mapping[str, tuple[float, ...]]) -> Catalog:
        """The same with other boundaries.

        :param buckets: name of a histogram -> its upper boundaries, ascending.
        """
        families = [
            replace(family, buckets=buckets.get(family.name, family.buckets))
            for family in self.families
        ]
        return Catalog(self.events.values(), families)

    def __reduce__(self) -> tuple[Any, ...]:
        # The decoder's types are made again where the catalogue is taken out.
        return Catalog, (tuple(self.events.values()), self.families)
