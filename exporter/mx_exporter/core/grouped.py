"""Folding by group: the processes of a pod, say, into a state of their own.

Which group a process is of, its headers say. Any of its events may be read before them, so those
of a process without one are folded apart, until it is known where they go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from mx_log.schema import HEADERS

from .catalog import Catalog
from .decode import Event, Rejected, name_of
from .fold import Fold
from .state import State

#: Label by which processes are told apart -> the field of their headers that has it.
HEADER_LABELS = {
    "pod": "pod_name",
    "pod_uid": "pod_uid",
    "namespace": "pod_namespace",
    "node": "node_name",
    "hostname": "hostname",
    "worker_id": "worker_id",
    "engine_version": "engine_version",
    "gpu_type": "gpu_type",
    "rank": "rank",
    "proc": "proc",
}

#: The values of a group's labels.
Group = tuple[str, ...]

#: Folds that are kept beside their states; another one is made again in less than a millisecond.
_FOLDS = 64


def group_of(header: Any, labels: Iterable[str]) -> Group:
    """The group of a process by one of its headers; what that does not say is empty."""
    values = (getattr(header, HEADER_LABELS[label], None) for label in labels)
    return tuple("" if value is None else str(value).replace("\0", "\ufffd") for value in values)


class GroupedFold:
    """Folds events into a state for each group.

    :param labels: names of `HEADER_LABELS`.
    :param base: a state to go on from. What it holds is of processes that nobody knows any more;
        events of theirs that follow are folded into their group. It is used up.
    :param max_series: of each `Fold`.
    """

    def __init__(
        self,
        catalog: Catalog,
        labels: Sequence[str],
        base: State | None = None,
        max_series: int | None = None,
    ) -> None:
        self._catalog = catalog
        self._labels = tuple(labels)
        self._cap = max_series
        self._nobody: Group = ("",) * len(self._labels)
        self._base = State(catalog) if base is None else base
        #: group -> its state
        self._states: dict[Group, State] = {}
        #: proc -> its group, once a header was met
        self._groups: dict[str, Group] = {}
        #: proc -> what was folded of it before
        self._waiting: dict[str, State] = {}
        self._folds: OrderedDict[int, Fold] = OrderedDict()

    def meet(self, events: Iterable[Event | Rejected]) -> None:
        """Learn of headers which group their processes are of, whatever of them is to be folded."""
        for proc, some in groupby(events, _proc):
            if proc in self._groups:
                continue
            for event in some:
                if isinstance(event, Event) and name_of(event) in HEADERS:
                    self._groups[proc] = group_of(event, self._labels)
                    break

    def feed(self, events: Iterable[Event | Rejected], procs: set[str]) -> None:
        """Fold what lines gave, as `Fold.feed` does."""
        for proc, some in groupby(events, _proc):
            self._fold(self._state_of(proc)).feed(some, procs)

    def settle(self, alive: set[str]) -> dict[Group, State]:
        """Fold which processes live, the others being gone; returns the states, used up."""
        for proc, state in self._waiting.items():
            self._merge(self._groups.get(proc, self._nobody), state)
        self._merge(self._nobody, self._base)
        for state in self._states.values():
            Fold(self._catalog, state).settle(set(state.books) - alive)
        return self._states

    def _state_of(self, proc: str) -> State:
        if proc in self._waiting:
            return self._waiting[proc]
        group = self._groups.get(proc)
        known = proc in self._base.books
        part = self._base.split_off(self._catalog, [proc]) if known else None
        if group is None:
            state = self._waiting[proc] = State(self._catalog) if part is None else part
            return state
        if part is not None:
            self._merge(group, part)
        return self._states.setdefault(group, State(self._catalog))

    def _merge(self, group: Group, part: State) -> None:
        self._states.setdefault(group, State(self._catalog)).merge(part)

    def _fold(self, state: State) -> Fold:
        fold = self._folds.pop(id(state), None)
        if fold is None:
            fold = Fold(self._catalog, state, self._cap)
        self._folds[id(state)] = fold
        if len(self._folds) > _FOLDS:
            self._folds.popitem(last=False)
        return fold


def _proc(event: Event | Rejected) -> str:
    return event.proc
