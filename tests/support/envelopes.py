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


def fluent_bit_parsed(lines: list[bytes]) -> bytes:
    """After its CRI parser, of lines that were not cut."""
    return _json_lines(
        [{"time": _TIME, "stream": "stdout", "_p": "F", "log": line.decode()} for line in lines]
    )


def partial_message(lines: list[bytes]) -> bytes:
    """By Docker's fluentd driver, as FireLens has it."""
    out = []
    for number, line in enumerate(lines):
        text = line.decode()
        half = len(text) // 2
        for ordinal, piece in enumerate((text[:half], text[half:]), 1):
            marks = {"partial_message": "true", "partial_id": f"id{number}"}
            last = {"partial_ordinal": str(ordinal), "partial_last": str(ordinal == 2).lower()}
            out.append({"container_name": "/mx", "source": "stdout", "log": piece, **marks, **last})
    return _json_lines(out)


def vector_partial(lines: list[bytes]) -> bytes:
    out: list[object] = []
    for line in lines:
        text = line.decode()
        half = len(text) // 2
        out += [
            {"file": "/x", "message": text[:half], "_partial": True, "timestamp": _TIME},
            {"file": "/x", "message": text[half:], "timestamp": _TIME},
        ]
    return _json_lines(out)


def journald_cut(lines: list[bytes]) -> bytes:
    """Of a stream, with lines that were too long for it."""
    out: list[object] = []
    for line in lines:
        text = line.decode()
        around = {"_STREAM_ID": "a" * 32, "_TRANSPORT": "stdout", "PRIORITY": "6"}
        half = len(text) // 2
        for at, piece in enumerate((text[:half], text[half:])):
            place = {"__CURSOR": f"s=f7ebcef;i={len(out)}", "__REALTIME_TIMESTAMP": f"{len(out)}"}
            cut = {} if at else {"_LINE_BREAK": "line-max"}
            out.append({**place, **around, **cut, "MESSAGE": piece})
    return _json_lines(out)


