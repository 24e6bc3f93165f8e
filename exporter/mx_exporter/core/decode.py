"""Lines to events: one decoder, built from the schema.

Each event of the schema is a struct type of its own. A line becomes an instance of its event's
type, with the types of its fields checked on the way, or a `Rejected` that says why it gives no
event. Fields that the schema does not know are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple, Union

import msgspec

from mx_log import schema
from mx_log.schema import ANY, INTEGER, LOADS, NUMBER, OPTIONAL_TEXT, TEXT, TIMESTAMP

#: Why a line can be rejected. A rejected line is counted by reason and skipped.
REASONS = {
    "not_json": "the line is not JSON, or nested deeper than 256 levels",
    "not_object": "the line is JSON, but not an object",
    "wrong_type": "a key that every line carries, or a field of the event, has the wrong type",
    "too_long": "the line is longer than 1 MiB",
    "torn": "the last line of a finished file has no end and is no whole event",
    "bad_envelope": "a log collector's envelope that cannot be opened",
}

#: Reasons of lines that are no JSON object: as the last line of a finished file they are torn.
NO_OBJECT = ("not_json", "not_object")


#: `Rejected.proc` and ``seq`` of a line that does not say both.
NOBODY = ("", -1)


class Rejected(NamedTuple):
    """A line that gives no event: ``reason`` is a key of `REASONS`, ``detail`` a sentence.

    ``proc`` and ``seq`` are those that the line gives, if it gives both as an event does; else
    they are empty and -1.
    """

    reason: str
    detail: str
    proc: str = ""
    seq: int = -1


_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Filled = Annotated[str, msgspec.Meta(min_length=1)]


class Event(msgspec.Struct, kw_only=True, gc=False):
    """What every event carries. The type of each event of the schema adds the event's own fields.

    Fields stand in the order of a line, in which the decoder finds them soonest.
    """

    timestamp: str
    level: str = ""
    proc: _Filled
    seq: _Count
    rank: _Integer | None = None
    scheme: str
    load_id: str | None = None


class Unknown(Event):
    """An event that the schema does not know, of a newer emitter or of an engine's own."""

    event: str


class Identity(msgspec.Struct, gc=False):
    """What is read of a line that was rejected."""

    proc: _Filled
    seq: _Count


class Candidate(msgspec.Struct, gc=False):
    """One of the ``loads`` of ``candidate_loads_seen``."""

    source_worker_id: str
    load: Any = None


#: How a field is read, and in words what is expected of it. A number may be anything: whether it
#: is an observation is judged when a metric is derived, and then counted as refused.
_KINDS: dict[str, tuple[Any, str]] = {
    TEXT: (str, "text"),
    OPTIONAL_TEXT: (str | None, "text or null"),
    INTEGER: (_Integer, "an integer"),
    LOADS: (list[Candidate], "a list of objects with a text source_worker_id"),
    NUMBER: (Any, "a number"),
    ANY: (Any, "anything"),
}

#: What is expected of the keys that every line carries.
_EXPECTED = {
    "event": "text",
    "timestamp": "RFC 3339 in UTC with six digits",
    "level": "text",
    "proc": "a process's id",
    "seq": "an integer from 0",
    "rank": "an integer or null",
    "scheme": "text",
    "load_id": "text or null",
}

#: What may stand around a good line: zero bytes that a crash of the machine left in front of
#: it, a byte order mark, the carriage return of a transfer in text mode.
_PADDING = b"\0 \t\r\n"
_PADDED = re.compile(rb"\A(?:\xef\xbb\xbf|[\0 \t\r\n])+")

#: Deepest nesting of a line. How deep the decoder itself can go differs between releases of Python,
#: and the same log must give the same everywhere. The emitter nests less than 20 levels.
MAX_DEPTH = 256

#: Stands for a line that is nested deeper.
_TOO_DEEP = b"nested too deep"

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[\[\]{}]")

#: Where msgspec says the fault lies: a key at the top, or one that is missing there.
_FAULT = re.compile(r"`\$\.(\w+)|missing required field `(\w+)`")


