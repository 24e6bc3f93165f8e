"""The events of the loads that an exporter shows: those in progress, and the latest that are over.

Events are kept as they come and made into loads when somebody looks, so that a drain takes about as
long as without. What is kept is bounded, by loads and by bytes: the oldest go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

    def feed(self, events: Iterable[Event | Rejected], size: int) -> None:
        """Take events that follow those before.

        :param size: bytes of their lines, together.
        """
        events = events if isinstance(events, list) else list(events)
        weight = size // (len(events) or 1) + OVERHEAD
        proc: str = ""
        load_id: str | None = None
        record: _Record | None = None
        event: Any
        for event in events:
            kind = type(event)
            if kind is Rejected:
                continue
            if record is None or event.load_id != load_id or event.proc != proc:
                proc, load_id = event.proc, event.load_id
                record = self._find(event)
                if record is None:
                    if kind in _HEADERS and weight < LONGEST_HEADER:
                        self._note_header(event)
                    continue
            seq = event.seq
            if seq > record.newest:
                record.newest = seq
            elif any(seq == known.seq for known in record.events):
                continue
            record.events.append(event)
            record.size += weight
            self._size += weight
            if kind is _ENDS and event.timed is not False:
                self._end(_key(event))
        self._trim()

    def take(self, books: Mapping[str, Book]) -> Taken:
        """What is kept now. Nobody changes it any more.

        :param books: of all processes, by which it is known who is gone, and what is missing.
        """
        for key in [key for key in self._open if books[key[0]].gone]:
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
        met = {proc: _met(books[proc], since) for proc, since in first.items()}
        alive = frozenset(proc for proc in first if not books[proc].gone)
        return Taken(headers, [list(one.events) for one in records], met, alive, self._before)

    def _find(self, event: Event) -> _Record | None:
        """The record of an event's load; None for an event that belongs to none that is kept."""
        key = _key(event)
        record = self._open.get(key) or self._over.get(key)
        if record is not None:
            return record
        kind = type(event)
        if kind is not _BEGINS and kind is not _ENDS:
            # Of a load that was forgotten; but for the load that ran where our reading began.
            begun = self._headers.get(event.proc)
            if event.load_id is None or (begun is not None and type(begun[0]) is _STARTED):
                return None
        elif kind is _ENDS and event.load_id is None:
            # A duration that was observed is a load that is over, of one event.
            record = self._over[key] = _Record()
            return record
        record = self._open[key] = _Record()
        return record

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


def _key(event: Event) -> _Key:
    return (event.proc, f"#{event.seq}" if event.load_id is None else event.load_id)


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
