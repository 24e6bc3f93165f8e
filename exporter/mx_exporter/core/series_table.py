"""Tables: the series of one family, found by the label values of an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any, Generic, TypeVar

from .catalog import HISTOGRAM, LATEST, PRESENCE, SUM, VALUE, Family, label_values
from .decode import Event
from .series import Counted, Latest, Observed, Present, Summed
from .series_cap import make_room
from .state import SeriesByLabels

S = TypeVar("S", Present, Counted, Summed, Observed, Latest)

_created: Callable[[Any], str] = attrgetter("created")


class SeriesTable(Generic[S]):
    """The series of one family, in a store that belongs to a state.

    :param store: label values -> series.
    :param cap: most series that a page shows of them; None: no limit.
    :param opt_in: the labels that show only when asked for are part of the label values.
    """

    def __init__(
        self, family: Family, store: SeriesByLabels, cap: int | None, *, opt_in: bool = False
    ) -> None:
        self.family = family
        self._labels = family.shown(opt_in=opt_in)
        self._store: dict[tuple[str, ...], S] = store  # type: ignore[assignment]
        self._make: Callable[[str], S] = maker(family)
        self._cap = cap
        #: Grows when series are dropped: one that was found before may be among them.
        self.generation = 0

    def labels_of(self, event: Event, **instead: object) -> tuple[str, ...] | str:
        """The label values of an event, or why it has no series.

        :param instead: labels that the event does not have as fields.
        """
        given = {label.name: label.read(event) for label in self._labels}
        values = label_values(self._labels, given | instead)
        return f"unknown_{values}" if isinstance(values, str) else values

    def find(self, event: Event, **instead: object) -> S | str:
        """The event's series, made when it is the first; or why there is none.

        Parameters as for `labels_of`.
        """
        values = self.labels_of(event, **instead)
        return values if isinstance(values, str) else self._at(values, event.timestamp)

    def make_zeros(self, given: Mapping[str, str], timestamp: str) -> None:
        """Make the zero series of the given labels, one for each value of the others' domains."""
        domains = [
            (label.resolve(given[label.name]),) if label.name in given else label.domain or ()
            for label in self._labels
        ]
        for values in product(*domains):
            self._at(values, timestamp)  # type: ignore[arg-type]

    def _at(self, values: tuple[str, ...], timestamp: str) -> S:
        """The series of these label values, made if need be."""
        found = self._store.get(values)
        if found is None:
            if make_room(self._store, self._cap, _created):
                self.generation += 1
            found = self._store[values] = self._make(timestamp)
        elif timestamp < found.created:
            found.created = timestamp
        return found


def maker(family: Family) -> Callable[[str], Any]:
    """What makes a fresh series of a family from the timestamp of its first event."""
    if family.measure == HISTOGRAM:
        return partial(Observed, bounds=family.buckets)
    return {PRESENCE: Present, SUM: Summed, LATEST: Latest, VALUE: Latest}.get(
        family.measure, Counted
    )
