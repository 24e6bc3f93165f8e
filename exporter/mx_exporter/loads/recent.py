"""The events of the loads that an exporter shows: those in progress, and the latest that are over.

Events are kept as they come and made into loads when somebody looks, so that a drain takes about as
long as without. What is kept is bounded, by loads and by bytes: the oldest go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..core.builtin import CATALOG
from ..core.decode import Event, Rejected
from ..core.ledger import Book
from ..core.ranges import Ranges
from .model import Load
from .timeline import Timeline

#: Loads that are over and kept, and loads that have not ended.
MOST_OVER, MOST_OPEN = 200, 2000

#: Bytes that the lines of all kept events may have, and what an event takes beside its line.
MOST_BYTES, OVERHEAD = 16 * 1024 * 1024, 300

#: Processes whose headers are kept, and bytes of one that is.
MOST_HEADERS, LONGEST_HEADER = 2000, 16 * 1024

_STARTED = CATALOG.decoder.types["process_started"]
_CONTINUED = CATALOG.decoder.types["segment_continued"]
_HEADERS = (_STARTED, _CONTINUED)
_BEGINS = CATALOG.decoder.types["load_started"]
_ENDS = CATALOG.decoder.types["load_finished"]

#: The book of a process that is in no books.
_UNKNOWN = Book()
_UNKNOWN.gone = True

#: A process, and the id of a load of it.
_Key = tuple[str, str]


class _Record:
    """The events of one load."""

    __slots__ = ("events", "newest", "size")

    def __init__(self) -> None:
        self.events: list[Event] = []
        #: Number of the newest event.
        self.newest = -1
        #: Bytes that they take, about.
        self.size = 0


class Taken(NamedTuple):
    """What is kept at one moment.

    :ivar headers: of the processes below, the first and the newest of each.
    :ivar loads: the events of each load.
    :ivar met: by process, the numbers that were met since its first event that was read.
    :ivar alive: those of the processes that live; the others are gone.
    :ivar before: loads that were forgotten.
    """

    headers: list[Event]
    loads: list[list[Event]]
    met: dict[str, Ranges]
    alive: frozenset[str]
    before: int

    def tell(self, now: str, between: Callable[[], object] = lambda: None) -> list[Load]:
        """The loads, the oldest first.

        :param now: up to when those in progress go, as a line's timestamp.
        :param between: called again and again meanwhile.
        """
        timeline = Timeline()
        timeline.feed(self.headers)
        told = []
        for events in self.loads:
            told += timeline.feed(events)
            between()
        for proc, met in self.met.items():
            timeline.know(proc, met)
        told += timeline.finish(self.alive, self.met.keys() - self.alive)
        loads = [
            replace(load, last=max(load.last, now)) if load.outcome == "running" else load
            for load in told
        ]
        return sorted(loads, key=_began)


class RecentLoads:
    """Keeps the events of recent loads. Used by one thread at a time."""

    def __init__(
        self, most_over: int = MOST_OVER, most_open: int = MOST_OPEN, most_bytes: int = MOST_BYTES
    ) -> None:
        self._limits = (most_over, most_open, most_bytes)
        #: In the order in which they were met, and in which they ended.
        self._open: dict[_Key, _Record] = {}
        self._over: dict[_Key, _Record] = {}
        #: The first and the newest header of each process.
        self._headers: dict[str, tuple[Event, Event]] = {}
        self._size = 0
        self._before = 0

    def feed(self, events: list[Event | Rejected], size: int) -> None:
        """Take events that follow those before.

        :param size: bytes of their lines, together.
        """
        if Rejected in map(type, events):
            events = [event for event in events if type(event) is not Rejected]
        found: list[Any] = list(events)
        weight = size // (len(found) or 1) + OVERHEAD
        at = 0
        for proc, load_id, count in _runs(found):
            group = found[at : at + count]
            at += count
            if load_id is None:
                self._take_loadless(group, weight)
                continue
            record = self._record(proc, load_id, group)
            if record is None:
                continue
            if group[0].seq <= record.newest:  # it was met before, perhaps
                known = {event.seq for event in record.events}
                group = [event for event in group if event.seq not in known]
            self._add(record, group, weight)
            if _ENDS in map(type, group) and any(map(_is_end, reversed(group))):
                self._end((proc, load_id))
        self._trim()

    def take(self, books: Mapping[str, Book]) -> Taken:
        """What is kept now. Nobody changes it any more.

        :param books: of all processes, by which it is known who is gone, and what is missing.
        """

        def book(proc: str) -> Book:
            # A snapshot of another exporter's, which the fold goes on from, may not know it.
            return books.get(proc) or _UNKNOWN

        for key in [key for key in self._open if book(key[0]).gone]:
            self._end(key)
        self._trim()
        records = [*self._over.values(), *self._open.values()]
        first: dict[str, int] = {}
        for record in records:
            begin = record.events[0]
            first[begin.proc] = min(first.get(begin.proc, begin.seq), begin.seq)
        headers: list[Event] = []
        for proc in first:
            for header in self._headers.get(proc, ()):
                headers.append(header)
                if type(header) is _STARTED:
                    first[proc] = 0
        met = {proc: _met(book(proc), since) for proc, since in first.items()}
        alive = frozenset(proc for proc in first if not book(proc).gone)
        return Taken(headers, [list(one.events) for one in records], met, alive, self._before)

    def _record(self, proc: str, load_id: str, events: list[Event]) -> _Record | None:
        """The record of a load, of which these events come; None for one that was forgotten."""
        key = (proc, load_id)
        record = self._open.get(key) or self._over.get(key)
        if record is None:
            begun = self._headers.get(proc)
            if begun is not None and type(begun[0]) is _STARTED:
                # All of the process is read: of a load that is not known its begin comes first,
                # or what is left of it.
                kinds = set(map(type, events))
                if _BEGINS not in kinds and _ENDS not in kinds:
                    return None
            record = self._open[key] = _Record()
        return record

    def _add(self, record: _Record, events: list[Event], weight: int) -> None:
        record.events += events
        if events:
            record.newest = max(record.newest, events[-1].seq)
        record.size += weight * len(events)
        self._size += weight * len(events)

    def _take_loadless(self, events: Iterable[Event], weight: int) -> None:
        """Headers, and durations that were observed, each of which is a load that is over."""
        for event in events:
            if type(event) is _ENDS:
                key = (event.proc, f"#{event.seq}")
                if key not in self._over:
                    self._over[key] = _Record()
                    self._add(self._over[key], [event], weight)
            elif type(event) in _HEADERS and weight < LONGEST_HEADER:
                self._note_header(event)

    def _note_header(self, event: Event) -> None:
        first, _ = self._headers.pop(event.proc, (event, event))
        self._headers[event.proc] = (first, event)
        if len(self._headers) > MOST_HEADERS:
            kept = {key[0] for records in (self._open, self._over) for key in records}
            self._headers = {
                proc: headers
                for number, (proc, headers) in enumerate(self._headers.items())
                if number > MOST_HEADERS // 2 or proc in kept
            }

    def _end(self, key: _Key) -> None:
        record = self._open.pop(key, None)
        if record is not None:
            self._over[key] = record

    def _trim(self) -> None:
        """Forget the oldest loads until the rest is within the limits."""
        most_over, most_open, most_bytes = self._limits
        while len(self._over) > most_over or (self._over and self._size > most_bytes):
            self._forget(self._over)
        while len(self._open) > most_open or (self._open and self._size > most_bytes):
            self._forget(self._open)

    def _forget(self, records: dict[_Key, _Record]) -> None:
        self._size -= records.pop(next(iter(records))).size
        self._before += 1


_proc = attrgetter("proc")
_load_id = attrgetter("load_id")
_load = attrgetter("proc", "load_id")


def _runs(events: list[Event]) -> Iterator[tuple[str, str | None, int]]:
    """Events of one load that follow each other, as many do: whose they are, and how many."""
    procs = set(map(_proc, events))
    if len(procs) == 1:  # as in each segment of an emitter: half of the work
        (proc,) = procs
        for load_id, run in groupby(map(_load_id, events)):
            yield proc, load_id, len(list(run))
    else:
        for (proc, load_id), run in groupby(map(_load, events)):
            yield proc, load_id, len(list(run))


def _is_end(event: Any) -> bool:
    """Whether a load ended with it, and was not only observed."""
    return type(event) is _ENDS and getattr(event, "timed", None) is not False


def _met(book: Book, since: int) -> Ranges:
    """The numbers from ``since`` on that a book knows."""
    met: Ranges = []
    at = since
    for start, end in [*book.gaps, (book.end, book.end)]:
        if start > at:
            met.append((at, start))
        at = max(at, end)
    return met


def _began(load: Load) -> tuple[str, str, int]:
    return (load.began, load.process.proc, load.first_seq)
