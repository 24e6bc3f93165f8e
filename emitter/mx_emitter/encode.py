"""Values as an engine gives them -> JSON. What cannot be encoded as given becomes its text.

Callers' code (``__str__``, ``__float__`` and the like) runs here only, and nothing here is called
under the stream's lock: a ``__str__`` that waits for a lock of its own can never deadlock.
"""

from __future__ import annotations

import operator
from typing import Any, TypeAlias

import orjson

from .events import RESERVED_KEYS

#: A value that ``orjson`` writes as it is.
Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"

_INFINITY = float("inf")
_SMALLEST_INT = -(2**63)
_LARGEST_INT = 2**64 - 1

#: Deeper containers, and what comes after so many values, are left out with a word about it:
#: structures that contain themselves, or one part many times over, would otherwise never end.
_MAX_DEPTH = 16
_MAX_VALUES = 20_000


def text(value: object) -> str:
    """``str(value)``, as the client labels it, or a placeholder where that raises."""
    if type(value) is str:
        return value
    try:
        return str(value)
    except Exception:
        return f"<unprintable {type(value).__name__}>"


def well_formed(value: str) -> str:
    """``value`` with lone surrogates, which UTF-8 has no place for, written as ``\\udc80``."""
    if value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


def number(value: object) -> Plain:
    """A measured value: numbers (numpy's, torch's and Decimal included) as int or float.

    NaN, infinities and ints beyond 64 bits, which JSON has no place for, and whatever is no number
    are logged as text. None and booleans stay: a metric is derived of neither, and that is counted.
    """
    kind = type(value)
    if kind is float:
        return value if -_INFINITY < value < _INFINITY else str(value)  # type: ignore[operator, return-value]
    if kind is int:
        return value if _SMALLEST_INT <= value <= _LARGEST_INT else text(value)  # type: ignore[operator, return-value]
    if value is None or kind is bool:
        return value  # type: ignore[return-value]
    if isinstance(value, (str, bytes, bytearray)):
        return text(value)
    if kind.__name__ in ("bool", "bool_"):  # numpy's, which also knows __float__
        return bool(value)
    for convert in (operator.index, float):
        try:
            return _in_range(convert(value), value)  # type: ignore[arg-type]
        except Exception:
            continue
    return text(value)


def _in_range(converted: int | float, given: object) -> Plain:
    if isinstance(converted, float):
        fits = -_INFINITY < converted < _INFINITY
    else:
        fits = _SMALLEST_INT <= converted <= _LARGEST_INT
    return converted if fits else text(given)


def plain(value: object) -> Plain:
    """Any value as one that JSON can hold: containers as they are, the rest as number or text."""
    return _Flattening().plain(value, 0)


class _Flattening:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MAX_VALUES

    def plain(self, value: object, depth: int) -> Plain:
        kind = type(value)
        if kind is str:
            return well_formed(value)  # type: ignore[arg-type]
        if value is None or kind is bool:
            return value  # type: ignore[return-value]
        self.left -= 1
        if self.left < 0:
            return "<too many values>"
        if not isinstance(value, (dict, list, tuple)):
            found = number(value)
            return well_formed(found) if isinstance(found, str) else found
        if depth == _MAX_DEPTH:
            return "<nested too deep>"
        try:
            if isinstance(value, dict):
                return {
                    well_formed(text(key)): self.plain(item, depth + 1)
                    for key, item in value.items()
                    if self.left >= 0
                }
            return [self.plain(item, depth + 1) for item in value if self.left >= 0]
        except Exception:  # a subclass that cannot be iterated
            return f"<unprintable {kind.__name__}>"


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with each reserved key named ``field_<key>``: a caller may not speak for us."""
    if RESERVED_KEYS.isdisjoint(fields):
        return fields
    return {f"field_{key}" if key in RESERVED_KEYS else key: value for key, value in fields.items()}


def encode(fields: dict[str, Any]) -> bytes:
    """One line of JSON, its newline included. Raises only when even the text of a value fails."""
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except Exception:  # lone surrogates, ints beyond 64 bits, objects, depth
        return orjson.dumps(plain(fields), option=orjson.OPT_APPEND_NEWLINE)
