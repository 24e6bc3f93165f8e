"""Which part of logs is folded: of which time, and of which loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ..core.decode import Decoder, Event, Rejected
from ..core.window import ALWAYS, Window, outside
from ..loads.event_filter import EventFilter
from ..loads.selection import EVERY, Selection
from .sorted_runs import SortedRuns, decoded

_encode = msgspec.json.encode


class Scope(NamedTuple):
    """What of logs is folded, and how it is told apart.

    :ivar selection: which events are meant (`EventFilter`), whatever their time.
    :ivar group_by: labels of `grouped.HEADER_LABELS`: a state for each group of processes.
    """

    window: Window = ALWAYS
    selection: Selection = EVERY
    group_by: tuple[str, ...] = ()

    @property
    def nobody(self) -> tuple[str, ...]:
        """The group of processes of which nothing is known."""
        return ("",) * len(self.group_by)


#: All of it, as one.
WHOLE = Scope()


class Cutting:
    """Cuts what lies outside of a scope from events, in whatever order they come.

    :param alive: gets the processes that live at the end of the window.
    """

    def __init__(self, scope: Scope, alive: set[str]) -> None:
        self._window = scope.window
        self._alive = alive
        self._filter = None if scope.selection == EVERY else EventFilter(scope.selection)
        #: Events of which nobody can tell yet.
        self._waiting = SortedRuns()

    def cut(self, events: list[Event | Rejected], procs: set[str]) -> list[Event | Rejected]:
        """The same events, those outside as `Outside`; some are kept back for `rest`.

        :param procs: gets the processes of the latter.
        """
        if self._filter is not None:
            events = self._chosen(self._filter, events, procs)
        return events if self._window == ALWAYS else self._window.cut(events, self._alive)

    def rest(self, decoder: Decoder) -> Iterator[list[Event | Rejected]]:
        """The events that were kept back, when there are no more."""
        chosen = self._filter
        if chosen is None:
            return
        for events in decoded(decoder, self._waiting):
            found = [
                each
                if isinstance(each, Rejected) or chosen.admits(each, last=True)
                else outside(each)
                for each in events
            ]
            yield found if self._window == ALWAYS else self._window.cut(found, self._alive)

    def _chosen(
        self, chosen: EventFilter, events: list[Event | Rejected], procs: set[str]
    ) -> list[Event | Rejected]:
        found: list[Event | Rejected] = []
        for event in events:
            if isinstance(event, Rejected):
                found.append(event)
                continue
            chosen.learn(event)
            meant = chosen.admits(event)
            if meant is None:
                procs.add(event.proc)
                self._waiting.add(b"", _encode(event))
            else:
                found.append(event if meant else outside(event))
        return found
