"""Lines to events: JSON, and the types that the schema promises."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from mx_emitter.events import (
    ANY,
    EVENTS,
    HEADERS,
    INTEGER,
    LOADS,
    NUMBER,
    OPTIONAL_TEXT,
    TEXT,
    TIMESTAMP,
)

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


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_timestamp(value: object) -> bool:
    return isinstance(value, str) and TIMESTAMP.fullmatch(value) is not None


def _are_loads(value: object) -> bool:
    return type(value) is list and all(
        type(entry) is dict and type(entry.get("source_worker_id")) is str for entry in value
    )


class _Kind(NamedTuple):
    holds: Callable[[object], bool]
    wanted: str


_KINDS = {
    TEXT: _Kind(_is_text, "text"),
    OPTIONAL_TEXT: _Kind(lambda value: value is None or type(value) is str, "text or null"),
    INTEGER: _Kind(lambda value: type(value) is int, "an integer"),
    LOADS: _Kind(_are_loads, "a list of objects with a text source_worker_id"),
}

#: (key, kind, required) for the keys that every line carries.
_RESERVED = (
    ("timestamp", _Kind(_is_timestamp, "RFC 3339 in UTC with six digits"), True),
    ("proc", _Kind(lambda value: _is_text(value) and value != "", "a process's id"), True),
    ("seq", _Kind(_is_count, "an integer from 0"), True),
    ("scheme", _KINDS[TEXT], True),
    ("rank", _Kind(lambda value: value is None or type(value) is int, "an integer or null"), False),
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

#: What may stand around a good line: zero bytes that a crash of the machine left in front of
#: it, a byte order mark, the carriage return of a transfer in text mode.
_BOM = b"\xef\xbb\xbf"
_PADDING = b"\0 \t\r\n"

#: Stands between two lines of a block. A line can repeat no number it cannot know, so lines
#: that only fit together (one holding two objects, two holding one) show as misplaced.
_SEPARATOR = random.SystemRandom().getrandbits(62)
_JOINT = b",%d," % _SEPARATOR


class _Layout:
    """The keys of an event just as the emitter writes them, and combinations of types that
    passed `_checked`. A record of these keys and types is good without looking at each field."""

    __slots__ = ("passed", "values")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.values = itemgetter(*keys)
        self.passed: set[tuple[type, ...]] = set()


#: Fields that most lines of their event do without.
_SELDOM = frozenset({"error", "error_type", "timed"})


def _layouts() -> dict[tuple[str, int], _Layout]:
    """By event and number of keys: a record with that many keys that has all these has no other.

    Left out are events whose fields are not judged by their type alone, and headers, which are
    few.
    """
    reserved = ("event", "timestamp", "level", "proc", "seq", "rank", "scheme")
    found = {}
    for event in EVENTS.values():
        if event.name in HEADERS or any(field.kind == LOADS for field in event.fields):
            continue
        own = tuple(f.name for f in event.fields if f.name not in _SELDOM)
        for keys in (reserved + own, (*reserved, *own, "load_id")):
            found[event.name, len(keys)] = _Layout(keys)
    return found


_LAYOUTS = _layouts()

#: Combinations that a layout remembers; logs that were not tampered with have a handful.
_MAX_PASSED = 64

#: What 20 characters every timestamp of a second begins with, for seconds that were seen.
_seconds: set[str] = set()
_MAX_SECONDS = 10_000


def _typed(value: object) -> Record | Rejected:
    try:
        layout = _LAYOUTS[value["event"], len(value)]  # type: ignore[index, arg-type]
        types = tuple(map(type, layout.values(value)))  # type: ignore[arg-type]
    except (KeyError, TypeError):
        return _checked(value)
    record: Record = value  # type: ignore[assignment]
    if types in layout.passed and _known_second(record["timestamp"]) and 0 <= record["seq"] < 2**63:
        return record if record["proc"] else _checked(value)
    checked = _checked(value)
    if checked is value and len(layout.passed) < _MAX_PASSED:
        layout.passed.add(types)
    return checked


def _known_second(stamp: str) -> bool:
    """Whether a text is a good timestamp, of a second that was seen before."""
    micros = stamp[20:-1]
    if stamp[:20] in _seconds and len(stamp) == 27:
        return micros.isdigit() and stamp.isascii() and stamp[26] == "Z"
    if TIMESTAMP.fullmatch(stamp) and len(_seconds) < _MAX_SECONDS:
        _seconds.add(stamp[:20])
    return False


def _checked(value: object) -> Record | Rejected:
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
        elif kind.holds(given):
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
    """Turn one line, without its newline, into an event.

    Returns None for a blank line, and a `Rejected` for one that is not a JSON object or
    whose keys are not of the types in `mx_emitter.events.EVENTS`. Events and fields that the
    schema does not know pass.
    """
    try:
        return _typed(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        reason = str(error)
    bare = line.strip(_PADDING).removeprefix(_BOM).strip(_PADDING)
    if not bare:
        return None
    if bare != line:
        return parse_line(bare)
    return Rejected("not_json", reason)


def parse_lines(lines: Iterable[bytes]) -> list[Record | Rejected]:
    """Turn lines into events, in order: `parse_line` of each, blank lines left out.

    Parsed as one JSON array where that gives the same.
    """
    filled = [line for line in lines if line]
    try:
        values = orjson.loads(b"[" + _JOINT.join(filled) + b"]")
    except orjson.JSONDecodeError:
        values = None
    else:
        joints = values[1::2]
        if len(values) != 2 * len(filled) - 1 or joints != [_SEPARATOR] * len(joints):
            values = None if filled else []
    if values is None:
        parsed = map(parse_line, filled)
        return [record for record in parsed if record is not None]
    return [_typed(value) for value in values[::2]]
