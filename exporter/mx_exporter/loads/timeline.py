"""From events to loads: the timeline.

Events of a process may come in any order, from any number of files, and more than once. A load is
what its process logged under its id between its start and its end. It is given as soon as each
number between the two was met and the process has said who it is, so that what is kept grows with
the loads that run, not with the log. The same events give the same loads, whatever their order.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mx_log.schema import HEADERS

from ..core import ranges
from ..core.decode import Event, Rejected, name_of
from ..core.ledger import Book
from .model import Load, Process, earlier
from .story import Story, number, observed

#: Events of a load that no story needs to be whole: of these, so many are kept, the first ones;
#: the others are counted by name.
_LOOSE = frozenset({"log_recorded", "recorder_called"})
_MAX_LOOSE = 200
_MAX_NAMES = 100

#: Ids of loads that were given, kept a process, by which what comes late is known.
_MAX_GIVEN = 64

#: Fields of a header that say who a process is, apart from what `Process` has a place for.
_IDENTITY = ("worker_id", "engine_version", "tensor_parallel_size", "gpu_type")

_seq = attrgetter("seq")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Process).decode


class Timeline:
    """Gathers events, and gives the loads that are complete."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        #: Processes of which nothing is left to be told, and that may log on.
        self._idle: dict[str, _Idle] = {}

    def feed(self, events: Iterable[Event | Rejected]) -> list[Load]:
        """Take events, and give the loads that are complete by them."""
        given: list[Load] = []
        track: _Track | None = None
        for event in events:
            if isinstance(event, Rejected):
                continue
            if track is None or event.proc != track.proc:
                given += self._leave(track)
                track = self._track(event.proc)
            track.take(event)
        return given + self._leave(track)

    def running(self) -> list[Load]:
        """The loads that have not ended, as far as they went; all else stays as it is."""
        return [
            load
            for track in self._tracks.values()
            for load in track.unfinished(lambda _: "running")
            if not load.done
        ]

    def finish(self, alive: Container[str], gone: Container[str]) -> list[Load]:
        """All that is left, when there are no more events.

        :param alive: processes that live.
        :param gone: processes that do not. Of others nobody knows, unless a later process of the
            same pod and rank logged.
        """
        replaced = self._replaced()

        def outcome(proc: str) -> str:
            if proc in alive:
                return "running"
            return "killed" if proc in gone or proc in replaced else "unknown"

        left = [load for track in self._tracks.values() for load in track.unfinished(outcome)]
        self._tracks.clear()
        self._idle.clear()
        return left

    def merge(self, other: Timeline) -> list[Load]:
        """Take over what another one gathered, and give what is complete by it."""
        given: list[Load] = []
        for proc in [*other._tracks, *other._idle]:
            track = self._track(proc)
            track.merge(other._track(proc))
            given += self._leave(track)
        return given

    def _track(self, proc: str) -> _Track:
        track = self._tracks.get(proc)
        if track is None:
            idle = self._idle.pop(proc, None)
            track = self._tracks[proc] = _Track(proc) if idle is None else idle.track(proc)
        return track

    def _leave(self, track: _Track | None) -> list[Load]:
        """What is complete of a process, which logs nothing for the moment."""
        if track is None:
            return []
        given = track.complete()
        idle = track.idle()
        if idle is not None:
            self._idle[track.proc] = idle
            del self._tracks[track.proc]
        return given

    def _replaced(self) -> set[str]:
        """Processes after which another one of the same pod and rank began."""
        newest: dict[tuple[str, int | None], tuple[str, str]] = {}
        places: dict[str, tuple[tuple[str, int | None], str]] = {}
        for proc in [*self._tracks, *self._idle]:
            track = self._tracks.get(proc) or self._idle[proc].track(proc)
            place = track.place
            if place:
                key = (place, track.rank)
                places[proc] = (key, track.header)
                newest[key] = max(newest.get(key, ("", "")), (track.header, proc))
        return {proc for proc, (key, header) in places.items() if newest[key] > (header, proc)}


class _Idle(NamedTuple):
    """A `_Track` of which each event was met and each load was given, in little room."""

    end: int
    header: str
    rank: int | None
    #: Its `Process` as MessagePack.
    process: bytes

    def track(self, proc: str) -> _Track:
        """The track, to go on from."""
        track = _Track(proc)
        track.book.end, track.header, track.rank = self.end, self.header, self.rank
        track.process = _unpack(self.process)
        return track


