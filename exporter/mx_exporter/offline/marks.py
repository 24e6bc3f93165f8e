"""What the envelope around a text says of it: whether it is a part of a line, and where it comes
from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

#: A key -> the value that says that the rest is to follow.
_PARTIAL: dict[str, tuple[object, ...]] = {
    "logtag": ("P",),
    "_p": ("P",),
    "_partial": (True,),
    "partial_message": (True, "true"),
    "CONTAINER_PARTIAL_MESSAGE": (True, "true"),
    "_LINE_BREAK": ("line-max",),
    "_STREAM_ID": (),  # of a line that journald did not cut, or of the last part
}
#: A key -> the value that says that nothing follows, whatever else is said.
_LAST: dict[str, tuple[object, ...]] = {
    "partial_last": (True, "true"),
    "CONTAINER_PARTIAL_LAST": (True, "true"),
}

#: Keys that differ from part to part, in words of their names.
_OF_THE_PART = re.compile(
    r"(?i)(?:time|date|offset|ordinal|cursor|sequence|^_*(?:id|ts|seq)$|insertid|eventid"
    r"|partial_(?:message|last)|^logtag$|^_p$|^_partial$|^_line_break$)"
)
_TIME_OR_NUMBER = re.compile(r"[\d.:TZ+\- ]*")


#: The envelopes around a text, the outermost first, and the key of each under which it lies.
Around: TypeAlias = tuple[tuple[Mapping[str, Any], str], ...]


class Mark(NamedTuple):
    """What an envelope says of the text that it holds."""

    #: The rest is to follow.
    partial: bool
    #: It may be a rest.
    rest: bool
    #: Also one whose beginning is not in this stream.
    head: bool = True
    #: It is said, and not only taken from how the text ends.
    told: bool = True


#: Of a text that no envelope says anything of.
UNMARKED = Mark(partial=False, rest=False)
PART = Mark(partial=True, rest=True)
LAST = Mark(partial=False, rest=True)


def mark_of(envelope: Mapping[str, Any]) -> Mark:
    """What the keys of an envelope say."""
    for key, values in _LAST.items():
        if envelope.get(key) in values:
            return LAST
    for key, values in _PARTIAL.items():
        if key in envelope:
            return PART if envelope[key] in values else LAST
    log = envelope.get("log")
    if type(log) is str and "stream" in envelope and "time" in envelope:
        # Docker's json-file says it by the newline alone.
        return LAST if log.endswith("\n") else PART._replace(told=False)
    return UNMARKED


def origin_of(around: Around) -> str:
    """All that names where a text comes from."""
    names: list[str] = []
    for envelope, key in around:
        names.append(key)
        _names(envelope, key, names, 0)
    return "\0".join(names)


def _names(envelope: Mapping[str, Any], payload: str | None, names: list[str], depth: int) -> None:
    for key, value in sorted(envelope.items()):
        if key == payload or _OF_THE_PART.search(key):
            continue
        if type(value) is str:
            if len(value) < 1024 and not _TIME_OR_NUMBER.fullmatch(value):
                names.append(f"{key}={value}")
        elif type(value) is dict and depth < 4:
            names.append(key)
            _names(value, None, names, depth + 1)


#: Keys whose text is no part of a line.
NEVER_PARTS = frozenset({"stream", "time", "timestamp", "logtag", "_p", "partial_id", "__CURSOR"})


def longest_of(envelope: Mapping[str, Any]) -> str:
    """The key of an envelope's longest text, which may be a part of a line."""
    texts = [
        (len(value), key)
        for key, value in envelope.items()
        if type(value) is str and key not in NEVER_PARTS
    ]
    return max(texts)[1] if texts else ""
