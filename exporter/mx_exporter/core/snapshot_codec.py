"""The snapshot's bytes: a state as one JSON object, and back, bit for bit.

Sums are kept as the exact integers they are. A snapshot names, for each process, the last segment
that it stands for, and the row of the table that each family was derived with, so that changed
boundaries are noticed. It also keeps how far the remaining segments were shipped, which is no
matter to the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..errors import MxError
from .catalog import Catalog
from .ledger import Book
from .load_tracker import Load, Loads
from .ranges import Ranges
from .series_table import maker
from .state import SeriesByLabels, State

FORMAT = 1


class BadSnapshot(MxError):
    """A snapshot that cannot be used. ``str()`` says why."""


@dataclass
class Snapshot:
    """A state, and what it stands for."""

    state: State
    #: proc -> number of the last segment that the state stands for.
    segments: dict[str, int] = field(default_factory=dict)
    #: Families that start afresh: the snapshot was derived with another row of the table.
    changed: list[str] = field(default_factory=list)
    #: Segment's file name -> bytes of it that were shipped.
    shipped: dict[str, int] = field(default_factory=dict)


def dump(
    catalog: Catalog,
    state: State,
    segments: Mapping[str, int],
    shipped: Mapping[str, int] | None = None,
) -> bytes:
    """A snapshot as it lies in its file: one JSON object. Parameters as for `Snapshot`."""
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
                for family in catalog.families
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
                    book.rejections,
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


def load(catalog: Catalog, data: bytes) -> Snapshot:
    """Read a snapshot back. A family that the catalogue derives in another way starts afresh.

    :raises BadSnapshot: it is damaged, or of a format that this version does not know.
    """
    try:
        packed = orjson.loads(data)
        if packed["format"] != FORMAT:
            raise BadSnapshot(
                f"is of format {packed['format']!r}, and this version reads format {FORMAT}"
            )
        return _unpack(catalog, packed)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadSnapshot(f"is damaged: {_words(error)}") from None


def _words(error: Exception) -> str:
    if isinstance(error, orjson.JSONDecodeError):
        return str(error)
    if isinstance(error, KeyError):
        return f'"{error.args[0]}" is missing'
    return "it holds values of other types than a snapshot does"


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


def _unpack(catalog: Catalog, packed: dict[str, Any]) -> Snapshot:
    state = State(catalog)
    changed = []
    for family in catalog.families:
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
        book.end, gaps, book.refused, book.skipped, book.gone, book.locked, rejections = values
        book.gaps = _ranges(gaps)
        book.rejections = {reason: _ranges(numbers) for reason, numbers in rejections.items()}
        state.logged += book.end
        state.rejected_numbers += book.rejected
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


def _ranges(packed: list[list[int]]) -> Ranges:
    return [(first, end) for first, end in packed]


def _unpack_loads(loads: Loads, packed: dict[str, Any]) -> None:
    for proc, by_id in packed["open"].items():
        loads.open[proc] = {}
        for load_id, (started, ended, labels, phases) in by_id.items():
            loads.open[proc][load_id] = load = Load()
            load.started, load.ended, load.labels = started, ended, tuple(labels)
            load.phases = {phase: (seq, runs) for phase, (seq, runs) in phases.items()}
    loads.series = {tuple(labels): timestamp for labels, timestamp in packed["series"]}
    loads.abandoned = {tuple(labels): count for labels, count in packed["abandoned"]}
