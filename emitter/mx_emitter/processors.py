"""The structlog processors that every event passes, in order, on its way to the sink.

Each has structlog's signature: the wrapped logger, the name of its method, the event's dict. The
dict is the event's own, so they change it in place. The last one makes the line's parts of it,
which the wrapped logger (`mx_emitter.log.sink`) numbers, stamps and writes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, MutableMapping
from sys import modules
from typing import Any, TypeAlias

from orjson import dumps

from mx_log.schema import (
    EVENTS,
    HEADERS,
    LOADS,
    NUMBER,
    OPTIONAL_TEXT,
    RESERVED_KEYS,
    TEXT,
)

from .context import load
from .log.encode import Flattening, encode, number, plain, text
from .log.exceptions import without_secrets

EventDict: TypeAlias = MutableMapping[str, Any]
#: What the renderer returns, as structlog has it: arguments for the wrapped logger's method.
Call: TypeAlias = tuple[tuple[bytes, bytes, bytes], dict[str, Any]]

#: Name of an event of an engine that took the name of one of ours and does not fit it.
MISFIT = "engine_event"

#: Events by which the emitter speaks of itself: no caller may log one.
_EMITTERS_OWN = HEADERS | {"events_dropped"}

_LOADS_SEEN = "candidate_loads_seen"

_MISSING = object()
_INFINITY = float("inf")
_RESERVED_FIELDS = RESERVED_KEYS - {"event"}


# --------------------------------------------------------------------------------------
# The processors


def format_exception(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Turn ``exc_info`` into the field ``exception``: the traceback's text, without secrets."""
    if "exc_info" in event_dict:
        exception = _exception(event_dict.pop("exc_info"))
        if exception is not None:
            event_dict["exception"] = exception
    return event_dict


