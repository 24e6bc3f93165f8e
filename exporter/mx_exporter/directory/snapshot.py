"""The snapshot: the state of segments that are gone, as one file beside those that remain.

``state of snapshot + remaining segments == state of all segments``, bit for bit: sums are kept
as the exact integers they are. It names, for each process, the last segment it stands for, so
that a crash between writing it and removing the segments counts nothing twice; and the table
that the families were derived with, so that changed boundaries are noticed. It also keeps how
far the remaining segments were shipped (`shipping`), which is no matter to the state.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from mx_log.files import SNAPSHOT_NAME

from ..core.catalog import FAMILIES
from ..core.ledger import Book
from ..core.load_tracker import Load, Loads
from ..core.series_table import maker
from ..core.state import SeriesByLabels, State
from ..errors import MxError
from . import atomic_write
from .segments import open_segment

FORMAT = 1


class BadSnapshot(MxError):
    """A snapshot that cannot be used. ``str()`` says why."""


@dataclass
class Snapshot:
    """A state, and what it stands for."""

    state: State = field(default_factory=State)
    #: proc -> number of the last segment that the state stands for.
    segments: dict[str, int] = field(default_factory=dict)
    #: Families that start afresh: the snapshot was derived with another row of the table.
    changed: list[str] = field(default_factory=list)
    #: Segment's file name -> bytes of it that were shipped.
    shipped: dict[str, int] = field(default_factory=dict)


def dump(
    state: State, segments: Mapping[str, int], shipped: Mapping[str, int] | None = None
) -> bytes:
    """A snapshot as it lies in its file: one JSON object."""
    return orjson.dumps(
        {
            "format": FORMAT,
            "segments": dict(segments),
            "shipped": dict(shipped or {}),
            "families": {
                family.name: {
                    "table": family.fingerprint,
                    "series": _pack_table(state.series[family.name]),
                    "detail": _pack_table(state.detail.get(family.name, {})),
                }
                for family in FAMILIES
            },
            "loads": _pack_loads(state.loads),
            "books": {
                proc: [
                    book.end,
                    book.gaps,
                    book.refused,
                    book.skipped,
                    book.gone,
                    book.locked,
                ]
                for proc, book in state.books.items()
            },
            "events": state.events,
            "refused": state.refused,
            "rejected": state.rejected,
            "skipped": state.skipped,
            "duplicates": state.duplicates,
            "last_event": state.last_event,
        },
    )


def load(data: bytes) -> Snapshot:
    """Read a snapshot back.

    Raises `BadSnapshot` when it is damaged or of a format that this version does not know.
    """
    try:
        packed = orjson.loads(data)
        if packed["format"] != FORMAT:
            raise BadSnapshot(
                f"is of format {packed['format']!r}, and this version reads format {FORMAT}"
            )
        return _unpack(packed)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadSnapshot(f"is damaged: {_words(error)}") from None


def _words(error: Exception) -> str:
    if isinstance(error, orjson.JSONDecodeError):
        return str(error)
    if isinstance(error, KeyError):
        return f'"{error.args[0]}" is missing'
    return "it holds values of other types than a snapshot does"


def read(dir_fd: int) -> tuple[Snapshot, tuple[int, int, int]] | None:
    """The snapshot of a directory, and the identity of its file; None when there is none.

    Raises `BadSnapshot`, ``OSError`` when it cannot be read.
    """
    found = _contents(dir_fd)
    return (load(found[0]), found[1]) if found else None


def amend(dir_fd: int, shipped: Mapping[str, int]) -> tuple[int, int, int]:
    """Keep other positions of shipping and the same state; return the new file's identity.

    Where there is no snapshot, one that stands for nothing is made. Raises ``OSError``, and
    `BadSnapshot` when there is one that should rather be left as it is.
    """
    found = _contents(dir_fd)
    if found is None:
        return write(dir_fd, dump(State(), {}, shipped))
    load(found[0])
    # Not taken apart and put together again: what an older table derived is to stay as it is.
    packed = orjson.loads(found[0])
    return write(dir_fd, orjson.dumps({**packed, "shipped": dict(shipped)}))


def identity(dir_fd: int) -> tuple[int, int, int] | None:
    """The identity of a directory's snapshot file: another one means another snapshot."""
    try:
        return _identity(os.stat(SNAPSHOT_NAME, dir_fd=dir_fd, follow_symlinks=False))
    except OSError:
        return None


def write(dir_fd: int, data: bytes) -> tuple[int, int, int]:
    """Put a snapshot in place of the last one, atomically; return its file's identity.

    After a crash at any moment there is the old one or the new one, whole. Raises ``OSError``.
    """

    def fill(file: BinaryIO) -> None:
        # Readers may run as another user, whatever the umask.
        os.fchmod(file.fileno(), 0o644)
        file.write(data)

    # The segments are removed after this: their removal must not reach the disk before it.
    return _identity(atomic_write.put(SNAPSHOT_NAME, dir_fd, fill))


def _contents(dir_fd: int) -> tuple[bytes, tuple[int, int, int]] | None:
    try:
        fd = open_segment(SNAPSHOT_NAME, dir_fd)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        return file.read(), _identity(os.fstat(fd))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _pack_table(table: SeriesByLabels) -> list[list[Any]]:
    return [[labels, series.pack()] for labels, series in table.items()]


def _pack_loads(loads: Loads) -> dict[str, Any]:
    return {
        "open": {
            proc: {
                load_id: [load.started, load.ended, load.labels, load.phases]
                for load_id, load in by_id.items()
            }
            for proc, by_id in loads.open.items()
        },
        "series": list(loads.series.items()),
        "abandoned": list(loads.abandoned.items()),
    }


def _unpack(packed: dict[str, Any]) -> Snapshot:
    state = State()
    changed = []
    for family in FAMILIES:
        kept = packed["families"].get(family.name)
        if kept is None:
            continue
        if kept["table"] != family.fingerprint:
            changed.append(family.name)
            continue
        make = maker(family)
        for name, table in (("series", state.series), ("detail", state.detail)):
            for labels, values in kept[name]:
                series = make(values[0])
                series.unpack(values)
                table[family.name][tuple(labels)] = series
    _unpack_loads(state.loads, packed["loads"])
    for proc, values in packed["books"].items():
        state.books[proc] = book = Book()
        book.end, gaps, book.refused, book.skipped, book.gone, book.locked = values
        book.gaps = [(first, end) for first, end in gaps]
        state.logged += book.end
        state.lost += book.lost
        state.gone += book.gone
    state.events = Counter(packed["events"])
    state.refused = Counter(packed["refused"])
    state.rejected = Counter(packed["rejected"])
    state.skipped = packed["skipped"]
    state.duplicates = packed["duplicates"]
    state.last_event = packed["last_event"]
    segments = {proc: int(n) for proc, n in packed["segments"].items()}
    shipped = {str(name): int(position) for name, position in packed.get("shipped", {}).items()}
    return Snapshot(state, segments, changed, shipped)


def _unpack_loads(loads: Loads, packed: dict[str, Any]) -> None:
    for proc, by_id in packed["open"].items():
        loads.open[proc] = {}
        for load_id, (started, ended, labels, phases) in by_id.items():
            loads.open[proc][load_id] = load = Load()
            load.started, load.ended, load.labels = started, ended, tuple(labels)
            load.phases = {phase: (seq, runs) for phase, (seq, runs) in phases.items()}
    loads.series = {tuple(labels): timestamp for labels, timestamp in packed["series"]}
    loads.abandoned = {tuple(labels): count for labels, count in packed["abandoned"]}
