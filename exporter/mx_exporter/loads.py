"""Loads in progress and loads abandoned.

A load is known by its process and ``load_id``. What is kept depends on which events were met,
never on their order: segments of one process may be read in any order.
"""

from __future__ import annotations

#: engine, model, phase, scheme. The phase is empty between phases.
LoadLabels = tuple[str, str, str, str]


class OpenLoad:
    """A load of which some event, but no end, was met."""

    __slots__ = ("labels", "phases")

    def __init__(self) -> None:
        #: engine, model, scheme; None until its start was met.
        self.labels: tuple[str, str, str] | None = None
        #: phase -> (seq of its latest event, whether that was its start)
        self.phases: dict[str, tuple[int, bool]] = {}

    @property
    def phase(self) -> str:
        """The phase that runs, the one that started last when there are several."""
        running = [(seq, phase) for phase, (seq, runs) in self.phases.items() if runs]
        return max(running)[1] if running else ""


class Loads:
    """The loads of all processes; disjoint processes merge."""

    __slots__ = ("abandoned", "ended", "open", "series")

    def __init__(self) -> None:
        #: proc -> load_id -> load
        self.open: dict[str, dict[str, OpenLoad]] = {}
        #: proc -> ids of loads whose end was met before their start
        self.ended: dict[str, set[str]] = {}
        #: Label sets met so far -> smallest timestamp of an event that named them.
        self.series: dict[LoadLabels, str] = {}
        self.abandoned: dict[LoadLabels, int] = {}

    def note(self, labels: LoadLabels, timestamp: str) -> None:
        """A start named these labels: both families have a series for them from now on."""
        known = self.series.get(labels)
        if known is None or timestamp < known:
            self.series[labels] = timestamp

    def started(self, proc: str, load_id: str, labels: tuple[str, str, str]) -> None:
        """A load started; ``labels`` are engine, model and scheme."""
        ended = self.ended.get(proc)
        if ended is not None and load_id in ended:
            ended.discard(load_id)
            if not ended:
                del self.ended[proc]
            return
        self._load(proc, load_id).labels = labels

    def finished(self, proc: str, load_id: str, *, maybe_later: bool) -> None:
        """A load ended. ``maybe_later``: its start may still be met."""
        loads = self.open.get(proc, {})
        load = loads.pop(load_id, None)
        if not loads:
            self.open.pop(proc, None)
        if maybe_later and (load is None or load.labels is None):
            self.ended.setdefault(proc, set()).add(load_id)

    def phase(self, proc: str, load_id: str, phase: str, seq: int, *, runs: bool) -> None:
        """A phase of a load started (``runs``) or ended."""
        if load_id in self.ended.get(proc, ()):
            return
        phases = self._load(proc, load_id).phases
        known = phases.get(phase)
        if known is None or seq > known[0]:
            phases[phase] = (seq, runs)

    def settle(self, proc: str) -> None:
        """The writer is gone: what it left open was abandoned."""
        for load in self.open.pop(proc, {}).values():
            if load.labels is not None:
                labels = _with_phase(load)
                self.abandoned[labels] = self.abandoned.get(labels, 0) + 1
        self.ended.pop(proc, None)

    def in_progress(self) -> dict[LoadLabels, int]:
        """Loads that run, by labels; 0 for label sets that none has now."""
        running = dict.fromkeys(self.series, 0)
        for loads in self.open.values():
            for load in loads.values():
                if load.labels is not None:
                    labels = _with_phase(load)
                    running[labels] = running.get(labels, 0) + 1
        return running

    def merge(self, other: Loads) -> None:
        """Take over the loads of other processes."""
        for proc, loads in other.open.items():
            self.open.setdefault(proc, {}).update(loads)
        for proc, ended in other.ended.items():
            self.ended.setdefault(proc, set()).update(ended)
        for labels, timestamp in other.series.items():
            self.note(labels, timestamp)
        for labels, count in other.abandoned.items():
            self.abandoned[labels] = self.abandoned.get(labels, 0) + count

    def _load(self, proc: str, load_id: str) -> OpenLoad:
        loads = self.open.setdefault(proc, {})
        load = loads.get(load_id)
        if load is None:
            load = loads[load_id] = OpenLoad()
        return load


def _with_phase(load: OpenLoad) -> LoadLabels:
    assert load.labels is not None
    engine, model, scheme = load.labels
    return (engine, model, load.phase, scheme)
