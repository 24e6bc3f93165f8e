"""A timeline as bytes, and back: from one process to another, or into a file."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..core.decode import Decoder, Event, Rejected
from .model import Load, Process
from .timeline import Timeline
from .track import Idle, OpenLoad, Track


class _Open(Struct):
    """An `OpenLoad`."""

    #: Its events as lines.
    lines: list[bytes]
    counted: dict[str, int]


class _Track(Struct):
    """A `Track`."""

    proc: str
    end: int
    gaps: list[tuple[int, int]]
    process: Process | None
    header: str
    rank: int | None
    dropped: int
    held: list[Load]
    given: list[str]
    open: dict[str, _Open]


class _Timeline(Struct):
    tracks: list[_Track]
    idle: dict[str, Idle]


_decode = msgspec.msgpack.Decoder(_Timeline).decode


def pack(timeline: Timeline) -> bytes:
    """All that a timeline keeps."""
    tracks = [
        _Track(
            proc,
            track.book.end,
            track.book.gaps,
            track.process,
            track.header,
            track.rank,
            track.dropped,
            track.held,
            list(track.given),
            {load_id: _packed(load) for load_id, load in track.open.items()},
        )
        for proc, track in timeline.tracks.items()
    ]
    return msgspec.msgpack.encode(_Timeline(tracks, timeline.idle))


def unpack(data: bytes, decoder: Decoder) -> Timeline:
    """What `pack` made bytes of.

    :param decoder: of the events that it took.
    """
    packed = _decode(data)
    timeline = Timeline()
    timeline.idle = packed.idle
    for given in packed.tracks:
        track = timeline.tracks[given.proc] = Track(given.proc)
        track.process, track.header, track.rank = given.process, given.header, given.rank
        track.dropped, track.held = given.dropped, given.held
        track.given = dict.fromkeys(given.given)
        for load in given.open.values():
            events = decoder.decode(load.lines)
            assert not any(isinstance(event, Rejected) for event in events), events
            track.take(events)
        for load_id, load in given.open.items():
            track.open.setdefault(load_id, OpenLoad()).counted.update(load.counted)
        track.book.end, track.book.gaps = given.end, given.gaps
    return timeline


def _packed(load: OpenLoad) -> _Open:
    events: list[Event] = [*load.events, *load.loose]
    return _Open([msgspec.json.encode(event) for event in events], load.counted)
