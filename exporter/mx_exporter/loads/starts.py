"""Loads that belong together: the starts of pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .model import Load, Span
from .quantiles import median


class PodStart(NamedTuple):
    """The loads of one pod that began together: each rank loads each of its models once.

    When a rank loads a model again that it loaded already, in the same role, that is the next
    start. Loads of hosts without a pod are taken by host, those of neither by process.
    """

    place: str
    #: In order of rank, then of time.
    loads: tuple[Load, ...]

    @property
    def began(self) -> str:
        """When the first of them did."""
        return min(load.began for load in self.loads)

    @property
    def slowest(self) -> Load:
        """The one that the pod waited for: one that never ended before all others, then the
        longest."""
        return max(self.loads, key=lambda load: (not load.done, load.elapsed))

    @property
    def median(self) -> float | None:
        """Seconds, of those that ended well."""
        return median(
            load.seconds
            for load in self.loads
            if load.outcome == "success" and load.seconds is not None
        )

    @property
    def straggling(self) -> tuple[str, float] | None:
        """The phase that made the slowest one so, and how many seconds longer it took there than
        the median of the others; None where there is nobody to compare with."""
        slowest = self.slowest
        others = [load for load in self.loads if load is not slowest and load.done]
        if not others:
            return None
        longer = {}
        for name in dict.fromkeys(span.name for span in slowest.phases):
            usual = median(_spent(load, name) for load in others) or 0.0
            longer[name] = _spent(slowest, name) - usual
        if not longer:
            return None
        name = max(longer, key=longer.__getitem__)
        return (name, longer[name]) if longer[name] > 0 else None


class Began(NamedTuple):
    """What says to which start a load belongs."""

    #: Namespace, and the pod or what stands for it.
    place: tuple[str, str]
    timestamp: str
    proc: str
    seq: int
    rank: int | None
    model: str | None
    role: str


def began(load: Load) -> Began:
    """That of a load."""
    process = load.process
    place = (process.namespace or "", process.pod_uid or process.place)
    return Began(place, load.began, process.proc, load.first_seq, load.rank, load.model, load.role)


def group_starts(loads: Sequence[Began]) -> list[list[int]]:
    """The starts, each as the places of its loads in the sequence."""
    by_place: dict[tuple[str, str], list[list[int]]] = {}
    for at in sorted(range(len(loads)), key=lambda at: loads[at][1:4]):
        load = loads[at]
        starts = by_place.setdefault(load.place, [[]])
        if any(_same(load, loads[other]) for other in starts[-1]):
            starts.append([])
        starts[-1].append(at)
    return [start for starts in by_place.values() for start in starts]


def pod_starts(loads: Iterable[Load]) -> list[PodStart]:
    """The starts, in the order in which they began."""
    given = list(loads)
    found = []
    for start in group_starts([began(load) for load in given]):
        members = sorted((given[at] for at in start), key=_by_rank)
        found.append(PodStart(members[0].process.place, tuple(members)))
    return sorted(found, key=lambda start: (start.began, start.place))


def _same(load: Began, other: Began) -> bool:
    """Whether the same rank loaded the same model."""
    return (load.rank, load.model, load.role) == (other.rank, other.model, other.role) and (
        load.rank is not None or load.proc == other.proc
    )


def _by_rank(load: Load) -> tuple[bool, int, str]:
    return (load.rank is None, load.rank or 0, load.began)


def _spent(load: Load, name: str) -> float:
    """Seconds of a phase; of one that never ended, as long as the log tells of it."""
    return sum(_length(load, span) for span in load.phases if span.name == name)


def _length(load: Load, span: Span) -> float:
    return load.elapsed - span.at if span.seconds is None else span.seconds
