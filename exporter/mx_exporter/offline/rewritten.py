"""Events that somebody parsed and wrote again, back to how the schema has them.

Whoever reads a line and writes what it read may write times with other digits or as another zone's,
whole numbers as floats, and leave out what is empty. It is the same event all the same. Only what
is no event as it stands comes here, so a good line is never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from mx_log.schema import EVENTS, INTEGER, LOADS, TEXT, Event, Field

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?:[Zz]|([+-])(\d\d):?(\d\d))",
    re.ASCII,
)

#: Kind of a field that the schema has no word for.
_STAMP = "timestamp"

_KEYS_OF_EVERY_LINE = (
    Field("timestamp", _STAMP, ""),
    Field("level", TEXT, ""),
    Field("proc", TEXT, ""),
    Field("seq", INTEGER, ""),
    Field("rank", INTEGER, "", required=False),
    Field("scheme", TEXT, ""),
)


def is_event(value: Mapping[str, Any]) -> bool:
    """Whether an object is an event: it has a name, a process and a number."""
    return (
        type(value.get("event")) is str
        and type(value.get("proc")) is str
        and value["proc"] != ""
        and type(_whole(value.get("seq"))) is int
        and value["seq"] >= 0
    )


def line_of(value: Mapping[str, Any]) -> bytes:
    """An object as a line."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass  # what has no place in JSON is refused where it is read
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def as_written(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """An event as the emitter may have written it; None: just so."""
    known = EVENTS.get(value["event"], Event("", "", ()))
    fields = {**value}
    changed = False
    for field in (*_KEYS_OF_EVERY_LINE, *known.fields):
        name = field.name
        if name in value:
            convert = _SAME.get(field.kind)
            if convert is not None:
                fields[name] = convert(value[name])
                changed = changed or fields[name] is not value[name]
        elif field.required and field.kind in _EMPTY:
            fields[name] = _EMPTY[field.kind]
            changed = True
    return fields if changed else None


def _time(text: Any) -> Any:
    match = _TIME.fullmatch(text) if type(text) is str else None
    if match is None:
        return text
    day, second, digits, sign, hours, minutes = match.groups()
    micros = f"{digits or ''}000000"[:6]
    if sign is None or (hours, minutes) == ("00", "00"):
        written = f"{day}T{second}.{micros}Z"
        return text if written == text else written
    offset = timedelta(hours=int(hours), minutes=int(minutes)) * (1 if sign == "+" else -1)
    try:
        local = datetime.fromisoformat(f"{day}T{second}.{micros}").replace(tzinfo=timezone.utc)
        return (local - offset).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (ValueError, OverflowError):
        return text


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


def _candidates(value: Any) -> Any:
    if type(value) is not list or not all(type(each) is dict for each in value):
        return value
    if all("source_worker_id" in each for each in value):
        return value
    return [{"source_worker_id": "", **each} for each in value]


_SAME: dict[str, Callable[[Any], Any]] = {_STAMP: _time, INTEGER: _whole, LOADS: _candidates}

#: What whoever leaves out empty values leaves out.
_EMPTY: dict[str, Any] = {TEXT: "", LOADS: []}
