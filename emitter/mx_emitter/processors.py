"""The structlog processors that every event passes, in order, on its way to the sink.

Each has structlog's signature: the wrapped logger, the name of its method, the event's dict. The
dict is the event's own, so they change it in place. The last one makes the line's parts of it,
which the wrapped logger (`mx_emitter.log.sink`) numbers, stamps and writes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from sys import modules
from typing import Any, TypeAlias

from orjson import dumps
from structlog.contextvars import merge_contextvars

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
from .log.encode import Flattening, encode, number, text
from .log.exceptions import without_secrets

EventDict: TypeAlias = MutableMapping[str, Any]
#: What the renderer returns, as structlog has it: arguments for the wrapped logger's method.
Call: TypeAlias = tuple[tuple[bytes, bytes, bytes], dict[str, Any]]

#: Name of an event of an engine that took the name of one of ours and does not fit it.
MISFIT = "engine_event"

#: Events by which the emitter speaks of itself: no caller may log one.
_EMITTERS_OWN = HEADERS | {"events_dropped"}

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
    """Let a caller take the name of an event of the schema only for one that readers accept.

    One that lacks a field, or that only the emitter itself may log, is named `MISFIT`, and its own
    name goes to ``field_event``. A field that may be missing and does not fit is renamed.
    """
    required, fits = _SCHEMA.get(event_dict["event"], _NO_SCHEMA)
    for name in required:
        if name not in event_dict or (name == "loads" and not _are_loads(event_dict[name])):
            rename(event_dict, "event")
            event_dict["event"] = MISFIT
            break
    else:
        for name in fits:
            if name not in required and event_dict.get(name, "") is None:
                rename(event_dict, name)
    return event_dict


def add_load(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Add the id of the load that runs, and the ids of OpenTelemetry's current span."""
    running = load.of_context()
    if running is None or not running.running:
        running = load.current()
    if running is not None:
        if "opentelemetry.trace" in modules:
            for name, value in load.trace().items():
                event_dict.setdefault(name, value)
        event_dict["load_id"] = running.id
    return event_dict


def fit_values(_logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
    """Make values plain JSON: what JSON has no place for becomes its text.

    Of an event of the schema labels become text as well, and numbers are numbers where they can.
    """
    odd = None
    for name, value in event_dict.items():
        kind = type(value)
        if kind is str:
            if value:
                continue
        elif name in _NUMBERS and (
            (kind is float and -_INFINITY < value < _INFINITY)
            or (kind is int and 0 <= value < 1 << 63)
        ):
            continue
        if odd is None:
            odd = [name]
        else:
            odd.append(name)
    if odd is not None:
        fits = _FITS.get(event_dict["event"], _NO_FITS)
        flattening = None
        for name in odd:
            fit = fits.get(name)
            value = event_dict[name]
            if fit is not None:
                event_dict[name] = fit(value)
            else:
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


#: What every event passes, of recorders, timers and engines.
PROCESSORS: list[Callable[[Any, str, Any], Any]] = [add_load, fit_values, render]

#: What an engine's own events pass before, since its callers may say anything.
ENGINE_PROCESSORS: list[Callable[[Any, str, Any], Any]] = [
    merge_contextvars,
    format_exception,
    rename_reserved,
    fit_schema,
]


# --------------------------------------------------------------------------------------
# What they use


def rename(event_dict: EventDict, name: str) -> None:
    """Rename a caller's field to ``field_<name>``, or further where that is taken as well."""
    value = event_dict.pop(name)
    while name in event_dict or not name.startswith("field_"):
        name = f"field_{name}"
    event_dict[name] = value


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


def _as_optional_label(value: object) -> str | None:
    try:
        falsy = not value
    except Exception:  # one whose truth cannot be told is not falsy
        falsy = False
    return None if falsy else text(value)


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


def _as_it_is(value: Any) -> object:
    """The loads of candidates: `fit_schema` has seen those of an engine, ours are plain."""
    return value


_FIT_OF_KIND: dict[str, Callable[[Any], object]] = {
    TEXT: text,
    OPTIONAL_TEXT: _as_optional_label,
    NUMBER: number,
    LOADS: _as_it_is,
}

#: event -> field -> what makes a value fit it, for the fields that readers check.
_FITS = {
    event.name: {
        field.name: _FIT_OF_KIND[field.kind] for field in event.fields if field.kind in _FIT_OF_KIND
    }
    for event in EVENTS.values()
}
#: Names of fields that are numbers in every event that has them.
_NUMBERS = frozenset({"bytes", "count", "seconds"})
_NO_FITS: dict[str, Callable[[Any], object]] = {}

#: event -> the fields that it must have, and all that readers check.
_SCHEMA: dict[str, tuple[tuple[str | None, ...], Iterable[str]]] = {
    event.name: (tuple(field.name for field in event.fields if field.required), _FITS[event.name])
    for event in EVENTS.values()
}
_SCHEMA.update((name, ((None,), ())) for name in _EMITTERS_OWN)  # a field that no event has
_NO_SCHEMA: tuple[tuple[str | None, ...], Iterable[str]] = ((), ())

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
