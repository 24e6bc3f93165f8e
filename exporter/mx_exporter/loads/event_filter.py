"""Which events are meant where somebody says which loads are.

What a line says of itself, its rank and its scheme, goes for that line. Where it was logged a
header of its process says, and an event of a load goes with its load, whose model and engine its
start names. An event of no load is meant where it names them itself.
"""

from __future__ import annotations

from typing import Any

from mx_log.schema import HEADERS

from .model import Process
from .selection import Selection
from .track import process_of

#: Events that name the model and the engine of their load; the first of these that there is counts.
_NAMING = ("load_started", "load_finished", "load_phase_started", "load_phase_finished")


class EventFilter:
    """Tells the events that are meant from the others, in whatever order they come.

    What is kept grows with the number of processes and loads.

    :param selection: what it says of outcomes and of times is not asked here.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._by_process = bool(selection.pods or selection.nodes)
        self._by_load = bool(selection.models or selection.engines)
        #: proc -> whether it ran where it is to have run
        self._processes: dict[str, bool] = {}
        #: proc and load -> which event named it (of `_NAMING`, its number), and whether it is meant
        self._loads: dict[tuple[str, str], tuple[int, int, bool]] = {}

    def learn(self, event: Any) -> None:
        """Take what an event says of its process or its load."""
        name = type(event).__name__
        if self._by_process and name in HEADERS and event.proc not in self._processes:
            self._processes[event.proc] = self._selection.admits_process(process_of(event))
        elif self._by_load and name in _NAMING and (load := _load_of(event)) is not None:
            named = (_NAMING.index(name), event.seq, self._names(event))
            self._loads[load] = min(named, self._loads.get(load, named))

    def admits(self, event: Any, *, last: bool = False) -> bool | None:
        """Whether an event is meant; None where an event that is still to come will tell.

        :param last: none is to come.
        """
        if not self._selection.admits_line(event.rank, event.scheme):
            return False
        if self._by_process:
            meant = self._processes.get(event.proc)
            if meant is None and last:
                meant = self._selection.admits_process(Process(proc=event.proc))
            if not meant:
                return meant
        if not self._by_load:
            return True
        load = _load_of(event)
        if load is None:
            return self._names(event)
        by, _, meant = self._loads.get(load, (len(_NAMING), 0, False))
        return meant if by == 0 or last else None

    def _names(self, event: Any) -> bool:
        model, engine = getattr(event, "model", None), getattr(event, "engine", None)
        return self._selection.admits_named(model, engine)


def _load_of(event: Any) -> tuple[str, str] | None:
    """The load that an event is of; none for the end of one that was observed as a whole."""
    whole = type(event).__name__ == "load_finished" and event.timed is False
    return None if event.load_id is None or whole else (event.proc, event.load_id)
