"""Envelopes that collectors put around lines: lines in, the bytes of a file out."""

from __future__ import annotations

import json
from collections.abc import Callable

_TIME = "2026-01-02T03:04:05.678901234Z"


def cri(lines: list[bytes], *, part: int = 0, stream: str = "stdout") -> bytes:
    """As containerd writes them; ``part``: bytes after which a line is cut."""
    out = []
    for line in lines:
        *heads, last = _cut(line, part)
        out += [f"{_TIME} {stream} P ".encode() + head + b"\n" for head in heads]
        out.append(f"{_TIME} {stream} F ".encode() + last + b"\n")
    return b"".join(out)


def docker(lines: list[bytes], *, part: int = 0, stream: str = "stdout") -> bytes:
    """As Docker's json-file driver writes them."""
    out = []
    for line in lines:
        text = line.decode() + "\n"
        cut = [text[at : at + part] for at in range(0, len(text), part)] if part else [text]
        out += [{"log": piece, "stream": stream, "time": _TIME} for piece in cut]
    return _json_lines(out)


def logcli(lines: list[bytes], *, stream: str = "stdout") -> bytes:
    labels = {"pod": "a", "stream": stream}
    return _json_lines(
        [{"labels": labels, "line": line.decode(), "timestamp": _TIME} for line in lines]
    )


def loki_api(lines: list[bytes], *, stream: str = "stdout") -> bytes:
    """An answer to a query."""
    data = {"resultType": "streams", "result": _streams(lines, stream), "stats": {}}
    return _json_lines([{"status": "success", "data": data}])


def loki_push(lines: list[bytes], *, stream: str = "stdout") -> bytes:
    """What a collector sends."""
    return _json_lines([{"streams": _streams(lines, stream)}])


def _streams(lines: list[bytes], stream: str) -> list[dict[str, object]]:
    values = [[str(1_700_000_000_000_000_000 + at), line.decode()] for at, line in enumerate(lines)]
    half = len(values) // 2
    return [
        {"stream": {"pod": "a", "stream": stream}, "values": values[:half]},
        {"stream": {"pod": "b", "stream": stream}, "values": values[half:]},
    ]


def vector(lines: list[bytes]) -> bytes:
    return _json_lines(
        [
            {"file": "/x", "host": "n", "message": line.decode(), "source_type": "file"}
            for line in lines
        ]
    )


def fluent_bit(lines: list[bytes]) -> bytes:
    return _json_lines(
        [{"date": 1.5, "log": line.decode(), "kubernetes": {"pod_name": "a"}} for line in lines]
    )


def fluent_bit_cri(lines: list[bytes]) -> bytes:
    """After its CRI parser, which leaves the parts apart."""
    out: list[object] = []
    for line in lines:
        text = line.decode()
        half = len(text) // 2
        for tag, piece in (("P", text[:half]), ("F", text[half:])):
            out.append({"time": _TIME, "stream": "stdout", "logtag": tag, "log": piece})
    return _json_lines(out)


def vector_of_cri(lines: list[bytes]) -> bytes:
    return vector(cri(lines, part=64).splitlines())


def parsed_by_collector(lines: list[bytes]) -> bytes:
    return _json_lines([{"message": json.loads(line), "host": "n"} for line in lines])


ENVELOPES: dict[str, Callable[[list[bytes]], bytes]] = {
    "plain": lambda lines: b"".join(line + b"\n" for line in lines),
    "crlf": lambda lines: b"".join(line + b"\r\n" for line in lines),
    "cri": cri,
    "cri in parts": lambda lines: cri(lines, part=50),
    "cri of stderr": lambda lines: cri(lines, stream="stderr"),
    "docker": docker,
    "docker in parts": lambda lines: docker(lines, part=50),
    "logcli": logcli,
    "logcli, newest first": lambda lines: logcli(lines[::-1]),
    "loki's api": loki_api,
    "pushed to loki": loki_push,
    "vector": vector,
    "vector of cri": vector_of_cri,
    "fluent bit": fluent_bit,
    "fluent bit of cri": fluent_bit_cri,
    "parsed by the collector": parsed_by_collector,
}


def _cut(line: bytes, part: int) -> list[bytes]:
    return [line[at : at + part] for at in range(0, len(line), part)] if part else [line]


def _json_lines(values: list[object] | list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)
