"""Loads in progress and loads abandoned.

A load is known by its process and ``load_id``. Its events say whether it runs, and whether its
process is gone says whether it is in progress then, or abandoned. What is kept depends on which
events were met and which processes are gone, never on the order in which either became known:
segments of one process may be read in any order, and one that was taken for gone may log again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from .catalog import ABANDONED, IN_PROGRESS, Catalog, label_values
from .series_cap import make_room

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
    def newest(self) -> int:
        """The number of its latest event."""
        return max(self.started, self.ended, *(seq for seq, _ in self.phases.values()))

    @property
    def where(self) -> LoadLabels:
        """Its labels, with the phase that runs; the one that started last if there are several."""
        running = self._running()
        engine, model, _, scheme = self.labels
        return (engine, model, running[-1] if running else "", scheme)

    def _running(self) -> list[str]:
        """Its phases that run, in the order in which they started."""
        running = [
            (seq, phase)
            for phase, (seq, runs) in self.phases.items()
            if runs and seq > self.started
        ]
        return [phase for _, phase in sorted(running)]

    def join(self, other: Load) -> None:
        """Take over what was met of it elsewhere."""
        self.start(other.started, other.labels, other.since)
        self.end(other.ended)
        for phase, (seq, runs) in other.phases.items():
            self.note_phase(phase, seq, runs)

    def outline(self, *, complete: bool) -> Outline:
        """What was met of it, as a value that loads share.

        :param complete: none of its events so far was missed. Then only that it runs, and in which
            phases, can matter to events that follow, and no number of an event.
        """
        if not complete:
            phases = tuple((phase, *known) for phase, known in sorted(self.phases.items()))
            return Outline(self.started, self.ended, self.labels, phases)
        running = enumerate(self._running(), 1)
        return Outline(0, -1, self.labels, tuple((phase, seq, True) for seq, phase in running))


class Outline(NamedTuple):
    """A `Load` that does not change, but for when it started: many are alike, and kept once."""

    started: int
    ended: int
    labels: LoadLabels
    phases: tuple[tuple[str, int, bool], ...]

    def load(self, since: str = "") -> Load:
        """The load, to go on from."""
        load = Load()
        load.since = since
        load.started, load.ended, load.labels = self.started, self.ended, self.labels
        load.phases = {phase: (seq, runs) for phase, seq, runs in self.phases}
        return load


class LeftLoad(NamedTuple):
    """A load of a process that is gone."""

    load_id: str
    #: As `Load.since`.
    since: str
    outline: Outline


class Loads:
    """The loads of all processes; disjoint processes merge."""

    __slots__ = ("_outlines", "abandoned", "left", "open", "series", "stirred")

    def __init__(self) -> None:
        #: Of processes that live: proc -> load_id -> load. One that ended is kept while an event
        #: before its end may still be met.
        self.open: dict[str, dict[str, Load]] = {}
        #: The same of processes that are gone.
        self.left: dict[str, tuple[LeftLoad, ...]] = {}
        #: Label sets met so far -> smallest timestamp of an event that named them.
        self.series: dict[LoadLabels, str] = {}
        #: Loads of `left` that run, by labels: kept along so that no scrape walks through them.
        self.abandoned: Counter[LoadLabels] = Counter()
        #: Processes whose loads were taken up by `of`. Those of them that are gone `leave` again.
        self.stirred: set[str] = set()
        #: The outlines of `left`, each once, and where a load like that runs; None: it does not.
        self._outlines: dict[Outline, tuple[Outline, LoadLabels | None]] = {}

    def note(self, labels: LoadLabels, timestamp: str) -> None:
        """A start named these labels: both families have a series for them from now on."""
        known = self.series.get(labels)
        if known is None or timestamp < known:
            self.series[labels] = timestamp

    def of(self, proc: str, load_id: str) -> Load:
        """The load of an event."""
        loads = self.open.get(proc)
        if loads is None:
            self.come_back(proc)
            self.stirred.add(proc)
            loads = self.open.setdefault(proc, {})
        load = loads.get(load_id)
        if load is None:
            load = loads[load_id] = Load()
        return load

    def forget(self, proc: str, load_id: str, complete: int) -> None:
        """Forget a load that ended, when all numbers below ``complete`` were met, its end among
        them, and none of it after its end: no event of it that came before can turn up any more."""
        loads = self.open.get(proc, {})
        load = loads.get(load_id)
        if load is not None and load.newest == load.ended < complete:
            del loads[load_id]
            if not loads:
                del self.open[proc]

    def close(self, proc: str, complete: int) -> None:
        """Do so with all loads of a process."""
        for load_id in list(self.open.get(proc, ())):
            self.forget(proc, load_id, complete)

    def leave(self, proc: str, *, complete: bool) -> None:
        """The process is gone: its loads that run were abandoned.

        :param complete: none of its events so far was missed.
        """
        loads = self.open.pop(proc, {})
        self.take(
            proc,
            [
                LeftLoad(load_id, load.since, load.outline(complete=complete))
                for load_id, load in loads.items()
                if load.runs or not complete
            ],
        )

    def come_back(self, proc: str) -> None:
        """The process lives after all."""
        left = self.left.pop(proc, ())
        if left:
            self.open[proc] = {each.load_id: each.outline.load(each.since) for each in left}
            self._count(left, -1)

    def take(self, proc: str, left: Iterable[LeftLoad]) -> None:
        """Take over what a process that is gone left."""
        kept = tuple(
            LeftLoad(load_id, since, self._share(outline)[0]) for load_id, since, outline in left
        )
        if kept:
            self.left[proc] = kept
            self._count(kept, 1)

    def split_off(self, proc: str, part: Loads) -> None:
        """Move the loads of a process to another place."""
        if proc in self.open:
            part.open[proc] = self.open.pop(proc)
        left = self.left.pop(proc, ())
        self._count(left, -1)
        part.take(proc, left)

    def join(self, proc: str, other: Loads) -> None:
        """Take over the loads of a process that are here as well, as those of one that lives."""
        self.come_back(proc)
        other.come_back(proc)
        for load_id, load in other.open.pop(proc, {}).items():
            known = self.open.setdefault(proc, {}).setdefault(load_id, load)
            if known is not load:
                known.join(load)

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
        for proc, left in other.left.items():
            self.take(proc, left)

    def _share(self, outline: Outline) -> tuple[Outline, LoadLabels | None]:
        """What is kept of an outline: see `_outlines`."""
        known = self._outlines.get(outline)
        if known is None:
            load = outline.load()
            known = self._outlines[outline] = (outline, load.where if load.runs else None)
        return known

    def _count(self, left: Iterable[LeftLoad], by: int) -> None:
        for each in left:
            where = self._share(each.outline)[1]
            if where is not None:
                self.abandoned[where] += by
                if not self.abandoned[where]:
                    del self.abandoned[where]


class LoadTable:
    """The label sets of loads, which are bounded as the series of the other families are.

    :param loads: where they are noted.
    :param cap: most label sets that a page shows; None: no limit.
    """

    def __init__(self, catalog: Catalog, loads: Loads, cap: int | None) -> None:
        tracking = [f for f in catalog.families if f.measure in (IN_PROGRESS, ABANDONED)]
        #: Names of the families that show loads.
        self.families = tuple(family.name for family in tracking)
        #: Names of the events that they are derived from.
        self.events = frozenset(event for family in tracking for event in family.events)
        self._labels = tracking[0].labels if tracking else ()
        self._loads = loads
        self._cap = cap

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

    def note(self, labels: LoadLabels, timestamp: str) -> None:
        """Note labels that an event named."""
        if labels not in self._loads.series:
            make_room(self._loads.series, self._cap, str)
        self._loads.note(labels, timestamp)
