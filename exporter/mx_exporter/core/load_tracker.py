"""Loads in progress and loads abandoned.

A load is known by its process and ``load_id``. What is kept depends on which events were met,
never on their order: segments of one process may be read in any order.
"""

from __future__ import annotations

from typing import Any

from .catalog import ABANDONED, IN_PROGRESS, Catalog, label_values

#: engine, model, phase, scheme. The phase is empty between phases.
LoadLabels = tuple[str, str, str, str]


class Load:
    """What was met of one load: numbers (``seq``) of its latest events."""

    __slots__ = ("ended", "labels", "phases", "since", "started")

    def __init__(self) -> None:
        self.started = -1
        #: Timestamp of its start; empty if not known.
        self.since = ""
        self.ended = -1
        #: As its start named them.
        self.labels: LoadLabels = ("", "", "", "")
        #: phase -> (number of its latest event, whether that was its start)
        self.phases: dict[str, tuple[int, bool]] = {}

    def start(self, seq: int, labels: LoadLabels, timestamp: str) -> None:
        """It started, with these labels."""
        if seq > self.started:
            self.started, self.labels, self.since = seq, labels, timestamp

    def end(self, seq: int) -> None:
        """It ended."""
        self.ended = max(self.ended, seq)

    def note_phase(self, phase: str, seq: int, runs: bool) -> None:
        """A phase of it started (``runs``) or ended."""
        known = self.phases.get(phase)
        if known is None or seq > known[0]:
            self.phases[phase] = (seq, runs)

    @property
    def runs(self) -> bool:
        """It started, and no later event ended it."""
        return self.started > self.ended

    @property
    def where(self) -> LoadLabels:
        """Its labels, with the phase that runs; the one that started last if there are several."""
        running = [
            (seq, phase)
            for phase, (seq, runs) in self.phases.items()
            if runs and seq > self.started
        ]
        engine, model, _, scheme = self.labels
        return (engine, model, max(running)[1] if running else "", scheme)


class Loads:
    """The loads of all processes; disjoint processes merge."""

    __slots__ = ("abandoned", "open", "series")

    def __init__(self) -> None:
        #: proc -> load_id -> load. One that ended is kept while an event before its end may
        #: still be met.
        self.open: dict[str, dict[str, Load]] = {}
        #: Label sets met so far -> smallest timestamp of an event that named them.
        self.series: dict[LoadLabels, str] = {}
        self.abandoned: dict[LoadLabels, int] = {}

    def note(self, labels: LoadLabels, timestamp: str) -> None:
        """A start named these labels: both families have a series for them from now on."""
        known = self.series.get(labels)
        if known is None or timestamp < known:
            self.series[labels] = timestamp

    def of(self, proc: str, load_id: str) -> Load:
        """The load of an event."""
        loads = self.open.get(proc)
        if loads is None:
            loads = self.open[proc] = {}
        load = loads.get(load_id)
        if load is None:
            load = loads[load_id] = Load()
        return load

    def forget(self, proc: str, load_id: str, complete: int) -> None:
        """Forget a load that ended, when all numbers below ``complete`` were met, its end among
        them: no event of it that came before can turn up any more."""
        loads = self.open.get(proc, {})
        load = loads.get(load_id)
        if load is not None and not load.runs and load.ended < complete:
            del loads[load_id]
            if not loads:
                del self.open[proc]

    def settle(self, proc: str) -> None:
        """The writer is gone: what it left open was abandoned."""
        for load in self.open.pop(proc, {}).values():
            if load.runs:
                self.abandoned[load.where] = self.abandoned.get(load.where, 0) + 1

    def in_progress(self) -> dict[LoadLabels, int]:
        """Loads that run, by labels; 0 for label sets that none has now."""
        running = dict.fromkeys(self.series, 0)
        for loads in self.open.values():
            for load in loads.values():
                if load.runs:
                    running[load.where] = running.get(load.where, 0) + 1
        return running

    def oldest(self) -> dict[LoadLabels, str]:
        """When the oldest of the loads that run began, by labels; empty for label sets that none
        has now."""
        found = dict.fromkeys(self.series, "")
        for loads in self.open.values():
            for load in loads.values():
                if load.runs and load.since:
                    where = load.where
                    found[where] = min(found.get(where) or load.since, load.since)
        return found

    def merge(self, other: Loads) -> None:
        """Take over the loads of other processes."""
        self.open.update(other.open)
        for labels, timestamp in other.series.items():
            self.note(labels, timestamp)
        for labels, count in other.abandoned.items():
            self.abandoned[labels] = self.abandoned.get(labels, 0) + count


class LoadTable:
    """The label sets of loads, under the cap that holds for each family of loads.

    :param loads: where they are noted.
    :param cap: most label sets; None: no limit.
    """

    def __init__(self, catalog: Catalog, loads: Loads, cap: int | None) -> None:
        tracking = [f for f in catalog.families if f.measure in (IN_PROGRESS, ABANDONED)]
        #: Names of the families that show loads.
        self.families = tuple(family.name for family in tracking)
        #: Names of the events that they are derived from.
        self.events = frozenset(event for family in tracking for event in family.events)
        self._labels = tracking[0].labels if tracking else ()
        self._series = loads.series
        self._note = loads.note
        self._cap = cap
        #: Events that found no room for their label set.
        self.refused = 0

    def labels_of(self, event: Any, *, whole: bool) -> LoadLabels | None:
        """The labels of a ``whole`` load or of a phase; None when the phase is not a known one."""
        given = {
            "engine": event.engine,
            "model": event.model,
            "phase": None if whole else event.phase,
            "scheme": event.scheme,
        }
        values = label_values(self._labels, given)
        if isinstance(values, str):
            return None
        engine, model, phase, scheme = values
        return engine, model, phase, scheme

    def note(self, labels: LoadLabels, timestamp: str, events: int) -> bool:
        """Note labels that so many events named; False when there is no room for them."""
        full = self._cap is not None and len(self._series) >= self._cap
        if full and labels not in self._series:
            self.refused += events
            return False
        self._note(labels, timestamp)
        return True