class Decoder:
    """Decodes lines into the events of a schema.

    :param events: the schema's events.
    """

    def __init__(self, events: Iterable[schema.Event]) -> None:
        self._events: Mapping[str, schema.Event] = {event.name: event for event in events}
        #: event -> its type
        self.types: Mapping[str, type[Event]] = {
            name: _type_of(event) for name, event in self._events.items()
        }
        union: Any = Union[tuple(self.types.values())]  # noqa: UP007 - of a tuple
        self._known = msgspec.json.Decoder(union).decode
        self._unknown = msgspec.json.Decoder(Unknown).decode
        self._identity = msgspec.json.Decoder(Identity).decode

    def decode(self, lines: Iterable[bytes]) -> list[Event | Rejected]:
        """Decode lines, each without its newline, in order; blank lines are left out."""
        filled = list(filter(None, lines))
        # Each level takes two characters. No longer line: nothing more to look at.
        if max(map(len, filled), default=0) > 2 * MAX_DEPTH:
            filled = [_TOO_DEEP if _is_too_deep(line) else line for line in filled]
        left = iter(filled)
        found: list[Any] = []
        clean = True
        while True:
            try:
                # Where a line raises, those before it have been added.
                found.extend(map(self._known, left))
                break
            except (msgspec.MsgspecError, RecursionError):
                clean = False
                found.append(self._decode_odd(filled[len(found)]))
        if clean and _are_timestamps(list(map(_timestamp, found))):
            return found
        return [self._check_timestamp(each) for each in found if each is not None]

    def decode_line(self, line: bytes) -> Event | Rejected | None:
        """Decode one line, without its newline; None for a blank one."""
        found = self.decode([line])
        return found[0] if found else None

    def _decode_odd(self, line: bytes) -> Event | Rejected | None:
        """A line that is not just one of the schema's events."""
        if line is _TOO_DEEP:
            return Rejected(
                "not_json", f"the line is nested deeper than {MAX_DEPTH} levels", *NOBODY
            )
        bare = _PADDED.sub(b"", line, count=1).rstrip(_PADDING)
        if not bare:
            return None
        try:
            event: Event = self._known(bare)
            return event
        except (msgspec.MsgspecError, RecursionError) as error:
            fault: Exception = error
        return self._judge(fault, bare)

    def _judge(self, fault: Exception, bare: bytes) -> Event | Rejected:
        """Why a line is none of the schema's events, unless it is an event of another name."""
        try:
            identity = self._identity(bare)
        except (msgspec.MsgspecError, RecursionError):
            who: tuple[str, int] = NOBODY
        else:
            who = (identity.proc, identity.seq)
        # What msgspec refuses first may be a type although what follows is no JSON.
        try:
            value = msgspec.json.decode(bare)
        except (msgspec.MsgspecError, RecursionError) as error:
            return Rejected("not_json", str(error), *who)
        if type(value) is not dict:
            detail = f"the line is {_named(value)}, not an object"
            return Rejected("not_object", detail, *who)
        name = value.get("event")
        if type(name) is str and name not in self._events:
            try:
                unknown: Event = self._unknown(bare)
                return unknown
            except msgspec.MsgspecError as error:
                fault = error
        return Rejected("wrong_type", self._wrong_type(fault, name, value), *who)

    def _wrong_type(self, fault: Exception, name: Any, value: dict[str, Any]) -> str:
        match = _FAULT.search(str(fault))
        if match is None:
            return str(fault)
        key = match[1] or match[2]
        given = _named(value.get(key, _MISSING))
        if type(name) is not str:
            return f'"event" is {given}; expected text'
        return f'"{key}" of {name[:80]} is {given}; expected {self._expected(name, key)}'

    def _expected(self, name: str, key: str) -> str:
        fields = self._events[name].fields if name in self._events else ()
        kinds = {field.name: _KINDS[field.kind][1] for field in fields}
        return kinds.get(key) or _EXPECTED.get(key, "another value")

    def _check_timestamp(self, found: Event | Rejected) -> Event | Rejected:
        if isinstance(found, Rejected) or TIMESTAMP.fullmatch(found.timestamp):
            return found
        given, expected = _named(found.timestamp), _EXPECTED["timestamp"]
        detail = f'"timestamp" of {name_of(found)[:80]} is {given}; expected {expected}'
        return Rejected("wrong_type", detail, found.proc, found.seq)


def _is_too_deep(line: bytes) -> bool:
    if len(line) <= 2 * MAX_DEPTH or line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", line)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def ended(found: Event | Rejected) -> Event | Rejected:
    """What the last line of a finished file is, when it has no end."""
    if isinstance(found, Rejected) and found.reason in NO_OBJECT:
        return found._replace(reason="torn", detail=REASONS["torn"])
    return found


def name_of(event: Event) -> str:
    """The name of an event."""
    return event.event if isinstance(event, Unknown) else type(event).__name__


@cache
def _type_of(event: schema.Event) -> type[Event]:
    made: type[Event] = msgspec.defstruct(  # type: ignore[assignment]  # of the base that is given
        event.name,
        [_field(field) for field in event.fields],
        bases=(Event,),
        tag=event.name,
        tag_field="event",
        kw_only=True,
        # What a line leaves out, a line that is made of the event leaves out as well.
        omit_defaults=True,
        gc=False,
    )
    return made


def _field(field: schema.Field) -> tuple[str, Any] | tuple[str, Any, Any]:
    kind = _KINDS[field.kind][0]
    # One that may be missing is None then; whether a line may say null is a matter of its kind.
    return (field.name, kind) if field.required else (field.name, kind, None)


# --------------------------------------------------------------------------------------
# Words

_MISSING = object()


def _named(value: object) -> str:
    if value is _MISSING:
        return "missing"
    if value is None:
        return "null"
    names = {str: "text", bool: "a boolean", int: "an integer", float: "a number", list: "a list"}
    name = names.get(type(value), "an object")
    if type(value) in (str, int, float) and len(repr(value)) <= 40:
        return f"{name} ({value!r})"
    return name


# --------------------------------------------------------------------------------------
# Timestamps

_timestamp = attrgetter("timestamp")

_SHAPE = b"0000-00-00T00:00:00.000000Z\n"
_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")

_begin = itemgetter(slice(18))

#: Beginnings of good timestamps, as far as the tens of their seconds.
_tens_of_seconds: set[str] = set()
_MAX_KNOWN = 10_000


def _are_timestamps(stamps: list[str]) -> bool:
    """Whether all match `TIMESTAMP`. Many at a time, which takes half as long as one by one."""
    text = ("\n".join(stamps) + "\n").encode()
    if text.translate(_TO_ZERO) != _SHAPE * len(stamps):
        return False
    # What is left to be checked is the range of all but the last seven digits, which have none.
    if _tens_of_seconds.issuperset(map(_begin, stamps)):
        return True
    unknown = set(map(_begin, stamps)) - _tens_of_seconds
    if not all(TIMESTAMP.fullmatch(f"{begin}0.000000Z") for begin in unknown):
        return False
    if len(_tens_of_seconds) > _MAX_KNOWN:
        _tens_of_seconds.clear()
    _tens_of_seconds.update(unknown)
    return True
