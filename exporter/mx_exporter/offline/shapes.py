"""Many lines of one shape at a time: what a line was found to be, the next ones mostly are.

A shape says how the event of a line is had quickly. It gives no event that `find` would not give,
and where it does not fit a line, `find` has it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from .records import OURS

#: Lines to the events in them, None for a line that does not fit. None at all: few fit.
Shape: TypeAlias = Callable[[list[bytes]], "list[bytes | None] | None"]


def plain(lines: list[bytes]) -> list[bytes | None] | None:
    """Each line is an event."""
    fitting: list[bytes | None] = [line if line.startswith(OURS) else None for line in lines]
    return fitting if fitting[0] is not None or any(fitting) else None


def behind(lines: list[bytes]) -> list[bytes | None] | None:
    """Something stands before each event."""
    if not _one_each(lines, b'proc"', b"proc\\"):
        return None
    return [line[at:] if (at := line.find(OURS)) >= 0 else None for line in lines]


def under(key: str) -> Shape:
    """Each event is text under a key of an object."""
    envelope = msgspec.defstruct("Envelope", [(_NAME, str)], rename={_NAME: key}, gc=False)
    return _inside(msgspec.json.Decoder(envelope).decode, attrgetter(_NAME))


def among(at: int) -> Shape:
    """Each event is one of several texts in a list."""
    passed: list[tuple[str, type]] = [(f"before_{n}", msgspec.Raw) for n in range(at)]
    pair = msgspec.defstruct("Pair", [*passed, (_NAME, str)], array_like=True, gc=False)
    return _inside(msgspec.json.Decoder(pair).decode, attrgetter(_NAME))


def _inside(decode: Callable[[bytes], object], text_of: Callable[[Any], Any]) -> Shape:
    """Each event is text in what each line is decoded to."""

    def shape(lines: list[bytes]) -> list[bytes | None] | None:
        if not _one_each(lines, b"proc\\", b'proc"'):
            return None
        try:
            texts = list(map(text_of, map(decode, lines)))
        except (msgspec.MsgspecError, RecursionError, IndexError):
            return None
        whole = "\n".join(texts).encode("utf-8", "surrogatepass").split(b"\n")
        if len(whole) == 2 * len(lines):  # each with a newline at its end
            if any(whole[1::2]):
                return None
            whole = whole[::2]
        if len(whole) != len(lines):
            return None
        return [text if text.startswith(OURS) else None for text in whole]

    return shape


_NAME = "text"


def _one_each(lines: list[bytes], sign: bytes, other: bytes) -> bool:
    """Whether each line can hold no second event beside the one that a shape gives."""
    block = b"\n".join(lines)
    return block.count(sign) == len(lines) and other not in block


def shape_of(line: bytes) -> Shape | None:
    """The shape of a line that holds an event; None: one that only `find` can tell."""
    if line.startswith(OURS):
        return plain
    if not line.startswith((b"{", b"[")):
        return behind
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return behind
    if type(value) is dict:
        return next((under(key) for key, text in value.items() if _is_ours(text)), None)
    return next((among(at) for at, text in enumerate(value) if _is_ours(text)), None)


def _is_ours(text: object) -> bool:
    return type(text) is str and text.startswith(OURS.decode())
