"""OpenTelemetry's lists of keys and typed values as the objects that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def plain_value(values: list[Any]) -> dict[str, Any] | None:
    """The object that a list of ``{"key": ..., "value": {...}}`` stands for; None: it is none."""
    if not values or not all(map(_is_pair, values)):
        return None
    return {each["key"]: _plain(each["value"]) for each in values}


def _is_pair(value: Any) -> bool:
    return (
        type(value) is dict
        and value.keys() == {"key", "value"}
        and type(value["key"]) is str
        and type(value["value"]) is dict
    )


def _plain(value: dict[str, Any]) -> Any:
    for kind, convert in _KINDS.items():
        if kind in value:
            try:
                return convert(value[kind])
            except (TypeError, ValueError, AttributeError, KeyError):
                return value[kind]
    return value or None


def _items(value: dict[str, Any]) -> list[Any]:
    found: list[Any] = value.get("values", [])
    return found


#: A kind of value -> from its form to what it says. Integers are text.
_KINDS: dict[str, Callable[[Any], Any]] = {
    "stringValue": str,
    "intValue": int,
    "doubleValue": float,
    "boolValue": bool,
    "arrayValue": lambda value: [_plain(each) for each in _items(value)],
    "kvlistValue": lambda value: {each["key"]: _plain(each["value"]) for each in _items(value)},
}
