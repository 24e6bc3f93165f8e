"""Make logs of a realistic mix, quickly: making.py DIRECTORY BYTES

A few loads are logged by the real emitter, and their lines are multiplied: with other
processes, numbers, times, loads and values, in segments of the usual size. What comes out are
the finished segments of `RANKS` processes, the same bytes each time.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks import making_record, one_load

RANKS = 8
SEGMENT_BYTES = 1024 * 1024

MODELS = (one_load.MODEL, "meta-llama/Llama-3.1-405B-Instruct", "Qwen/Qwen3-235B-A22B")

#: Rounds of loads with values of their own before they come again.
_ROUNDS = 64

#: 2026-01-01T00:00:00Z
_START = 1_767_225_600

#: About how long things take, in seconds: from, to.
_TAKES = {
    b"sources_ordered": (5e-6, 5e-3),
    b"transfer_finished": (1.0, 90.0),
    b"source_attempt_phase_finished": (2e-3, 20.0),
    b"load_finished": (10.0, 1500.0),
    b"load_phase_finished": (0.2, 600.0),
    b"artifact_install_step_finished": (0.05, 40.0),
}

_EVENT = re.compile(rb'{"event":"(\w+)"')
_LOAD_ID = re.compile(rb'"load_id":"(\w+)"')
_SECONDS = re.compile(rb'"seconds":([^,}]+)')
_COUNT = re.compile(rb'"count":\d+')
_BYTES = re.compile(rb'"bytes":\d+')
_LOAD = re.compile(rb'"load":[^,}]+')
_TIMESTAMP = re.compile(rb'"timestamp":"[^"]*"')
_SEQ = re.compile(rb'"seq":\d+')
_PROC = re.compile(rb'"proc":"\w+"')
_SEGMENT = re.compile(rb'"segment":\d+')

#: Spreads the numbers of loads over what ids look like.
_ODD = 0x9E3779B97F4B


def make(directory: Path, size: int) -> None:
    """Fill a directory with about ``size`` bytes of log."""
    headers, loads = _recorded()
    for rank in range(RANKS):
        _Rank(directory, rank, headers, loads).write(size // RANKS)


def _recorded() -> tuple[list[bytes], list[bytes]]:
    """The lines of the real emitter: both kinds of header, and what stands between them."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            [sys.executable, "-m", making_record.__name__],
            cwd=Path(__file__).parent.parent.parent,
            env={
                **os.environ,
                "MX_METRICS_ENABLED": "1",
                "MX_METRICS_DIR": place,
                "MX_METRICS_SEGMENT_BYTES": "65536",
                "MX_METRICS_SCHEME": "baseline",
            },
            check=True,
        )
        segments = sorted(Path(place).iterdir(), key=lambda path: int(path.stem.split("-")[2]))
        lines = [path.read_bytes().splitlines(keepends=True) for path in segments]
    assert len(lines) > 1, "the mix must span two segments"
    headers = [
        re.sub(rb'"pid":\d+,"hostname":"[^"]*"', b'"pid":4711,"hostname":"pod-0"', segment[0])
        for segment in lines[:2]
    ]
    return headers, [line for segment in lines for line in segment[1:]]


class _Round:
    """The lines of a few loads of one process: what they say, but for number, time and load."""

    def __init__(self, lines: list[bytes], chance: random.Random) -> None:
        ids: dict[bytes, int] = {}
        #: Which of the loads each line is of.
        self.loads: list[int] = []
        #: When each line is logged, in microseconds after the first.
        self.times: list[int] = []
        filled = []
        now = 0
        for line in lines:
            event, load = _EVENT.match(line), _LOAD_ID.search(line)
            assert event is not None, line
            assert load is not None, line
            self.loads.append(ids.setdefault(load[1], len(ids)))
            filled.append(_values(line, event[1], chance))
            now += 60 if event[1] != b"load_started" else 5_000_000
            if event[1] == b"source_attempt_phase_finished":
                now += int(float(_SECONDS.search(filled[-1])[1]) * 1e6)  # type: ignore[index]
            self.times.append(now)
        self.text = b"".join(filled)
        self.took = now
        self.ids = len(ids)


def _values(line: bytes, event: bytes, chance: random.Random) -> bytes:
    """A line with other values, and holes for its number, its time and its load."""
    if event in _TAKES:
        least, most = _TAKES[event]
        seconds = least * (most / least) ** chance.random()
        line = _SECONDS.sub(b'"seconds":%b' % repr(seconds).encode(), line)
    line = _COUNT.sub(b'"count":%d' % chance.choice((0, 1, 2, 3, 7, 7, 8, 30)), line)
    line = _BYTES.sub(b'"bytes":%d' % chance.randrange(1 << 33), line)
    line = _LOAD.sub(lambda _: b'"load":%b' % repr(chance.random()).encode(), line)
    return _LOAD_ID.sub(b'"load_id":"%b"', _holes(line))


def _holes(line: bytes) -> bytes:
    line = _TIMESTAMP.sub(b'"timestamp":"%b"', line.replace(b"%", b"%%"))
    return _SEQ.sub(b'"seq":%d', line)


class _Rank:
    """Writes the log of one process."""

    def __init__(self, directory: Path, rank: int, headers: list[bytes], lines: list[bytes]):
        self._directory = directory
        self._proc = f"{0xABCDEF000000 + rank:012x}"
        self._rank = rank
        self._headers = [self._own(_holes(header)) for header in headers]
        self._rounds = [
            _Round([self._own(line) for line in lines], random.Random(f"{rank} {n}"))
            for n in range(_ROUNDS)
        ]
        self._seq = 0
        self._load = rank << 32
        self._now = _START * 1_000_000

    def _own(self, line: bytes) -> bytes:
        line = _PROC.sub(b'"proc":"%b"' % self._proc.encode(), line)
        line = line.replace(b'"rank":0', b'"rank":%d' % self._rank)
        return line.replace(one_load.MODEL.encode(), MODELS[self._rank % len(MODELS)].encode())

    def write(self, size: int) -> None:
        """Write segments until about ``size`` bytes are written."""
        rounds = map(self._lines, itertools.cycle(self._rounds))
        for n in itertools.count():
            header = self._headers[n > 0] % (_stamp(self._now), self._seq)
            self._seq += 1
            parts = [_SEGMENT.sub(b'"segment":%d' % n, header)]
            while sum(map(len, parts)) < min(size, SEGMENT_BYTES * 15 // 16):
                parts.append(next(rounds))
            path = self._directory / f"events-{self._proc}-{n}.jsonl"
            size -= path.write_bytes(b"".join(parts))
            if size <= 0:
                break

    def _lines(self, given: _Round) -> bytes:
        now, seq = self._now, self._seq
        ids = [b"%012x" % ((self._load + n) * _ODD % (1 << 48)) for n in range(given.ids)]
        stamps = [_stamp(now + at) for at in given.times]
        loads = [ids[n] for n in given.loads]
        self._now += given.took
        self._seq += len(stamps)
        self._load += given.ids
        numbers = range(seq, self._seq)
        holes = itertools.chain.from_iterable(zip(stamps, numbers, loads, strict=True))
        return given.text % tuple(holes)


def _stamp(now: int) -> bytes:
    """A timestamp, from microseconds since the epoch."""
    whole, micros = divmod(now, 1_000_000)
    return b"%b.%06dZ" % (_second(whole), micros)


@functools.lru_cache(maxsize=16)
def _second(whole: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)).encode()


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
