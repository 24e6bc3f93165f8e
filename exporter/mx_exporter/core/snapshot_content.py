"""The snapshot's content: which values there are, of which types, in which ranges.

Whatever is decoded here can be shown: no page fails later over a value that a snapshot brought.
Sums are kept as the exact integers they are, in hexadecimal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import add, gt
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mx_log.schema import TIMESTAMP

from . import ranges
from .catalog import HISTOGRAM, LATEST, PRESENCE, SUM, VALUE, Family
from .ranges import Ranges
from .snapshot_seal import damaged

#: The largest number of an event, and the smallest and largest rank: those of 64 bits.
_LARGEST = 2**63 - 1

#: A table without series.
_EMPTY = b"[]"

#: Hexadecimal digits of a sum: 2^63 of the largest floats in units of the smallest.
_DIGITS = (1074 + 1024 + 63) // 4 + 1

_Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
#: The number of an event, or -1 for none.
_Last = Annotated[int, Meta(ge=-1, le=_LARGEST)]
_Rank = Annotated[int, Meta(ge=-(2**63), le=_LARGEST)]
_Proc = Annotated[str, Meta(min_length=1)]
#: What a label shows: Prometheus's parser takes a zero byte for the end of the page.
_Text = Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]
_Timestamp = Annotated[str, Meta(pattern=rf"(?a)\A(?:{TIMESTAMP.pattern})\Z")]
_TimestampOrNone = Annotated[str, Meta(pattern=rf"(?a)\A(?:{TIMESTAMP.pattern})?\Z")]
_Amount = Annotated[str, Meta(pattern=rf"\A0x[0-9a-f]{{1,{_DIGITS}}}\Z")]
_Sum = Annotated[str, Meta(pattern=rf"\A-?0x[0-9a-f]{{1,{_DIGITS}}}\Z")]
_Stamp = tuple[_TimestampOrNone, str, _Last]
_Exemplar = tuple[_Timestamp, _Proc, _Count, float, _Rank | None, str | None]
_Ranges = list[tuple[_Count, Annotated[int, Meta(ge=1)]]]
_LoadLabels = tuple[_Text, _Text, _Text, _Text]


class Book(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """See `ledger.Book`."""

    end: Annotated[int, Meta(ge=0)]
    gaps: _Ranges
    refused: _Count
    skipped: _Count
    gone: bool
    locked: bool
    #: Format 1 had none.
    rejections: dict[_Text, _Ranges] = {}

    def __post_init__(self) -> None:
        apart = list(self.gaps)
        for numbers in self.rejections.values():
            _check_ranges(numbers)
            apart += numbers
        _check_ranges(self.gaps)
        apart.sort()
        if any(end > first for (_, end), (first, _) in pairwise(apart)):
            raise ValueError("Expected numbers that are lost or rejected for one reason")
        if self.end > _LARGEST + 1 or (apart and apart[-1][1] > self.end):
            raise ValueError("Expected numbers below the end")
        if self.gaps and self.gaps[-1][1] == self.end:
            raise ValueError("Expected the highest number to be met")
        if self.refused + self.skipped > self.end - ranges.count(apart):
            raise ValueError("Expected as many events as became something")


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """See `ledger.Closed`: a column of each, and of the last segment that is stood for (-1: none).

    There may be very many of them, so no code here goes through them one by one.
    """

    procs: list[_Proc] = []
    segments: list[_Last] = []
    ends: list[Annotated[int, Meta(ge=0)]] = []
    refused: list[_Count] = []
    skipped: list[_Count] = []
    locked: list[bool] = []

    def __post_init__(self) -> None:
        columns: tuple[list[Any], ...] = msgspec.structs.astuple(self)
        if len({*map(len, columns)}) > 1:
            raise ValueError("Expected columns of one length")
        if len(set(self.procs)) < len(self.procs):
            raise ValueError("Expected each process in one place")
        became = map(add, self.refused, self.skipped)
        if max(self.ends, default=0) > _LARGEST + 1 or any(map(gt, became, self.ends)):
            raise ValueError("Expected as many events as became something")


class Load(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """See `load_tracker.Load`."""

    started: _Last
    ended: _Last
    labels: _LoadLabels
    phases: dict[_Text, tuple[_Count, bool]]
    #: Format 1 had none.
    since: _TimestampOrNone = ""


class Left(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """See `load_tracker.Outline`, and whose loads are like that: process and load_id of each."""

    started: _Last
    ended: _Last
    labels: _LoadLabels
    phases: tuple[tuple[_Text, _Count, bool], ...]
    ids: list[str]

    def __post_init__(self) -> None:
        if len(self.ids) % 2:
            raise ValueError("Expected a process and an id of each load")

    def loads(self) -> Iterator[tuple[str, str]]:
        """Process and load_id of each."""
        return zip(self.ids[::2], self.ids[1::2], strict=True)


class _SomeLoads(msgspec.Struct, forbid_unknown_fields=True):
    open: dict[_Proc, dict[str, Load]]
    series: list[tuple[_LoadLabels, _Timestamp]]

    def __post_init__(self) -> None:
        _check_unique([labels for labels, _ in self.series])


class Loads(_SomeLoads, forbid_unknown_fields=True):
    """See `load_tracker.Loads`."""

    left: list[Left]


class _Loads1(_SomeLoads, forbid_unknown_fields=True):
    """The same in format 1, which said how many loads were abandoned, and not which."""

    abandoned: list[tuple[_LoadLabels, Annotated[int, Meta(ge=0, le=1_000_000)]]]

    def current(self) -> Loads:
        """The same, as loads of nobody."""
        left = []
        for at, ((engine, model, phase, scheme), count) in enumerate(self.abandoned):
            phases = ((phase, 1, True),) if phase else ()
            ids = [name for n in range(count) for name in ("", f"{at}-{n}")]
            left.append(Left(0, -1, (engine, model, "", scheme), phases, ids))
        return Loads(open=self.open, series=self.series, left=left)


class Tables(msgspec.Struct, forbid_unknown_fields=True):
    """One family: the fingerprint of its row, and its series without and with opt-in labels."""

    table: str
    series: msgspec.Raw
    detail: msgspec.Raw


class Content(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that a snapshot holds. Fields are those of `snapshot_codec.Snapshot` and `State`."""

    segments: dict[str, _Count]
    shipped: dict[str, _Count] = {}
    written: dict[_Proc, float] = {}
    families: dict[str, Tables]
    loads: Loads
    #: name -> calls, and the first one's timestamp; format 1 had none.
    calls: dict[_Text, tuple[_Count, _Timestamp]] = {}
    books: dict[_Proc, Book]
    closed: Closed = msgspec.field(default_factory=Closed)
    events: dict[_Text, _Count]
    refused: dict[_Text, _Count]
    rejected: dict[_Text, _Count]
    skipped: _Count
    duplicates: _Count
    last_event: _TimestampOrNone

    def __post_init__(self) -> None:
        closed = set(self.closed.procs)
        if closed & (self.books.keys() | self.segments.keys()):
            raise ValueError("Expected each process in one place")
        left = {proc for each in self.loads.left for proc in each.ids[::2]} - {""}
        if not (self.loads.open.keys() | left) - self.books.keys() <= closed:
            raise ValueError("Expected books of each process with a load")
        numbered: Counter[str] = Counter()
        for book in self.books.values():
            for reason, numbers in book.rejections.items():
                numbered[reason] += ranges.count(numbers)
        if not numbered <= Counter(self.rejected):
            raise ValueError("Expected as many rejected lines as the books hold")


