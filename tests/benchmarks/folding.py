"""Folding a log of realistic mix on one core, against two ways to read the same.

Ours is what a replay in one process does, from opening the segments to the state. Against it:
`orjson.loads` of each line, the lines lying in memory, and nothing else; and mtail, whose run
is taken whole, as it cannot be told when it has started.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.state import State
from mx_exporter.exposition.samples import derived_families
from mx_exporter.exposition.text import render
from mx_exporter.offline.fold_sources import fold_sources
from mx_exporter.offline.sources import find
from mx_exporter.offline.writers import Writers
from tests.benchmarks import making, mtail
from tests.benchmarks.measuring import AT_LEAST, Row, alternating, ratios, seconds

_BYTES = 40_000_000
_ROUNDS = 9

#: Where the log lies in memory, so that no disk is measured.
_SHARED = Path("/dev/shm")


def rows() -> Iterator[Row]:
    """The two rows; they take a minute."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        with tempfile.TemporaryDirectory(dir=_SHARED if _SHARED.is_dir() else None) as place:
            making.make(Path(place), _BYTES)
            yield _against_orjson(Path(place))
            yield _against_mtail(Path(place))
    finally:
        os.sched_setaffinity(0, cores)


def fold(place: Path) -> State:
    """The state of a directory."""
    return fold_sources(CATALOG, find([str(place)]).sources, Writers()).state


def page(state: State) -> bytes:
    """What `replay` prints of a state."""
    return render(derived_families(CATALOG, state))


def _against_orjson(place: Path) -> Row:
    lines = [line for path in place.iterdir() for line in path.read_bytes().splitlines()]

    def parse() -> None:
        loads = orjson.loads
        for line in lines:
            loads(line)

    ours, theirs = alternating(
        lambda: seconds(lambda: fold(place)), lambda: seconds(parse), _ROUNDS
    )
    return Row(
        "folding a log of realistic mix, one core: rate",
        "orjson.loads of each line and nothing else",
        ratios(theirs, ours),
        "x",
        AT_LEAST,
        0.6,
        _rate(ours, len(lines)),
        _rate(theirs, len(lines)),
    )


def _against_mtail(place: Path) -> Row:
    segments = sorted(place.iterdir())
    lines = sum(path.read_bytes().count(b"\n") for path in segments)
    mtail.must_agree(mtail.samples(page(fold(place))), mtail.samples(mtail.one_shot(segments)))
    ours, theirs = alternating(
        lambda: seconds(lambda: fold(place)),
        lambda: seconds(lambda: mtail.one_shot(segments)),
        _ROUNDS,
    )
    return Row(
        "folding a log of realistic mix, one core: rate",
        f"{mtail.version()}, one shot",
        ratios(theirs, ours),
        "x",
        AT_LEAST,
        8,
        _rate(ours, lines),
        _rate(theirs, lines),
    )


def _rate(took: list[float], lines: int) -> str:
    return f"{lines / sorted(took)[len(took) // 2] / 1e3:,.0f} k lines/s"
