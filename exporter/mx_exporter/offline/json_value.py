"""One JSON text that is at hand: its value, whether it is cut, whether it goes on."""

from __future__ import annotations

import json
from typing import Any

import msgspec

#: As far before the end of a text an error may lie that only says so: an escape, a literal.
_CUT = 8

#: Places of a text at which an object may begin.
_MAX_TRIES = 64

_decoder = json.JSONDecoder()
_skipped = msgspec.json.Decoder(msgspec.Raw)


class Broken(Exception):
    """What should be JSON is none."""


class Incomplete(Exception):
    """A JSON value goes on where the text ends."""


def scan(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at a place of a text, and where it ends.

    :raises Incomplete: the text ends before the value does.
    :raises Broken: there is none.
    """
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated string") or _near_end(text, error.pos)
    except (ValueError, RecursionError):
        cut = False
    raise (Incomplete if cut else Broken)


def goes_on(text: str) -> bool:
    """Whether the JSON value that a text begins with goes on behind it. Quick, and never wrong when
    it says so."""
    try:
        _skipped.decode(text.encode("latin-1"))
    except (msgspec.MsgspecError, RecursionError) as error:
        return "truncated" in str(error)
    return False


def _near_end(text: str, at: int) -> bool:
    return not text[at + _CUT :].strip()


def parsed(text: bytes) -> Any:
    """The value of a JSON text; None when it is none, or null."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:  # what one program refuses another may have written
        return json.loads(text.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def is_cut(text: bytes) -> bool:
    """Whether an object begins in a text and does not end."""
    shown = text.decode("latin-1")
    at = shown.find("{")
    for _ in range(_MAX_TRIES):
        if at < 0:
            return False
        try:
            _, at = scan(shown, at)
        except Incomplete:
            return True
        except Broken:
            at += 1
        at = shown.find("{", at)
    return False