def two_pods(lines: list[bytes]) -> bytes:
    """Parts of lines of two pods, by turns."""
    out: list[object] = []

    def part(pod: str, tag: str, text: str) -> None:
        around = {"kubernetes": {"pod_name": pod}}
        out.append({"stream": "stdout", "logtag": tag, "log": text, **around})

    for first, second in zip(lines[::2], [*lines[1::2], b"{}"], strict=False):
        texts = [("a", first.decode()), ("b", second.decode())]
        for pod, text in texts:
            part(pod, "P", text[: len(text) // 2])
        for pod, text in texts:
            part(pod, "F", text[len(text) // 2 :])
    return _json_lines(out)


def otlp(lines: list[bytes]) -> bytes:
    records = [{"body": {"stringValue": line.decode()}} for line in lines]
    resource = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "a"}}]}
    scopes = [{"scope": {}, "logRecords": records}]
    return _json_lines([{"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}])


def otlp_parsed(lines: list[bytes]) -> bytes:
    """With each line parsed into typed values."""
    records = [{"body": _otlp_value(json.loads(line))} for line in lines]
    return _json_lines([{"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}])


def _otlp_value(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        pairs = [{"key": key, "value": _otlp_value(each)} for key, each in value.items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, list):
        return {"arrayValue": {"values": list(map(_otlp_value, value))}}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {} if value is None else {"stringValue": value}


def behind(prefix: str) -> Callable[[list[bytes]], bytes]:
    """Something stands before each line."""
    return lambda lines: b"".join(prefix.encode() + line + b"\n" for line in lines)


def within(*keys: str, parsed: bool = False) -> Callable[[list[bytes]], bytes]:
    """Each line below keys of an object of its own."""

    def wrap(lines: list[bytes]) -> bytes:
        out: list[object] = []
        for line in lines:
            value: object = json.loads(line) if parsed else line.decode()
            for key in reversed(keys):
                value = {"host": "n", key: value}
            out.append(value)
        return _json_lines(out)

    return wrap


def rewritten(change: Callable[[dict[str, object]], object]) -> Callable[[list[bytes]], bytes]:
    """Each line parsed, changed and written again."""

    def rewrite(lines: list[bytes]) -> bytes:
        values = [json.loads(line) for line in lines]
        for value in values:
            change(value)
        return _json_lines(values)

    return rewrite


def _with_digits(digits: int) -> Callable[[dict[str, object]], object]:
    def change(value: dict[str, object]) -> None:
        if "timestamp" not in value:  # the line of another program
            return
        second, _, rest = str(value["timestamp"])[:-1].partition(".")
        rest = f"{rest}000"[:digits] if digits else rest.rstrip("0")
        value["timestamp"] = f"{second}.{rest}Z" if rest else f"{second}Z"

    return change


def _leave_out(value: dict[str, object]) -> None:
    for key in [key for key, each in value.items() if each in (None, "", [])]:
        del value[key]


def _sorted_floats(value: dict[str, object]) -> None:
    items = sorted(value.items())
    value.clear()
    for key, each in items:
        value[key] = float(each) if type(each) is int else each


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
    "fluent bit after its cri parser": fluent_bit_parsed,
    "parts by partial_message": partial_message,
    "parts by _partial": vector_partial,
    "parts by journald": journald_cut,
    "parts of two pods": two_pods,
    "otlp": otlp,
    "otlp, parsed": otlp_parsed,
    "journald": within("MESSAGE"),
    "journald, as bytes": lambda lines: _json_lines([{"MESSAGE": list(line)} for line in lines]),
    "cloud logging": within("jsonPayload", parsed=True),
    "elasticsearch": within("_source", "message"),
    "filebeat": lambda lines: _json_lines(
        [{"log": {"offset": 0, "file": {"path": "/x"}}, "message": line.decode()} for line in lines]
    ),
    "a blank message": lambda lines: _json_lines(
        [{"message": "", "attributes": json.loads(line)} for line in lines]
    ),
    "splunk": within("event"),
    "cloudwatch": lambda lines: _json_lines(
        [{"events": [{"message": line.decode(), "timestamp": 1} for line in lines]}]
    ),
    "an array": lambda lines: b"[" + b",".join(lines) + b"]",
    "an array, pretty": lambda lines: json.dumps(
        [{"message": line.decode()} for line in lines], indent=2
    ).encode(),
    "an array of parsed lines, pretty": lambda lines: json.dumps(
        list(map(json.loads, lines)), indent=2
    ).encode(),
    "an array, a line each": lambda lines: b"[\n" + b",\n".join(lines) + b"\n]\n",
    "no newline between": lambda lines: b"".join(lines),
    "kubectl logs --timestamps": behind(f"{_TIME} "),
    "kubectl logs --prefix": behind("[pod/a/b] "),
    "compose": behind("mx-1  | "),
    "compose, coloured": behind("\x1b[36mmx-1  |\x1b[0m "),
    "syslog": behind(f'<14>1 {_TIME} host app 1 ID [x@1 a="b"] '),
    "behind progress": behind("progress 50%\r"),
    "csv": lambda lines: b"".join(b'T,"%b",x\n' % line.replace(b'"', b'""') for line in lines),
    "logfmt": lambda lines: b"".join(
        f"level=info msg={json.dumps(line.decode())}\n".encode() for line in lines
    ),
    "times without zeros": rewritten(_with_digits(0)),
    "times of 9 digits": rewritten(_with_digits(9)),
    "times with an offset": rewritten(
        lambda value: value.update(
            {key: str(value[key]).replace("Z", "+00:00") for key in ("timestamp",) if key in value}
        )
    ),
    "sorted, with floats": rewritten(_sorted_floats),
    "empty ones left out": rewritten(_leave_out),
    "with keys added": rewritten(lambda value: value.update(zone="a", host={"ip": ["10.0.0.1"]})),
}


def _cut(line: bytes, part: int) -> list[bytes]:
    return [line[at : at + part] for at in range(0, len(line), part)] if part else [line]


def _json_lines(values: list[object] | list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)
