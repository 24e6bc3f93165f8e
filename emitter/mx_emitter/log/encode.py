"""Values as an engine gives them -> JSON. What cannot be encoded as given becomes its text.

Callers' code (``__str__``, ``__float__`` and the like) runs here only, and nothing here is called
under the stream's lock: a ``__str__`` that waits for a lock of its own can never deadlock.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any, TypeAlias

import orjson

from mx_log.values import well_formed

#: A value that ``orjson`` writes as it is.
Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"

_INFINITY = float("inf")
_SMALLEST_INT = -(2**63)
_LARGEST_INT = 2**64 - 1

#: Deeper containers, and what comes after so many values, are left out with a word about it:
#: structures that contain themselves, or one part many times over, would otherwise never end.
_MAX_DEPTH = 16
_MAX_VALUES = 20_000


#: The name of a class, past a metaclass that has one of its own. What a value is we ask its type
#: alone, never ``isinstance``: that asks the value for its ``__class__`` as well, which may raise.
type_name = type.__dict__["__name__"].__get__


def text(value: object) -> str:
    """``str(value)``, as the client labels it, or a placeholder where that raises."""
    if type(value) is str:
        return value
    try:
        return str.__str__(str(value))  # what __str__ returns may have methods of its own
    except Exception:
        return f"<unprintable {type_name(type(value))}>"


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
    if issubclass(kind, (str, bytes, bytearray)):
        return text(value)
    numpys_boolean = type_name(kind) in ("bool", "bool_")  # it also knows __float__
    for convert in (bool,) if numpys_boolean else (operator.index, float):
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
    return Flattening().plain(value, 0)


class Flattening:
    """Makes values plain, so many of them in all."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MAX_VALUES

    def plain(self, value: object, depth: int) -> Plain:
        """``value`` as `plain` has it, ``depth`` levels below the event."""
        kind = type(value)
        if kind is str:
            return well_formed(value)  # type: ignore[arg-type]
        if value is None or kind is bool:
            return value  # type: ignore[return-value]
        self.left -= 1
        if self.left < 0:
            return "<too many values>"
        if not issubclass(kind, (dict, list, tuple)):
            found = number(value)
            return well_formed(found) if isinstance(found, str) else found
        if depth == _MAX_DEPTH:
            return "<nested too deep>"
        held: Any = value
        some = self.left + 1
        try:
            if issubclass(kind, dict):
                pairs = [(text(key), item) for key, item in itertools.islice(held.items(), some)]
            else:
                items = list(itertools.islice(held, some))
        except Exception:  # a subclass that cannot be iterated
            return f"<unprintable {type_name(kind)}>"
        depth += 1
        if issubclass(kind, dict):
            return {
                well_formed(key): self.plain(item, depth) for key, item in pairs if self.left >= 0
            }
        return [self.plain(item, depth) for item in items if self.left >= 0]


def encode(fields: dict[str, Any]) -> bytes:
    """One object of JSON on a line, its newline included.

    Raises an Exception where that cannot be had, as close to the recursion limit: callers cut the
    line open, so it is never anything else.
    """
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except Exception:  # lone surrogates, ints beyond 64 bits, objects, depth
        flattening = Flattening()
        whole = {
            well_formed(text(key)): flattening.plain(value, 1) for key, value in fields.items()
        }
        return orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE)
