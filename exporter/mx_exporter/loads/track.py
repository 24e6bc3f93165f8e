"""What is known of one process, until each of its loads is given."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mx_log.schema import HEADERS

from ..core import ranges
from ..core.decode import name_of
from ..core.ledger import Book
from .model import Load, Process, earlier
from .spans import number
from .story import Story, observed

#: Events of a load that no story needs to be whole: of these, so many are kept, the first ones;
#: the others are counted by name.
_LOOSE = frozenset({"log_recorded", "recorder_called", "Unknown"})
_SPECIAL = _LOOSE | {"load_started", "load_finished"}
_MAX_LOOSE = 200
_MAX_NAMES = 100

#: Ids of loads that were given, kept a process, by which what comes late is known.
_MAX_GIVEN = 64

#: Fields of a header that say who a process is, apart from what `Process` has a place for.
_IDENTITY = ("worker_id", "engine_version", "tensor_parallel_size", "gpu_type")

_seq = attrgetter("seq")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Process).decode


class Idle(NamedTuple):
    """A `Track` of which each event was met and each load was given, in little room."""

    end: int
    header: str
    rank: int | None
    #: Its `Process` as MessagePack.
    process: bytes

    def track(self, proc: str) -> Track:
        """The track, to go on from."""
        track = Track(proc)
        track.book.end, track.header, track.rank = self.end, self.header, self.rank
        track.process = _unpack(self.process)
        return track


class Track:
    """What is known of one process."""

    __slots__ = (
        "book",
        "dropped",
        "ended",
        "given",
        "header",
        "held",
        "open",
        "proc",
        "process",
        "rank",
    )

    def __init__(self, proc: str) -> None:
        self.proc = proc
        self.book = Book()
        #: Who it is, its rank and when that was said: of the header with the smallest timestamp.
        self.process: Process | None = None
        self.header = ""
        self.rank: int | None = None
        #: Highest number of an event that tells of dropped ones.
        self.dropped = -1
        self.open: dict[str, OpenLoad] = {}
        #: Loads that ended and are not complete.
        self.ended: set[str] = set()
        #: Loads that wait until it is known who the process is.
        self.held: list[Load] = []
        self.given: dict[str, None] = {}

    @property
    def place(self) -> str:
        """The pod, or what stands for it: another process may take its place there."""
        process = self.process
        return (process and (process.pod_uid or process.pod or process.hostname)) or ""

    def take(self, events: Iterable[Any]) -> None:
        """Take events, but those that were met before."""
        book, loads = self.book, self.open
        for event in events:
            seq = event.seq
            if seq == book.end:
                book.end = seq + 1
            elif book.knows(seq):
                continue
            else:
                book.enter(seq)
            load = loads.get(event.load_id)
            # Most are of a load that is known, and neither begin it nor end it.
            if load is not None and type(event).__name__ not in _SPECIAL:
                load.events.append(event)
            else:
                self._sort(event)

    def _sort(self, event: Any) -> None:
        name = type(event).__name__
        load_id = event.load_id
        if name == "load_finished" and (load_id is None or event.timed is False):
            self.held.append(observed(event, Process(proc=self.proc)))
        elif load_id is not None:
            load = self.open.get(load_id)
            if load is None:
                if load_id in self.given:
                    return
                load = self.open[load_id] = OpenLoad()
            load.take(event, name)
            if load.last is not None:
                self.ended.add(load_id)
        elif name in HEADERS:
            if not self.header or event.timestamp < self.header:
                self._introduce(event)
        elif name == "events_dropped":
            self.dropped = max(self.dropped, event.seq)

    def _introduce(self, event: Any) -> None:
        self.header, self.rank = event.timestamp, event.rank
        self.process = process_of(event)

    def complete(self) -> list[Load]:
        """The loads that are complete now; they are forgotten here."""
        for load_id in sorted(self.ended):
            load = self.open[load_id]
            if load.first and load.last and not self._missing(load.first.seq, load.last.seq):
                self.held.append(load.tell(Process(proc=self.proc), "", 0))
                self._forget(load_id)
        return self._release(self.process) if self.process else []

    def _release(self, process: Process) -> list[Load]:
        given = [replace(load, process=process) for load in self.held]
        self.held.clear()
        return given

    def _forget(self, load_id: str) -> None:
        del self.open[load_id]
        self.ended.discard(load_id)
        self.given[load_id] = None
        if len(self.given) > _MAX_GIVEN:
            del self.given[next(iter(self.given))]

    def idle(self) -> Idle | None:
        """What is left of it when it waits for nothing."""
        if self.open or self.held or self.book.gaps or self.dropped >= 0 or not self.process:
            return None
        return Idle(self.book.end, self.header, self.rank, _pack(self.process))

    def unfinished(self, outcome: Callable[[str], str]) -> list[Load]:
        """What there is of the loads that were not given.

        :param outcome: what became of one that did not end, by its process.
        """
        process = self.process or Process(proc=self.proc)
        left = [replace(load, process=process) for load in self.held]
        for load in self.open.values():
            first, last = load.bounds()
            missing = self._missing(first, last)
            if load.first is None:
                if load.last is None and not self._missing(0, first):
                    continue  # it came after the end of its load, which was given
                missing = max(1, missing)
            found = outcome(self.proc)
            if found == "killed" and (self.dropped > last or self._missing(last, self.book.end)):
                found = "unknown"  # its end may be among what is missing
            left.append(load.tell(process, found, missing))
        return left

    def _missing(self, first: int, last: int) -> int:
        """How many numbers between two were not met."""
        return sum(max(0, min(last, end) - max(first, start)) for start, end in self.book.gaps)

    def know(self, met: ranges.Ranges) -> None:
        """Take these numbers as met, whatever was logged under them."""
        book = Book()
        for start, end in met:
            if start > book.end:
                book.gaps.append((book.end, start))
            book.end = end
        _unite(self.book, book)

    def merge(self, other: Track) -> None:
        """Take over what is known of the same process."""
        for load in other.open.values():
            self.take([*load.events, *load.loose])
        # Of what was not kept, the numbers alone are left.
        _unite(self.book, other.book)
        self.held += other.held
        self.dropped = max(self.dropped, other.dropped)
        self.given.update(other.given)
        if other.process is not None and (not self.header or other.header < self.header):
            self.process, self.header, self.rank = other.process, other.header, other.rank


class OpenLoad:
    """The events of a load that was not given."""

    __slots__ = ("counted", "events", "first", "last", "loose")

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.first: Any = None
        self.last: Any = None
        #: The first of those that are kept in part.
        self.loose: list[Any] = []
        #: How many were not kept, by name.
        self.counted: dict[str, int] = {}

    def take(self, event: Any, name: str) -> None:
        if name in _LOOSE:
            insort(self.loose, event, key=_seq)
            if len(self.loose) > _MAX_LOOSE:
                self._count(name_of(self.loose.pop()))
            return
        self.events.append(event)
        if name == "load_started":
            self.first = event
        elif name == "load_finished":
            self.last = event

    def _count(self, name: str) -> None:
        if name not in self.counted and len(self.counted) >= _MAX_NAMES:
            name = "(other names)"
        self.counted[name] = self.counted.get(name, 0) + 1

    def bounds(self) -> tuple[int, int]:
        """Numbers of its first and last event, as far as they were met."""
        numbers = [event.seq for event in (*self.events, *self.loose)]
        return min(numbers), max(numbers)

    def tell(self, process: Process, outcome: str, missing: int) -> Load:
        events = self.events
        if self.loose:
            events = [*events, *self.loose]
        events.sort(key=_seq)
        if self.first is not None and events[0] is not self.first:
            events = [event for event in events if event.seq >= self.first.seq]
        if self.last is not None and events[-1] is not self.last:
            events = [event for event in events if event.seq <= self.last.seq]
        began = events[0].timestamp
        if self.first is None and self.last is not None:
            began = earlier(self.last.timestamp, number(self.last.seconds) or 0.0)
        story = Story(min(began, events[0].timestamp))
        story.take(events)
        return story.load(
            process, events[0], events[-1], outcome, missing=missing, more=self.counted
        )


def process_of(header: Any) -> Process:
    """The process that a header tells of."""
    said = {name: getattr(header, name) for name in _IDENTITY}
    return Process(
        proc=header.proc,
        pod=header.pod_name,
        pod_uid=header.pod_uid,
        namespace=header.pod_namespace,
        node=header.node_name,
        hostname=header.hostname,
        version=header.version,
        identity={name: value for name, value in said.items() if value is not None},
    )


def _unite(book: Book, other: Book) -> None:
    """Note in a book which numbers another one knows."""
    end = max(book.end, other.end)
    gaps: ranges.Ranges = []
    for start, stop in _with_rest(book, end):
        for their_start, their_stop in _with_rest(other, end):
            if max(start, their_start) < min(stop, their_stop):
                gaps.append((max(start, their_start), min(stop, their_stop)))
    book.gaps, book.end = gaps, end


def _with_rest(book: Book, end: int) -> list[tuple[int, int]]:
    """What a book does not know of the numbers below ``end``."""
    return [*book.gaps, (book.end, end)] if book.end < end else list(book.gaps)
