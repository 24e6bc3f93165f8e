"""Loads as the Trace Event Format of Perfetto and chrome://tracing.

A pod is a process there, and a rank a thread. Slices of one thread nest; what overlaps without
nesting, and a load beside another one, goes to a further thread of the same rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..loads.model import Attempt, Load, Span, microseconds
from ..loads.why import error_of, why

#: What a load is sorted by before it comes here: pod, rank, then time.
Key = tuple[str, str, int, str]

#: Colours that both viewers know, by what came of it.
_BAD = "terrible"
_OPEN = "bad"
_GOOD = "good"


class Slice(NamedTuple):
    """Something that took time, in microseconds since 1970."""

    name: str
    start: int
    end: int
    args: dict[str, Any]
    colour: str = ""
    children: tuple[Slice, ...] = ()


class Served(NamedTuple):
    """An attempt, as the peer sees it: it served somebody."""

    worker: str
    whom: str
    start: int
    end: int
    #: Thread of the attempt.
    pid: int
    tid: int


def trace_events(loads: Iterable[Load], workers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The events of loads that come pod by pod, rank by rank, in order of time.

    :param workers: id of a worker -> name of the pod that it is in, as far as the log knows it.
    """
    pods: dict[str, int] = {}
    lanes: _Lanes | None = None
    last: tuple[int, int | None] | None = None
    served: list[Served] = []
    tids = _Numbers()
    for load in loads:
        place = _place(load)
        if place not in pods:
            pods[place] = len(pods) + 1
            yield _named("process_name", pods[place], 0, place)
        pid = pods[place]
        if lanes is None or last != (pid, load.rank):
            last = (pid, load.rank)
            lanes = _Lanes(pid, _rank(load), tids)
        slice_ = _load(load)
        for tid, placed in lanes.place(slice_):
            yield from lanes.names()
            yield from _slices(placed, pid, tid)
        if load.outcome == "killed":
            yield _instant("killed", slice_.end, pid, lanes.first)
        for attempt in load.attempts:
            if attempt.peer in workers:
                start, end = _times(load, attempt.at, attempt.seconds)
                whom = f"{place} {_rank(load)}"
                served.append(Served(attempt.peer or "", whom, start, end, pid, lanes.first))
    yield from _flows(served, workers, pods, tids)


def _flows(
    served: list[Served], workers: Mapping[str, str], pods: dict[str, int], tids: _Numbers
) -> Iterator[dict[str, Any]]:
    """From each peer's pod to the attempts that it served."""
    lanes: dict[str, _Lanes] = {}
    for number, each in enumerate(sorted(served, key=lambda one: (one.worker, one.start)), 1):
        place = workers[each.worker]
        if place not in pods:
            pods[place] = len(pods) + 1
            yield _named("process_name", pods[place], 0, place)
        pid = pods[place]
        if each.worker not in lanes:
            lanes[each.worker] = _Lanes(pid, f"{each.worker} serves", tids)
        given = Slice(f"serves {each.whom}", each.start, each.end, {"to": each.whom})
        for tid, placed in lanes[each.worker].place(given):
            yield from lanes[each.worker].names()
            yield from _slices(placed, pid, tid)
            flow = {"name": "weights", "cat": "peer", "id": number}
            yield {**flow, "ph": "s", "ts": each.start, "pid": pid, "tid": tid}
            yield {**flow, "ph": "f", "bp": "e", "ts": each.start, "pid": each.pid, "tid": each.tid}


class _Numbers:
    """Numbers of threads, each given once."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Another one."""
        self._last += 1
        return self._last


class _Lanes:
    """The threads of one rank: as many as there are slices at a time, not within each other."""

    def __init__(self, pid: int, name: str, numbers: _Numbers) -> None:
        self._pid = pid
        self._name = name
        self._numbers = numbers
        self._lanes: list[_Lane] = []
        self._unnamed: list[tuple[int, str]] = []
        self._lane()

    @property
    def first(self) -> int:
        """The thread that loads lie in as a rule."""
        return self._lanes[0].tid

    def place(self, given: Slice) -> Iterator[tuple[int, Slice]]:
        """Slices with the thread that each goes to: this one, and those in it that do not nest."""
        whole, strays = _nested(given)
        for each in (whole, *strays):
            lane = next((lane for lane in self._lanes if lane.end <= each.start), None)
            lane = self._lane() if lane is None else lane
            lane.end = each.end
            yield lane.tid, each

    def names(self) -> Iterator[dict[str, Any]]:
        """The names of threads that are new."""
        while self._unnamed:
            tid, name = self._unnamed.pop(0)
            yield _named("thread_name", self._pid, tid, name)

    def _lane(self) -> _Lane:
        lane = _Lane(self._numbers.next())
        more = f", at the same time ({len(self._lanes) + 1})" if self._lanes else ""
        self._unnamed.append((lane.tid, self._name + more))
        self._lanes.append(lane)
        return lane


