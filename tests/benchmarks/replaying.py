"""`mx-metrics replay` of 1 GB on two cores, against DuckDB with two threads.

Both are processes of their own, taken whole, on the same finished segments in memory. DuckDB
computes the same counts, sums and buckets (`replaying_duckdb`); that it does is made sure of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb

from tests.benchmarks import making, mtail, replaying_duckdb
from tests.benchmarks.measuring import AT_LEAST, AT_MOST, Row, ratios

_BYTES = 1_000_000_000
_ROUNDS = 7
CORES = 2

#: Where the log lies in memory, so that no disk is measured.
_SHARED = Path("/dev/shm")

_RUN = Path(__file__).with_name("replaying_run.py")


class Run(NamedTuple):
    seconds: float
    #: Peak resident memory in MB: of the process, or of one that it started, if that had more.
    memory: float
    output: bytes
    #: Seconds of the CPU.
    cpu: float


def rows() -> Iterator[Row]:
    """The row of the rate and the row of the memory; they take less than three minutes."""
    with on_two_cores(_BYTES) as place:
        yield from _measured(place)


@contextmanager
def on_two_cores(size: int) -> Iterator[Path]:
    """A log of about ``size`` bytes in memory, while this process has `CORES` cores."""
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(dir=_SHARED if _SHARED.is_dir() else None) as place:
        os.sched_setaffinity(0, sorted(cores)[-CORES:])
        try:
            making.make(Path(place), size)
            yield Path(place)
        finally:
            os.sched_setaffinity(0, cores)


def _measured(place: Path) -> Iterator[Row]:
    size = sum(path.stat().st_size for path in place.iterdir())
    replay = [sys.executable, "-m", "mx_exporter", "replay", "--jobs", str(CORES), str(place)]
    query = [sys.executable, replaying_duckdb.__file__, str(place), str(CORES)]
    ours, theirs = [run_whole(replay)], [run_whole(query)]
    found = {
        (name, tuple(map(tuple, labels))): value
        for name, labels, value in json.loads(theirs[0].output)
    }
    mtail.must_agree(mtail.samples(ours[0].output), found)
    for at in range(1, _ROUNDS):
        sides = ((replay, ours), (query, theirs))
        for command, into in sides[:: 1 if at % 2 else -1]:
            into.append(run_whole(command))
    mine, others = [run.seconds for run in ours], [run.seconds for run in theirs]
    yield Row(
        "replay of 1 GB, two cores: rate",
        f"DuckDB {duckdb.__version__}, two threads, same counts, sums and buckets",
        ratios(others, mine),
        "x",
        AT_LEAST,
        0.6,
        rate(size, mine),
        rate(size, others),
    )
    yield Row(
        "replay of 1 GB, two cores: peak memory of a process",
        "",
        [run.memory for run in ours],
        "MB",
        AT_MOST,
        150,
        "",
        f"DuckDB: {max(run.memory for run in theirs):.0f} MB",
    )


def run_whole(command: list[str], code: int = 0) -> Run:
    """Run a command as a process of its own, which ends with this code."""
    done = subprocess.run([sys.executable, "-I", "-S", _RUN, *command], capture_output=True)
    if done.returncode != code:
        raise RuntimeError(f"{command}: {done.stderr.decode()}")
    took, memory, cpu = done.stderr.splitlines()[-1].split()
    return Run(float(took), float(memory) / 1024, done.stdout, float(cpu))


def rate(size: int, took: list[float]) -> str:
    """Of the run in the middle."""
    return f"{size / sorted(took)[len(took) // 2] / 1e6:,.0f} MB/s"
