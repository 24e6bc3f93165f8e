"""A call of a recorder, as an engine's loader makes it while it loads a model.

Against the client's recorders, release 0.7.0 in multiprocess mode, with the files of both on the
same file system; against structlog, set up as its documentation recommends for speed, which logs
the same event; against the floor, which is `orjson.dumps` of the same line and `os.write` of it;
and, while metrics are off, against an empty method. Each recorder is measured; of the many of a
kind, a row shows the one in the middle and the slowest.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measuring import AT_MOST, Row, ratios
from tests.benchmarks.recorders_run import RECORDERS, TIMERS
from tests.benchmarks.scraping_parts import CLIENTS, HERE, environment, folder

_CLIENT = "the client's, multiprocess mode"
_STRUCTLOG = "structlog: level, ISO timestamp, orjson, BytesLogger to a file, flushed"
_FLOOR = "orjson.dumps and os.write of the same line"
_EMPTY = "an empty method"
_LOADS = "observe_candidate_loads"


class _Pair(NamedTuple):
    """Seconds a call of ours and of the others, round by round."""

    name: str
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(ratios(self.ours, self.theirs))

    def row(self, what: str, against: str, target: float, shown: str = "") -> Row:
        return Row(
            what,
            against,
            ratios(self.ours, self.theirs),
            "x",
            AT_MOST,
            target,
            _nanoseconds(self.ours) + shown,
            _nanoseconds(self.theirs),
        )


def rows() -> Iterator[Row]:
    """The rows; they take about a minute."""
    found = _measured()
    yield found["client"]["load"].row("the recordings of one whole load, metrics on", _CLIENT, 1.5)
    one_line = [found["client"][name] for name in RECORDERS if name != _LOADS]
    yield from _of_many("a recorder that writes one line", one_line, _CLIENT, 1.7)
    yield found["client"][_LOADS].row(_LOADS, _CLIENT, 1.5)
    timers = [found["client"][name] for name in TIMERS]
    yield from _of_many("a timer, which logs its start too", timers, _CLIENT, 2.2)
    same = [each for name, each in found["structlog"].items() if name != _LOADS]
    yield from _of_many("the event of a recorder", same, _STRUCTLOG, 0.8)
    floors = list(found["floor"].values())
    yield from _of_many("a recorder that writes one line", floors, _FLOOR, 2.0)
    yield from _of_many("a recorder, metrics off", list(found["empty"].values()), _EMPTY, 3.0)


def _of_many(what: str, pairs: list[_Pair], against: str, target: float) -> Iterator[Row]:
    ordered = sorted(pairs, key=lambda pair: pair.ratio)
    middle, slowest = ordered[len(ordered) // 2], ordered[-1]
    yield middle.row(f"{what}, the middle one", against, target, f" ({middle.name})")
    yield slowest.row(f"{what}, the slowest", against, target, f" ({slowest.name})")


def _measured() -> dict[str, dict[str, _Pair]]:
    """By what ours are compared with, and by name."""
    found: dict[str, dict[str, _Pair]] = {}
    with folder() as place:
        (place / "theirs").mkdir()
        for switch in ("on", "off"):
            done = subprocess.run(
                [sys.executable, HERE / "recorders_run.py", switch],
                check=True,
                stdout=subprocess.PIPE,
                env=_environment(place, switch == "on"),
            )
            for line in done.stdout.splitlines():
                name, against, ours, theirs = json.loads(line)
                found.setdefault(against, {})[name] = _Pair(name, ours, theirs)
    return found


def _environment(place: Path, on: bool) -> dict[str, str]:
    return environment(
        PYTHONPATH=str(CLIENTS / "0.7.0"),
        MX_METRICS_ENABLED=str(int(on)),
        MX_METRICS_DIR=str(place / "ours"),
        MX_METRICS_MAX_BYTES=str(1 << 40),
        MX_METRICS_SEGMENT_BYTES=str(1 << 20),
        PROMETHEUS_MULTIPROC_DIR=str(place / "theirs"),
    )


def _nanoseconds(each: list[float]) -> str:
    return f"{statistics.median(each) * 1e9:,.0f} ns"