class _Content1(Content, kw_only=True, forbid_unknown_fields=True):
    """The same in format 1. It is checked once it is of the format that is written."""

    format: int
    loads: _Loads1  # type: ignore[assignment]

    def __post_init__(self) -> None:
        pass

    def current(self) -> Content:
        """As content of the format that is written."""
        fields = {name: getattr(self, name) for name in Content.__struct_fields__}
        return Content(**{**fields, "loads": self.loads.current()})


_decode = msgspec.json.Decoder(Content).decode
_decode_1 = msgspec.json.Decoder(_Content1).decode


def encode(content: Content) -> bytes:
    """The content as one JSON object."""
    return msgspec.json.encode(content)


def decode(data: bytes, given: int) -> Content:
    """Read content of a ``given`` format; what is in it is in its range, but for the families'
    tables: `decode_table` reads those.

    :raises BadSnapshot: it holds other values than a snapshot does.
    """
    try:
        return _decode_1(data).current() if given == 1 else _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(error) from None


def encode_table(table: list[tuple[tuple[str, ...], list[Any]]]) -> msgspec.Raw:
    """Label values and what is accumulated under them, as `series` packs it."""
    return msgspec.Raw(msgspec.json.encode(table))


def decode_table(
    family: Family, data: msgspec.Raw, *, opt_in: bool
) -> list[tuple[tuple[str, ...], Any]]:
    """The same back.

    :raises BadSnapshot: it holds other values than a table of this family does.
    """
    if bytes(data) == _EMPTY:
        return []
    labels = len(family.shown(opt_in=opt_in))
    try:
        table: list[Any] = _decoder(family.measure, labels, len(family.buckets) + 1)(data)
        _check_unique([labels for labels, _ in table])
        if opt_in and table and not family.has_opt_in:
            raise ValueError("Expected no labels that show only when asked for")
        if family.measure == HISTOGRAM:
            for _, (_, _, _, exemplars) in table:
                _check_buckets(family.buckets, exemplars)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(error, f"{family.name}: ") from None
    return table


@cache
def _decoder(measure: str, labels: int, buckets: int) -> Any:
    values: Any = {
        PRESENCE: tuple[_Timestamp],
        SUM: tuple[_Timestamp, _Amount],
        LATEST: tuple[_Timestamp, _Stamp, float],
        VALUE: tuple[_Timestamp, _Stamp, float],
        HISTOGRAM: tuple[
            _Timestamp,
            Annotated[list[_Count], Meta(min_length=buckets, max_length=buckets)],
            _Sum,
            Annotated[list[_Exemplar | None], Meta(min_length=buckets, max_length=buckets)],
        ],
    }.get(measure, tuple[_Timestamp, _Count])
    given: Any = tuple.__class_getitem__((_Text,) * labels)
    return msgspec.json.Decoder(list[tuple[given, values]]).decode


def _check_ranges(numbers: Ranges) -> None:
    before = -1
    for first, end in numbers:
        # Neighbouring ranges are one.
        if not before < first < end:
            raise ValueError("Expected ranges of numbers in their order")
        before = end


def _check_unique(labels: list[tuple[str, ...]]) -> None:
    if len(set(labels)) < len(labels):
        raise ValueError("Expected label values that differ")


def _check_buckets(bounds: tuple[float, ...], exemplars: list[Any]) -> None:
    for bucket, last in enumerate(exemplars):
        if last is not None and bisect_left(bounds, last[3]) != bucket:
            raise ValueError("Expected exemplars that lie in their buckets")
