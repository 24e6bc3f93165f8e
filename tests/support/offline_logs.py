"""Logs for the offline tests: ranks that load models, and the envelopes around their lines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from mx_exporter.directory.follower import Follower
from mx_exporter.exposition import text
from tests.support import Lines


def loads(log: Lines, count: int, rng: random.Random, *, end: bool = True) -> Iterator[bytes]:
    """The lines of ``count`` loads; without ``end`` the last one stays in its phase."""
    for number in range(count):
        common = {"engine": "vllm", "model": "acme/große-7b", "load_id": f"{log.proc}-{log.seq}"}
        last = number == count - 1
        yield log("load_started", model_role="main", **common)
        yield log("load_phase_started", phase="chain", **common)
        yield log("sources_listed", policy="random", result=rng.choice(["ok", "empty"]))
        yield log("source_selected", policy="random", source_worker_id=f"w{rng.randrange(3)}")
        yield log(
            "candidate_loads_seen",
            loads=[{"source_worker_id": f"w{at}", "load": rng.random()} for at in range(2)],
        )
        yield log(
            "transfer_finished", policy="random", outcome="success", seconds=rng.expovariate(1)
        )
        if last and not end:
            return
        yield log("load_phase_finished", phase="chain", seconds=rng.expovariate(1), **common)
        yield log(
            "load_finished",
            model_role="main",
            outcome="success",
            seconds=rng.expovariate(0.1),
            **common,
        )


def ranks(
    directory: Path, *, processes: int = 3, segments: int = 2, count: int = 3, end: bool = True
) -> list[Path]:
    """Write the finished segments of some processes; returns their paths."""
    directory.mkdir(exist_ok=True)
    rng = random.Random(7)
    paths = []
    for rank in range(processes):
        log = Lines(f"{rank:012x}", rank=rank, scheme="test", start=Lines.START + rank / 7)
        for n in range(segments):
            final = n == segments - 1
            lines = loads(log, count, rng, end=end or not final)
            paths.append(segment(log, directory, n, lines))
    return paths


def segment(log: Lines, directory: Path, n: int, lines: Iterable[bytes], **header: Any) -> Path:
    """Write a finished segment: its header, then ``lines``, which are made after it when they
    come from a generator."""
    path = directory / f"events-{log.proc}-{n}.jsonl"
    path.write_bytes(log.header(n, **header) + b"".join(lines))
    return path


def lines_of(paths: list[Path]) -> list[bytes]:
    """The lines of files, without their newlines."""
    return [line for path in paths for line in path.read_bytes().splitlines()]


def page_of(state: State, *, source_id_label: bool = True) -> bytes:
    """The page of a state, everything on it."""
    metrics = text.families(state, source_id_label=source_id_label, openmetrics=True)
    return text.render(metrics, openmetrics=True)


def live_page(directory: Path, *, source_id_label: bool = True) -> bytes:
    """What the live exporter serves of a directory."""
    follower = Follower(str(directory), Fold(CATALOG))
    follower.drain()
    return page_of(follower.fold.state, source_id_label=source_id_label)


# --------------------------------------------------------------------------------------
# Envelopes: lines in, a file's bytes out

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
