"""Lines as log collectors ship them, back to the lines that were written.

The envelopes, told apart line by line, so that one stream may hold several kinds:

=========== ==========================================================================
CRI         ``<time> stdout|stderr F|P <line>``; parts marked P are joined
Docker      ``{"log": "<line>\\n", "stream": ..., "time": ...}``; parts without a newline
            at their end are joined
Fluent Bit  ``{"log": "<line>", ...}``; parts marked ``"logtag": "P"`` are joined
Vector      ``{"message": "<line>", ...}``
Loki        ``{"labels": ..., "line": "<line>", "timestamp": ...}`` (logcli), or an answer
            of its API on one line: ``{"status": ..., "data": {"result": [...]}}``, or what
            is pushed to it: ``{"streams": [...]}``
=========== ==========================================================================

Where the envelope names the stream ``stderr``, lines that are no JSON object are left out: they
are what programs say, the exporter that wrote the log to its standard output among them.

An envelope may lie in another one, as when a collector ships CRI files as they are. What is
no envelope passes unchanged. Files and sockets never appear here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import orjson

from mx_log.schema import MAX_LINE_BYTES

from ..core.decode import Rejected

#: Limit of a line that may be an envelope: one answer of Loki's API holds thousands of lines.
#: Opening one takes some six times its size.
MAX_ENVELOPE_BYTES = 16 * MAX_LINE_BYTES

#: A line as it was written, or why there is none.
Opened: TypeAlias = bytes | Rejected

#: Deeper than this nobody packs.
_MAX_DEPTH = 3

_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (?P<stream>stdout|stderr) (?P<tag>[FP])(?::\S*)?"
    rb"(?: (?P<payload>.*))?",
    re.DOTALL,
)

#: How our own lines begin. A quoted one would begin with a backslash.
_OURS = b'{"event":'

#: Keys that hold the line in an envelope that is one JSON object.
_PAYLOADS = ("log", "message", "line")

_AROUND = b"\xef\xbb\xbf\0 \t\r\n"


class Unwrapper:
    """Opens the envelopes of one stream of lines; holds the parts that wait for their rest."""

    def __init__(self) -> None:
        # By the streams around them; None while the rest of an over-long line passes.
        self._parts: dict[str, list[bytes] | None] = {}

    def open(self, line: bytes) -> list[Opened]:
        """The lines that ``line`` (without its newline) carries, or completes.

        Most often one; none for a part that waits, several for an answer of Loki's API.
        Whether they are events is not looked at.
        """
        if line.startswith(_OURS):
            return [_bounded(line)]
        return list(self._open(line, "", 0))

    def rest(self) -> list[Opened]:
        """Give up the parts whose rest never came, each as it is: a line without an end."""
        waiting = [(origin, parts) for origin, parts in self._parts.items() if parts]
        self._parts.clear()
        return [
            line
            for origin, parts in waiting
            for line in self._payload(b"".join(parts), origin, _MAX_DEPTH)
        ]

    def _open(self, line: bytes, origin: str, depth: int) -> Iterator[Opened]:
        bare = line.lstrip(_AROUND).removesuffix(b"\r")  # spaces at a part's end are its own
        if bare.startswith(b"{"):
            try:
                value = orjson.loads(bare)
            except orjson.JSONDecodeError:
                yield from _no_object(line, origin)
            else:
                yield from self._object(line, value, origin, depth)
            return
        match = _CRI.fullmatch(bare)
        if match is None:
            yield from _no_object(line, origin)
            return
        yield from self._part(
            match["payload"] or b"",
            f"{origin}/{match['stream'].decode()}",
            depth,
            partial=match["tag"] == b"P",
        )

    def _object(
        self, line: bytes, value: dict[str, Any], origin: str, depth: int
    ) -> Iterator[Opened]:
        if type(value.get("event")) is str and "proc" in value:
            yield _bounded(line)
            return
        for key in _PAYLOADS:
            if key in value:
                break
        else:
            if "status" in value and "data" in value:
                yield from self._answer(value, origin, depth)
            elif type(value.get("streams")) is list:
                yield from self._streams(value["streams"], origin, depth)
            else:
                yield _bounded(line)
            return
        payload = value[key]
        if type(payload) is dict:  # the collector parsed it
            yield _bounded(orjson.dumps(payload))
            return
        if type(payload) is not str:
            yield Rejected("bad_envelope", f'"{key}" of the envelope is neither text nor an object')
            return
        stream = _stream(value, value.get("labels"))
        tag = value.get("logtag")
        if tag is None:
            docker = key == "log" and "stream" in value and "time" in value
            partial = docker and not payload.endswith("\n")
        else:
            partial = tag == "P"
        yield from self._part(payload.encode(), f"{origin}/{stream}", depth, partial=partial)

    def _answer(self, value: dict[str, Any], origin: str, depth: int) -> Iterator[Opened]:
        """An answer of Loki's API. What is no stream of lines (a metric query) is refused."""
        data = value["data"]
        streams = data.get("result") if type(data) is dict else None
        if value["status"] != "success" or type(streams) is not list:
            yield Rejected("bad_envelope", "an answer of Loki's API without lines")
            return
        yield from self._streams(streams, origin, depth)

    def _streams(self, streams: list[Any], origin: str, depth: int) -> Iterator[Opened]:
        for stream in streams:
            entries = stream.get("values") if type(stream) is dict else None
            if type(entries) is not list or "stream" not in stream:
                yield Rejected("bad_envelope", "a result of Loki's API that is no stream of lines")
                continue
            within = f"{origin}/{_stream(stream['stream'])}"
            for entry in entries:
                if type(entry) is list and len(entry) >= 2 and type(entry[1]) is str:
                    yield from self._payload(entry[1].encode(), within, depth)
                else:
                    yield Rejected("bad_envelope", "an entry of Loki's API that holds no line")

    def _part(self, payload: bytes, origin: str, depth: int, *, partial: bool) -> Iterator[Opened]:
        parts = self._parts.get(origin, [])
        if parts is not None:
            parts.append(payload)
            if sum(map(len, parts)) > MAX_LINE_BYTES:
                yield from _no_object(parts[0], origin, _TOO_LONG)
                parts = None
        if partial:
            self._parts[origin] = parts
            return
        self._parts.pop(origin, None)
        if parts is not None:
            yield from self._payload(b"".join(parts), origin, depth)

    def _payload(self, payload: bytes, origin: str, depth: int) -> Iterator[Opened]:
        for line in payload.split(b"\n"):
            if line.startswith(_OURS):
                yield _bounded(line)
            elif depth >= _MAX_DEPTH:
                yield from _no_object(line, origin)
            else:
                yield from self._open(line, origin, depth + 1)


def _stream(*places: Any) -> str:
    """The stream that an envelope names: of its keys, or of its labels."""
    found = (place["stream"] for place in places if type(place) is dict and "stream" in place)
    return str(next(found, ""))


def _no_object(line: bytes, origin: str, given: Opened | None = None) -> Iterator[Opened]:
    """A line that is not seen to be an object: ``given``, else itself, unless it was said on
    standard error."""
    if line.startswith(_OURS) or "stderr" not in origin.split("/"):
        yield _bounded(line) if given is None else given


_TOO_LONG = Rejected("too_long", "the line is longer than 1 MiB")


def _bounded(line: bytes) -> Opened:
    return line if len(line) < MAX_LINE_BYTES else _TOO_LONG
