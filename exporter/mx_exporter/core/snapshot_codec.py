"""The snapshot's bytes: a state, and back, bit for bit.

A snapshot names, for each process, the last segment that it stands for, and the row of the table
that each family was derived with, so that changed boundaries are noticed. It also keeps how far
the remaining segments were shipped, which is no matter to the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import Any

import msgspec

from . import snapshot_content as content
from .catalog import Catalog
from .ledger import Book, Closed
from .load_tracker import LeftLoad, Load, Loads, Outline
from .series_table import maker
from .snapshot_seal import seal, unseal
from .state import SeriesByLabels, State


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
    #: Process that is not gone -> last write to one of its segments, in seconds since the epoch.
    written: dict[str, float] = field(default_factory=dict)


def dump(
    catalog: Catalog,
    state: State,
    segments: Mapping[str, int],
    shipped: Mapping[str, int] | None = None,
    written: Mapping[str, float] | None = None,
) -> bytes:
    """A snapshot as it lies in its file. Parameters as for `Snapshot`.

    :raises BadSnapshot: it would be too large to be read back.
    """
    return _sealed(pack(catalog, state, segments, shipped, written))


def pack(
    catalog: Catalog,
    state: State,
    segments: Mapping[str, int],
    shipped: Mapping[str, int] | None = None,
    written: Mapping[str, float] | None = None,
) -> content.Content:
    """What a snapshot holds. Parameters as for `Snapshot`."""
    closed = state.books.closed
    return content.Content(
        segments={proc: n for proc, n in segments.items() if proc not in closed},
        shipped=dict(shipped or {}),
        written=dict(written or {}),
        families={
            family.name: content.Tables(
                family.fingerprint,
                _pack_table(state.series[family.name]),
                _pack_table(state.detail.get(family.name, {})),
            )
            for family in catalog.families
        },
        loads=_pack_loads(state.loads),
        calls=state.calls.by_name,
        books={
            proc: content.Book(
                book.end,
                book.gaps,
                book.refused,
                book.skipped,
                book.gone,
                book.locked,
                book.rejections,
            )
            for proc, book in state.books.opened.items()
        },
        closed=_pack_closed(closed, segments),
        events=state.events,
        refused=state.refused,
        rejected=state.rejected,
        skipped=state.skipped,
        duplicates=state.duplicates,
        last_event=state.last_event,
    )


def load(catalog: Catalog, data: bytes) -> Snapshot:
    """Read a snapshot back. A family that the catalogue derives in another way starts afresh.

    :raises BadSnapshot: it is damaged, or of a format that this version does not know.
    """
    return unpack(catalog, _opened(data))


def amend(data: bytes, shipped: Mapping[str, int]) -> bytes:
    """A snapshot of the same state with other positions of shipping.

    What an older table derived stays as it is.

    :raises BadSnapshot: as `load` does.
    """
    return _sealed(msgspec.structs.replace(_opened(data), shipped=dict(shipped)))


def _sealed(packed: content.Content) -> bytes:
    return seal(content.encode(packed))


def _opened(data: bytes) -> content.Content:
    given, inner = unseal(data)
    return content.decode(inner, given)


def _pack_table(table: SeriesByLabels) -> msgspec.Raw:
    return content.encode_table([(labels, series.pack()) for labels, series in table.items()])


def _pack_closed(closed: Mapping[str, Closed], segments: Mapping[str, int]) -> content.Closed:
    ends, refused, skipped, locked = (list(map(itemgetter(n), closed.values())) for n in range(4))
    last = list(map(segments.get, closed, repeat(-1)))
    return content.Closed(list(closed), last, ends, refused, skipped, locked)


def _pack_loads(loads: Loads) -> content.Loads:
    return content.Loads(
        open={
            proc: {
                load_id: content.Load(
                    load.started, load.ended, load.labels, load.phases, load.since
                )
                for load_id, load in by_id.items()
            }
            for proc, by_id in loads.open.items()
        },
        series=list(loads.series.items()),
        left=_pack_left(loads),
    )


def _pack_left(loads: Loads) -> list[content.Left]:
    """What processes that are gone left: many loads are alike, and told apart by two ids each. For
    how long they ran, should their process live after all, is not worth the room."""
    ids: dict[Outline, list[str]] = {}
    for proc, left in loads.left.items():
        for each in left:
            ids.setdefault(each.outline, []).extend((proc, each.load_id))
    return [content.Left(*outline, each) for outline, each in ids.items()]


def unpack(catalog: Catalog, packed: content.Content) -> Snapshot:
    """The same back; families as for `load`.

    :raises BadSnapshot: a family's table is damaged.
    """
    state = State(catalog)
    changed = []
    for family in catalog.families:
        kept = packed.families.get(family.name)
        if kept is None:
            if packed.events:
                changed.append(family.name)
            continue
        if kept.table != family.fingerprint:
            changed.append(family.name)
            continue
        make = maker(family)
        tables: Any = ((state.series, kept.series, False), (state.detail, kept.detail, True))
        for into, raw, opt_in in tables:
            for labels, values in content.decode_table(family, raw, opt_in=opt_in):
                series = make(values[0])
                series.unpack(values)
                into[family.name][labels] = series
    _unpack_loads(state.loads, packed.loads)
    state.calls.by_name = packed.calls
    segments = _unpack_books(state, packed)
    state.events = Counter(packed.events)
    state.refused = Counter(packed.refused)
    state.rejected = Counter(packed.rejected)
    state.skipped = packed.skipped
    state.duplicates = packed.duplicates
    state.last_event = packed.last_event
    return Snapshot(state, segments, changed, packed.shipped, packed.written)


def _unpack_books(state: State, packed: content.Content) -> dict[str, int]:
    """Take up the books; return the last segment of each process."""
    for proc, values in packed.books.items():
        book = Book()
        book.end, book.gaps = values.end, values.gaps
        book.refused, book.skipped = values.refused, values.skipped
        book.gone, book.locked = values.gone, values.locked
        book.rejections = values.rejections
        state.logged += book.end
        state.rejected_numbers += book.rejected
        state.lost += book.lost
        state.gone += book.gone
        state.books.put(proc, book)
    closed = packed.closed
    rows = zip(closed.ends, closed.refused, closed.skipped, closed.locked, strict=True)
    state.books.closed.update(zip(closed.procs, rows, strict=True))
    state.logged += sum(closed.ends)
    state.gone += len(closed.procs)
    last = zip(closed.procs, closed.segments, strict=True)
    return {**packed.segments, **{proc: n for proc, n in last if n >= 0}}


def _unpack_loads(loads: Loads, packed: content.Loads) -> None:
    for proc, by_id in packed.open.items():
        loads.open[proc] = {}
        for load_id, values in by_id.items():
            loads.open[proc][load_id] = load = Load()
            load.started, load.ended, load.labels = values.started, values.ended, values.labels
            load.phases, load.since = values.phases, values.since
    loads.series = dict(packed.series)
    left: dict[str, list[LeftLoad]] = {}
    for given in packed.left:
        outline = Outline(given.started, given.ended, given.labels, given.phases)
        for proc, load_id in given.loads():
            left.setdefault(proc, []).append(LeftLoad(load_id, "", outline))
    for proc, those in left.items():
        loads.take(proc, those)