class _Lane:
    """A thread, and where the last slice in it ends."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.end = 0


def _nested(given: Slice) -> tuple[Slice, list[Slice]]:
    """A slice whose children lie within it, one after the other; and those that overlap others."""
    kept: list[Slice] = []
    strays: list[Slice] = []
    at = given.start
    for child in sorted(given.children, key=lambda child: child.start):
        start, end = max(child.start, given.start), min(child.end, given.end)
        if end < start:
            start = end = min(max(child.start, given.start), given.end)
        inner, further = _nested(child._replace(start=start, end=end))
        strays += further
        if start < at:
            strays.append(inner)
        else:
            kept.append(inner)
            at = end
    return given._replace(children=tuple(kept)), strays


def _load(load: Load) -> Slice:
    start, end = _times(load, 0.0, load.elapsed)
    within = [_span(load, span) for span in load.phases]
    attempts = [_attempt(load, number, each) for number, each in enumerate(load.attempts, 1)]
    steps = [
        _span(load, step, f"{each.artifact}: {step.name}")
        for each in load.artifacts
        for step in each.steps
    ]
    args = {
        "load_id": load.load_id,
        "process": load.process.proc,
        "node": load.process.node,
        "engine": load.engine,
        "role": load.role,
        "scheme": load.scheme,
        "outcome": load.outcome,
        "why": why(load),
    }
    colour = {"success": "", "error": _BAD}.get(load.outcome, _OPEN)
    name = f"load {load.model or load.load_id or ''}".strip()
    return Slice(name, start, end, args, colour, _into(within, [*attempts, *steps]))


def _into(outer: list[Slice], inner: list[Slice]) -> tuple[Slice, ...]:
    """Slices, each of the inner ones within the outer one that it began in."""
    homes: list[list[Slice]] = [[] for _ in outer]
    left: list[Slice] = []
    for each in inner:
        home = [
            at
            for at, span in enumerate(outer)
            if span.start <= each.start <= span.end and span.end > span.start
        ]
        (homes[home[-1]] if home else left).append(each)
    return (
        *(
            span._replace(children=(*span.children, *found))
            for span, found in zip(outer, homes, strict=True)
        ),
        *left,
    )


def _attempt(load: Load, number: int, attempt: Attempt) -> Slice:
    start, end = _times(load, attempt.at, attempt.seconds)
    args = {
        "peer": attempt.peer,
        "policy": attempt.policy,
        "result": attempt.result,
        "nixl": list(attempt.failures) or None,
        "received": attempt.received,
    }
    colour = _OPEN if attempt.seconds is None else _GOOD if attempt.succeeded else _BAD
    children = tuple(_span(load, span) for span in attempt.phases)
    name = f"attempt {number}: {attempt.peer or 'unknown peer'}"
    return Slice(name, start, end, args, colour, children)


def _span(load: Load, span: Span, name: str = "") -> Slice:
    start, end = _times(load, span.at, span.seconds)
    args: dict[str, Any] = {}
    colour = ""
    if span.seconds is None:
        args, colour = {"ended": "never"}, _OPEN
    elif span.error_type or span.error:
        args, colour = {"error": error_of(span)}, _BAD
    return Slice(name or span.name, start, end, args, colour)


def _times(load: Load, at: float, seconds: float | None) -> tuple[int, int]:
    """Begin and end, in microseconds since 1970; what never ended goes on to the log's end."""
    zero = microseconds(load.began)
    length = load.elapsed - at if seconds is None else seconds
    start = zero + round(at * 1e6)
    return start, max(start, zero + round((at + length) * 1e6))


def _slices(given: Slice, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {
        "name": given.name,
        "cat": "load",
        "ph": "X",
        "ts": given.start,
        "dur": given.end - given.start,
        "pid": pid,
        "tid": tid,
        "args": {key: value for key, value in given.args.items() if value is not None},
    }
    if given.colour:
        event["cname"] = given.colour
    yield event
    for child in given.children:
        yield from _slices(child, pid, tid)


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _instant(name: str, at: int, pid: int, tid: int) -> dict[str, Any]:
    return {"name": name, "cat": "load", "ph": "i", "s": "t", "ts": at, "pid": pid, "tid": tid}


def _place(load: Load) -> str:
    process = load.process
    return f"{process.namespace}/{process.place}" if process.namespace else process.place


def _rank(load: Load) -> str:
    return "rank unknown" if load.rank is None else f"rank {load.rank}"


def order(load: Load) -> Key:
    """By what loads are to be sorted."""
    rank = -1 if load.rank is None else load.rank
    return _place(load), load.process.pod_uid or "", rank, load.began


def place_of(load: Load) -> str:
    """The name of its pod."""
    return _place(load)