class _Track:
    """What is known of one process."""

    __slots__ = (
        "_ended",
        "_given",
        "_held",
        "_open",
        "book",
        "dropped",
        "header",
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
        self._open: dict[str, _Open] = {}
        #: Loads that ended and are not complete.
        self._ended: set[str] = set()
        #: Loads that wait until it is known who the process is.
        self._held: list[Load] = []
        self._given: dict[str, None] = {}

    @property
    def place(self) -> str:
        """The pod, or what stands for it: another process may take its place there."""
        process = self.process
        return (process and (process.pod_uid or process.pod or process.hostname)) or ""

    def take(self, event: Any) -> None:
        """Take an event, unless it was met before."""
        book, seq = self.book, event.seq
        if seq == book.end:
            book.end = seq + 1
        elif book.knows(seq):
            return
        else:
            book.enter(seq)
        self._sort(event)

    def _sort(self, event: Any) -> None:
        name = type(event).__name__
        load_id = event.load_id
        if name == "load_finished" and (load_id is None or event.timed is False):
            self._held.append(observed(event, Process(proc=self.proc)))
        elif load_id is not None:
            load = self._open.get(load_id)
            if load is None:
                if load_id in self._given:
                    return
                load = self._open[load_id] = _Open()
            load.take(event, name)
            if load.last is not None:
                self._ended.add(load_id)
        elif name in HEADERS:
            if not self.header or event.timestamp < self.header:
                self._introduce(event)
        elif name == "events_dropped":
            self.dropped = max(self.dropped, event.seq)

    def _introduce(self, event: Any) -> None:
        said = {name: getattr(event, name) for name in _IDENTITY}
        self.header, self.rank = event.timestamp, event.rank
        self.process = Process(
            proc=self.proc,
            pod=event.pod_name,
            pod_uid=event.pod_uid,
            namespace=event.pod_namespace,
            node=event.node_name,
            hostname=event.hostname,
            version=event.version,
            identity={name: value for name, value in said.items() if value is not None},
        )

    def complete(self) -> list[Load]:
        """The loads that are complete now; they are forgotten here."""
        for load_id in sorted(self._ended):
            load = self._open[load_id]
            if load.first and load.last and not self._missing(load.first.seq, load.last.seq):
                self._held.append(load.tell(Process(proc=self.proc), "", 0))
                self._forget(load_id)
        return self._release(self.process) if self.process else []

    def _release(self, process: Process) -> list[Load]:
        given = [replace(load, process=process) for load in self._held]
        self._held.clear()
        return given

    def _forget(self, load_id: str) -> None:
        del self._open[load_id]
        self._ended.discard(load_id)
        self._given[load_id] = None
        if len(self._given) > _MAX_GIVEN:
            del self._given[next(iter(self._given))]

    def idle(self) -> _Idle | None:
        """What is left of it when it waits for nothing."""
        if self._open or self._held or self.book.gaps or self.dropped >= 0 or not self.process:
            return None
        return _Idle(self.book.end, self.header, self.rank, _pack(self.process))

    def unfinished(self, outcome: Callable[[str], str]) -> list[Load]:
        """What there is of the loads that were not given.

        :param outcome: what became of one that did not end, by its process.
        """
        process = self.process or Process(proc=self.proc)
        left = [replace(load, process=process) for load in self._held]
        for load in self._open.values():
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

    def merge(self, other: _Track) -> None:
        """Take over what is known of the same process."""
        for load in other._open.values():
            for event in (*load.events, *load.loose):
                self.take(event)
        # Of what was not kept, the numbers alone are left.
        _unite(self.book, other.book)
        self._held += other._held
        self.dropped = max(self.dropped, other.dropped)
        self._given.update(other._given)
        if other.process is not None and (not self.header or other.header < self.header):
            self.process, self.header, self.rank = other.process, other.header, other.rank


class _Open:
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
        if name in _LOOSE or name == "Unknown":
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
        events = sorted([*self.events, *self.loose], key=_seq)
        if self.first is not None:
            events = [event for event in events if event.seq >= self.first.seq]
        if self.last is not None:
            events = [event for event in events if event.seq <= self.last.seq]
        began = events[0].timestamp
        if self.first is None and self.last is not None:
            began = earlier(self.last.timestamp, number(self.last.seconds) or 0.0)
        story = Story(min(began, events[0].timestamp))
        for event in events:
            story.take(event)
        return story.load(
            process, events[0], events[-1], outcome, missing=missing, more=self.counted
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
