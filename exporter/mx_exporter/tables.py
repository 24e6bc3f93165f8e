"""Tables: the series of one family, found by the raw label values of an event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any, Generic, TypeVar

from .families import HISTOGRAM, LATEST, PRESENCE, SUM, Family, label_values
from .parse import Record
from .series import Counted, Latest, Observed, Present, Summed
from .state import SeriesByLabels

S = TypeVar("S", Present, Counted, Summed, Observed, Latest)

#: Raw label values are free text; a cache of them is emptied when it has grown to this many.
CACHE_LIMIT = 20_000


class Table(Generic[S]):
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
        #: Times that an event found no series because of the cap.
        self.refused = 0
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
                self.refused += 1
                return found
            if len(self._cache) >= CACHE_LIMIT:
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
