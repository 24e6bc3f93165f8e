"""A log as collectors give it back, against the same log as it was written.

How fast it folds, by the CPU's time on one core; how soon a file of somebody else's lines is told,
and what memory a replay of a gigabyte takes, by processes of their own taken whole.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.state import State
from mx_exporter.offline.fold_sources import fold_sources
from mx_exporter.offline.sources import find
from mx_exporter.offline.writers import Writers
from tests.benchmarks import making
from tests.benchmarks.folding import fold, page
from tests.benchmarks.measuring import AT_LEAST, AT_MOST, Row, alternating, ratios
from tests.benchmarks.replaying import run_whole
from tests.support import envelopes

_BYTES = 40_000_000
_LARGE = 1_000_000_000
_ROUNDS = 9

#: Where the logs lie in memory, so that no disk is measured.
_SHARED = Path("/dev/shm")

#: What a collector or a tool made of a log.
SHAPES: dict[str, Callable[[list[bytes]], bytes]] = {
    "a CRI log": envelopes.cri,
    "a Docker json-file": envelopes.docker,
    "Loki's JSON, one object": envelopes.loki_api,
}

_FOREIGN = (
    b"2026-01-02T03:04:05.678Z INFO 10.0.0.7 - GET /v1/models 200 in 12 ms; "
    b'agent="curl/8.5.0" request_id=%012x tokens=%d\n'
)


def rows() -> Iterator[Row]:
    """All rows; they take some minutes."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        with tempfile.TemporaryDirectory(dir=_SHARED if _SHARED.is_dir() else None) as place:
            yield from _rates(Path(place))
            yield from _large(Path(place))
    finally:
        os.sched_setaffinity(0, cores)


def _rates(place: Path) -> Iterator[Row]:
    plain = place / "plain"
    plain.mkdir()
    making.make(plain, _BYTES)
    lines = [line for path in sorted(plain.iterdir()) for line in path.read_bytes().splitlines()]
    expected = page(fold(plain))
    shipped = place / "shipped"
    for name, shape in SHAPES.items():
        shipped.write_bytes(shape(lines))
        assert page(_fold_file(shipped)) == expected
        ours, theirs = alternating(
            lambda: _cpu_seconds(lambda: _fold_file(shipped)),
            lambda: _cpu_seconds(lambda: fold(plain)),
            _ROUNDS,
        )
        yield Row(
            f"folding {name}, one core: rate",
            "the segments that it was made of",
            ratios(theirs, ours),
            "x",
            AT_LEAST,
            0.5,
            _rate(ours, len(lines)),
            _rate(theirs, len(lines)),
        )


def _fold_file(path: Path) -> State:
    return fold_sources(CATALOG, find([str(path)]).sources, Writers()).state


def _cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _rate(took: list[float], lines: int) -> str:
    return f"{lines / sorted(took)[len(took) // 2] / 1e3:,.0f} k lines/s"


def _large(place: Path) -> Iterator[Row]:
    log, other, shaped = place / "log", place / "other", place / "shaped"
    log.mkdir()
    making.make(log, _LARGE)
    _write(other, b"", _foreign(), b"")
    replay = [sys.executable, "-m", "mx_exporter", "replay", "--jobs", "1"]
    ours, theirs = alternating(
        lambda: run_whole([*replay, str(other)], code=1).cpu,
        lambda: run_whole([*replay, str(log)]).cpu,
        3,
    )
    yield Row(
        "telling that 1 GB holds no event: time",
        "a replay of 1 GB, in one process",
        ratios(ours, theirs),
        "x",
        AT_MOST,
        0.7,
        f"{sorted(ours)[1]:.1f} s",
        f"{sorted(theirs)[1]:.1f} s",
    )
    other.unlink()
    lines = [line for path in log.iterdir() for line in path.read_bytes().splitlines()]
    for name, (head, parts, tail) in {
        "an array of objects": (b"[", _joined(lines), b"]"),
        "an array of objects over many lines": (b"[", _joined(map(_indented, lines)), b"]"),
        "Loki's JSON, one object": (_LOKI, _joined(map(_pair, lines)), b"]}]}}\n"),
        "a CRI log": (b"", (envelopes.cri([line]) for line in lines), b""),
    }.items():
        _write(shaped, head, parts, tail)
        yield Row(
            f"replay of 1 GB as {name}: peak memory",
            "",
            [run_whole([*replay, str(shaped)]).memory],
            "MB",
            AT_MOST,
            150,
        )


def _write(path: Path, head: bytes, parts: Iterable[bytes], tail: bytes) -> None:
    """A file of about `_LARGE` bytes."""
    with open(path, "wb") as file:
        file.write(head)
        written = 0
        for part in parts:
            file.write(part)
            written += len(part)
            if written >= _LARGE:
                break
        file.write(tail)


def _foreign() -> Iterator[bytes]:
    return (_FOREIGN % (number, number % 4096) for number in itertools.count())


def _joined(elements: Iterable[bytes]) -> Iterator[bytes]:
    for number, element in enumerate(elements):
        yield b"," + element if number else element


def _indented(line: bytes) -> bytes:
    return msgspec.json.format(line, indent=1)


def _pair(line: bytes) -> bytes:
    return json.dumps(["1700000000000000000", line.decode()], separators=(",", ":")).encode()


_LOKI = (
    b'{"status":"success","data":{"resultType":"streams","result":[{"stream":{"pod":"a"},"values":['
)
