"""Events as objects, one type for each event of the schema: what the fold takes.

Lines just as the emitter writes them become objects many at a time, types checked on the way. What
cannot be had that way is told so, and is for `parse` to judge line by line; where both give an
event, it is the same.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import Annotated, Any, Union

import msgspec

from mx_log.schema import ANY, EVENTS, INTEGER, LOADS, NUMBER, OPTIONAL_TEXT, TEXT, TIMESTAMP, Field

#: What `orjson` reads as an integer, too; a longer one is a float to it.
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Number = _Integer | float | None
_Filled = Annotated[str, msgspec.Meta(min_length=1)]


class Event(msgspec.Struct, kw_only=True, tag_field="event", forbid_unknown_fields=True, gc=False):
    """What every event says. The types of single events add their own fields.

    As far as a line's own fields in the order of a line, in which they are found soonest.
    """

    timestamp: str
    level: str = ""
    proc: _Filled
    seq: _Count
    rank: _Integer | None = None
    scheme: str
    load_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


class Candidate(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One of the ``loads`` of ``candidate_loads_seen``."""

    source_worker_id: str
    load: _Number = None


_TYPES: dict[str, Any] = {
    TEXT: str,
    OPTIONAL_TEXT: str | None,
    INTEGER: _Integer,
    NUMBER: _Number,
    LOADS: list[Candidate],
    ANY: bool | None,
}


def _field(field: Field) -> tuple[str, Any] | tuple[str, Any, Any]:
    kind = _TYPES[field.kind]
    if field.required:
        return (field.name, kind)
    if field.kind in (TEXT, INTEGER):  # missing, but never null
        return (field.name, kind | msgspec.UnsetType, msgspec.UNSET)
    return (field.name, kind, None)


#: event -> its type.
TYPES: dict[str, type[Event]] = {
    event.name: msgspec.defstruct(  # type: ignore[misc]  # of the base that is given
        event.name,
        [_field(field) for field in event.fields],
        bases=(Event,),
        tag=event.name,
        kw_only=True,
        gc=False,
    )
    for event in EVENTS.values()
}


class Unknown(Event):
    """An event that the schema does not know."""


_decode = msgspec.json.Decoder(Union[tuple(TYPES.values())]).decode  # noqa: UP007 - of a tuple
_timestamp = attrgetter("timestamp")

_SHAPE = b"0000-00-00T00:00:00.000000Z\n"
_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")

_begin = itemgetter(slice(18))

#: Beginnings of good timestamps, as far as the tens of their seconds.
_tens_of_seconds: set[str] = set()
_MAX_KNOWN = 10_000


def decode(lines: list[bytes]) -> list[Event] | None:
    """The events of lines; None when one of them is not just as the emitter writes them."""
    try:
        events: list[Event] = list(map(_decode, lines))
    except (msgspec.MsgspecError, RecursionError):
        return None
    return events if _are_timestamps(list(map(_timestamp, events))) else None


def _are_timestamps(stamps: list[str]) -> bool:
    """Whether all match `TIMESTAMP`; many at a time, which takes half as long as one by one."""
    text = ("\n".join(stamps) + "\n").encode()
    if text.translate(_TO_ZERO) != _SHAPE * len(stamps):
        return False
    # What is left to be judged is the range of all but the last seven digits, which have none.
    if _tens_of_seconds.issuperset(map(_begin, stamps)):
        return True
    unknown = set(map(_begin, stamps)) - _tens_of_seconds
    if not all(TIMESTAMP.fullmatch(f"{begin}0.000000Z") for begin in unknown):
        return False
    if len(_tens_of_seconds) > _MAX_KNOWN:
        _tens_of_seconds.clear()
    _tens_of_seconds.update(unknown)
    return True


def event_of(record: dict[str, Any]) -> Event:
    """The event of a line that was judged alone (`parse.check`); its numbers may be of any type."""
    kind = TYPES.get(record["event"], Unknown)
    given = {name: record[name] for name in kind.__struct_fields__ if name in record}
    if "loads" in given:
        given["loads"] = [
            Candidate(each["source_worker_id"], each.get("load")) for each in given["loads"]
        ]
    return kind(**given)
