"""A window of time: of a log, only what was logged within it is folded.

An event outside of it is met all the same, so that its number is not lost; nothing is derived from
it. A window is about what the timestamps say, and a timestamp's text is in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .catalog import Catalog
from .decode import Event, Rejected
from .load_tracker import Loads
from .state import State


class Outside(Event):
    """An event that is of no matter. No catalogue has events of this type, so it is skipped."""


def outside(event: Event) -> Event:
    """What stands for an event that is of no matter; it was met at its time all the same."""
    return Outside(timestamp=event.timestamp, proc=event.proc, seq=event.seq, scheme="")


class Window(NamedTuple):
    """From a timestamp on, and before another one; an empty one is no limit.

    :ivar alive_from: a process that logs then or later lives at the window's end, whatever became
        of it since.
    """

    since: str = ""
    until: str = ""
    alive_from: str = ""

    def cut(self, events: Iterable[Event | Rejected], alive: set[str]) -> list[Event | Rejected]:
        """The same events, those outside as `Outside`; processes that live are noted in
        ``alive``."""
        found: list[Event | Rejected] = []
        for event in events:
            if not isinstance(event, Rejected):
                when = event.timestamp
                if self.until and when >= self.alive_from:
                    alive.add(event.proc)
                if when < self.since or (self.until and when >= self.until):
                    event = Outside(timestamp="", proc=event.proc, seq=event.seq, scheme="")
            found.append(event)
        return found

    def cut_state(self, catalog: Catalog, state: State) -> State | None:
        """What of a state, which keeps no times, is within: all of it, nothing but which events
        were met, or None where nobody can tell. The state is used up."""
        if state.last_event < self.since:
            met = state.split_off(catalog, list(state.books))
            met.loads = Loads()
            return met
        if not self.since and (not self.until or state.last_event < self.until):
            return state
        return None


#: Without limits.
ALWAYS = Window()
