"""Tables: the series of one family, found by the label values of an event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar

from .catalog import HISTOGRAM, LATEST, PRESENCE, SUM, Family, label_values
from .series import Counted, Latest, Observed, Present, Summed
from .state import SeriesByLabels
from .typed import Event

S = TypeVar("S", Present, Counted, Summed, Observed, Latest)


class Table(Generic[S]):
    """The series of one family, found by an event's label values."""

    def __init__(
        self,
        family: Family,
        store: SeriesByLabels,
        cap: int | None,
        *,
        opt_in: bool = False,
    ) -> None:
        self._labels = family.shown(opt_in=opt_in)
        self._store: dict[tuple[str, ...], S] = store  # type: ignore[assignment]
        self._make: Callable[[str], S] = maker(family)
        self._cap = cap
        #: Times that an event found no series because of the cap.
        self.refused = 0
        self.capped = False

    def find(self, event: Event, **instead: object) -> S | str:
        """The event's series, made when it is the first; or why there is none.

        ``instead`` are labels that the event has not as fields.
        """
        given = {label.name: getattr(event, label.name, None) for label in self._labels}
        values = label_values(self._labels, given | instead)
        if isinstance(values, str):
            return f"unknown_{values}"
        series = self.at(values, event.timestamp)
        if series is None:
            self.refused += 1
            return "series_cap"
        return series

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
