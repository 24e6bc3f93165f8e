"""Lines to events: JSON, and the types that the schema promises.

A record is a line's object as it stands there, for those who show it; the fold takes events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from mx_log.schema import ANY, EVENTS, INTEGER, LOADS, NUMBER, OPTIONAL_TEXT, TEXT, TIMESTAMP

from .typed import Event, decode, event_of

#: Why a line can be rejected. A rejected line is counted by reason and skipped.
REASONS = {
    "not_json": "the line is not JSON",
    "not_object": "the line is JSON, but not an object",
    "wrong_type": "a key that every line carries, or a field of the event, has the wrong type",
    "too_long": "the line is longer than 1 MiB",
    "torn": "the last line of a finished file has no end and is no whole event",
    "bad_envelope": "a log collector's envelope that cannot be opened",
}


#: Reasons of lines that are no JSON object: as the last line of a finished file they are torn.
NO_OBJECT = ("not_json", "not_object")


class Rejected(NamedTuple):
    """A line that gives no event: ``reason`` is a key of `REASONS`, ``detail`` a sentence."""

    reason: str
    detail: str


Record = dict[str, Any]


class _Kind(NamedTuple):
    """What a value must be: of one of the types, and such that ``holds`` returns true."""

    types: frozenset[type]
    wanted: str
    holds: Callable[[Any], object] | None = None


def _are_loads(value: list[Any]) -> bool:
    return all(
        type(entry) is dict and type(entry.get("source_worker_id")) is str for entry in value
    )


_TEXT = frozenset({str})
_INTEGER = frozenset({int})
_NULL = type(None)

_KINDS = {
    TEXT: _Kind(_TEXT, "text"),
    OPTIONAL_TEXT: _Kind(_TEXT | {_NULL}, "text or null"),
    INTEGER: _Kind(_INTEGER, "an integer"),
    LOADS: _Kind(frozenset({list}), "a list of objects with a text source_worker_id", _are_loads),
}

#: (key, kind, required) for the keys that every line carries.
_RESERVED = (
    ("timestamp", _Kind(_TEXT, "RFC 3339 in UTC with six digits", TIMESTAMP.fullmatch), True),
    ("proc", _Kind(_TEXT, "a process's id", len), True),
    ("seq", _Kind(_INTEGER, "an integer from 0", lambda value: 0 <= value < 2**63), True),
    ("scheme", _KINDS[TEXT], True),
    ("rank", _Kind(_INTEGER | {_NULL}, "an integer or null"), False),
    ("level", _KINDS[TEXT], False),
    ("load_id", _KINDS[OPTIONAL_TEXT], False),
)

_CHECKS = {
    event.name: _RESERVED
    + tuple(
        (field.name, _KINDS[field.kind], field.required)
        for field in event.fields
        if field.kind not in (NUMBER, ANY)
    )
    for event in EVENTS.values()
}

_MISSING = object()
_BLANK = object()

#: What may stand around a good line: zero bytes that a crash of the machine left in front of
#: it, a byte order mark, the carriage return of a transfer in text mode.
_PADDING = b"\0 \t\r\n"
_PADDED = re.compile(rb"\A(?:\xef\xbb\xbf|[\0 \t\r\n])+")


def check(value: object) -> Record | Rejected:
    """Judge a line's JSON value: a record is an object whose keys are of the types in
    `mx_log.schema.EVENTS`. Events and fields that the schema does not know pass."""
    if type(value) is Rejected:
        return value
    if type(value) is not dict:
        return Rejected("not_object", f"the line is {_named(value)}, not an object")
    name = value.get("event")
    if type(name) is not str:
        given = _named(value.get("event", _MISSING))
        return Rejected("wrong_type", f'"event" is {given}; expected text')
    for key, kind, required in _CHECKS.get(name, _RESERVED):
        given = value.get(key, _MISSING)
        if given is _MISSING:
            if not required:
                continue
        elif type(given) in kind.types and (kind.holds is None or kind.holds(given)):
            continue
        return Rejected(
            "wrong_type", f'"{key}" of {name[:80]} is {_named(given)}; expected {kind.wanted}'
        )
    return value


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


def parse_line(line: bytes) -> Record | Rejected | None:
    """Turn one line, without its newline, into a record.

    Returns None for a blank line, and a `Rejected` for one that is not JSON, or that `check`
    rejects.
    """
    value = _load(line)
    return None if value is _BLANK else check(value)


def parse_lines(lines: Iterable[bytes]) -> list[Record | Rejected]:
    """Turn lines into records, in order: `parse_line` of each, blank lines left out."""
    parsed = map(parse_line, lines)
    return [record for record in parsed if record is not None]


def parse_events(lines: Iterable[bytes]) -> list[Event | Rejected]:
    """Turn lines into what the fold takes, in order; blank lines are left out.

    Lines just as the emitter writes them need not be judged key by key.
    """
    filled = list(filter(None, lines))
    events: list[Any] | None = decode(filled)
    if events is None:
        parsed = map(_parse_event, filled)
        return [event for event in parsed if event is not None]
    return events


def _parse_event(line: bytes) -> Event | Rejected | None:
    events = decode([line])
    if events is not None:
        return events[0]
    record = parse_line(line)
    return event_of(record) if isinstance(record, dict) else record


def _load(line: bytes) -> Any:
    """One line's JSON value, `_BLANK`, or a `Rejected`."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        reason = str(error)
    bare = _PADDED.sub(b"", line, count=1).rstrip(_PADDING)
    if not bare:
        return _BLANK
    if bare != line:
        try:
            return orjson.loads(bare)
        except orjson.JSONDecodeError as error:
            reason = str(error)
    return Rejected("not_json", reason)