def rename_reserved(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Rename fields that are named as a key of every line: a caller may not speak for us."""
    if not _RESERVED_FIELDS.isdisjoint(event_dict):
        for name in _RESERVED_FIELDS.intersection(event_dict):
            rename(event_dict, name)
    return event_dict


def fit_schema(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Make an event of the schema one that every reader accepts.

    Labels become text, numbers become numbers where they are any. An event that lacks a field, or
    that only the emitter itself may log, is named `MISFIT`, with its own name in ``field_event``.
    """
    fields = _FIELDS.get(event_dict["event"], ())
    if fields is None:
        return _rename_event(event_dict)
    for name, fit, required in fields:
        value = event_dict.get(name, _MISSING)
        if type(value) is str and value and fit is not _as_loads:
            continue
        if value is not _MISSING:
            fitting = fit(value, required)
            if fitting is not _MISSING:
                event_dict[name] = fitting
            elif required:
                return _rename_event(event_dict)
            else:
                rename(event_dict, name)
        elif required:
            return _rename_event(event_dict)
    return event_dict


def add_load(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Add the id of the load that runs, and the ids of OpenTelemetry's current span."""
    running = load.current()
    if running is not None:
        if "opentelemetry.trace" in modules:
            for name, value in load.trace().items():
                event_dict.setdefault(name, value)
        event_dict["load_id"] = running.id
    return event_dict


def make_plain(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Replace values that JSON has no place for by their text."""
    flattening = None
    for name, value in event_dict.items():
        kind = type(value)
        if (
            kind is str
            or value is None
            or (kind is float and -_INFINITY < value < _INFINITY)
            or (kind is int and 0 <= value < 1 << 63)
            or kind is bool
            or (kind is list and name == "loads" and event_dict["event"] == _LOADS_SEEN)
        ):
            continue
        flattening = flattening or Flattening()
        event_dict[name] = flattening.plain(value, 1)
    return event_dict


def render(_logger: object, method_name: str, event_dict: EventDict) -> Call:
    """Render the event's name and its own fields as JSON, for the sink to make a line of."""
    name = event_dict.pop("event")
    try:
        as_json = _NAMES[name]
    except KeyError:
        as_json = encode({"event": name})[9:-2]
    try:
        own = dumps(event_dict)[1:-1]
    except Exception:  # rare: a lone surrogate
        own = encode(dict(event_dict))[1:-2]
    return (as_json, own, _LEVELS[method_name]), _NO_KEYWORDS


#: What every event passes, recorders' and engines' alike.
PROCESSORS: list[Callable[[Any, str, Any], Any]] = [
    format_exception,
    rename_reserved,
    fit_schema,
    add_load,
    make_plain,
    render,
]


# --------------------------------------------------------------------------------------
# What they use


def rename(event_dict: EventDict, name: str) -> None:
    """Rename a caller's field to ``field_<name>``, or further where that is taken as well."""
    value = event_dict.pop(name)
    while name in event_dict or not name.startswith("field_"):
        name = f"field_{name}"
    event_dict[name] = value


def _rename_event(event_dict: EventDict) -> EventDict:
    rename(event_dict, "event")
    event_dict["event"] = MISFIT
    return event_dict


def _exception(exc_info: Any) -> str | None:
    try:
        if not exc_info:
            return None
        kind = type(exc_info)
        if issubclass(kind, BaseException):
            error = exc_info
        elif issubclass(kind, tuple) and len(exc_info) == 3:
            error = exc_info[1]
        else:
            error = sys.exc_info()[1]
        if error is None:
            return None
        lines = traceback.format_exception(error)
        return without_secrets("".join(lines).rstrip("\n"))
    except Exception:  # no exception, or one whose own code raises
        return without_secrets(text(exc_info))


# What makes a value fit a field of the schema: the value as it is logged, or _MISSING where it
# cannot be made to fit. Non-empty text does not get here.


def _as_label(value: object, required: bool) -> object:
    return _MISSING if value is None and not required else text(value)


def _as_optional_label(value: object, _required: bool) -> object:
    try:
        falsy = not value
    except Exception:  # one whose truth cannot be told is not falsy
        falsy = False
    return None if falsy else text(value)


def _as_number(value: object, _required: bool) -> object:
    return number(value)


def _as_loads(value: object, _required: bool) -> object:
    """The loads of candidates, plain; as they are where they need nothing done, as usual."""
    if _are_loads(value):
        return value
    found = plain(value)
    return found if _are_loads(found) else _MISSING


def _are_loads(value: object) -> bool:
    return type(value) is list and all(map(_is_load, value))


def _is_load(candidate: object) -> bool:
    return (
        type(candidate) is dict
        and len(candidate) == 2
        and type(candidate.get("source_worker_id")) is str
        and type(candidate.get("load", ...)) in _LOAD_TYPES
    )


_LOAD_TYPES = (float, int, str, type(None))

_FIT: dict[str, Callable[[object, bool], object]] = {
    TEXT: _as_label,
    OPTIONAL_TEXT: _as_optional_label,
    NUMBER: _as_number,
    LOADS: _as_loads,
}

#: event -> its fields that readers check, with what makes values fit; None where it is ours alone.
_FIELDS: dict[str, tuple[tuple[str, Callable[[object, bool], object], bool], ...] | None] = {
    event.name: None
    if event.name in _EMITTERS_OWN
    else tuple(
        (field.name, _FIT[field.kind], field.required)
        for field in event.fields
        if field.kind in _FIT
    )
    for event in EVENTS.values()
}

#: Names as they stand on a line, and the level of each method's events.
_NAMES = {name: dumps(name) for name in (*EVENTS, MISFIT)}
_LEVELS = {
    name: level.encode()
    for name, level in {
        **{level: level for level in ("debug", "info", "warning", "error", "critical")},
        "msg": "info",
        "warn": "warning",
        "exception": "error",
        "fatal": "critical",
    }.items()
}
_NO_KEYWORDS: dict[str, Any] = {}
