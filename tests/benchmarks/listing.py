"""`mx-metrics loads --json` and `explain` of 1 GB on two cores, against a replay of the same log.

Each is a process of its own, taken whole. DuckDB computes the same table of loads once, with two
threads and SQL of its own (`loads_duckdb`); that both give the same loads is made sure of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb

from tests.benchmarks import loads_duckdb
from tests.benchmarks.measuring import AT_LEAST, AT_MOST, Row, ratios
from tests.benchmarks.replaying import CORES, Run, on_two_cores, rate, run_whole

_BYTES = 1_000_000_000
_ROUNDS = 5


def rows() -> Iterator[Row]:
    """The rows of the rate, of the memory and of one load."""
    with on_two_cores(_BYTES) as place:
        yield from _measured(place)


def _measured(place: Path) -> Iterator[Row]:
    size = sum(path.stat().st_size for path in place.iterdir())
    theirs = run_whole([sys.executable, loads_duckdb.__file__, str(place), str(CORES)])
    listed = _command("loads", "--json", str(place))
    ours = [run_whole(listed)]
    ids = _ids(ours[0])
    if ids != _ids(theirs):
        raise RuntimeError("DuckDB and `mx-metrics loads` have other loads")
    replay, explain = _command("replay", str(place)), _command("explain", ids[0], str(place))
    replayed, explained = [run_whole(replay)], [run_whole(explain)]
    for at in range(1, _ROUNDS):
        sides = ((listed, ours), (replay, replayed), (explain, explained))
        for command, into in sides[:: 1 if at % 2 else -1]:
            into.append(run_whole(command))
    mine, others, single = ([run.seconds for run in side] for side in (ours, replayed, explained))
    yield Row(
        "loads --json of 1 GB, two cores: rate",
        "a replay of the same log",
        ratios(others, mine),
        "x",
        AT_LEAST,
        0.7,
        rate(size, mine),
        f"{rate(size, others)}; DuckDB {duckdb.__version__}: {rate(size, [theirs.seconds])}",
    )
    yield Row(
        "loads --json of 1 GB, two cores: peak memory of a process",
        "",
        [run.memory for run in ours],
        "MB",
        AT_MOST,
        150,
        "",
        f"DuckDB: {theirs.memory:.0f} MB",
    )
    yield Row(
        "explain of one load in 1 GB, two cores: time",
        "loads --json of the same log",
        ratios(single, mine),
        "x",
        AT_MOST,
        1,
        f"{sorted(single)[len(single) // 2]:.1f} s",
        f"{sorted(mine)[len(mine) // 2]:.1f} s",
    )


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mx_exporter", *arguments, "--jobs", str(CORES)]


def _ids(run: Run) -> list[str]:
    return sorted(json.loads(line)["load_id"] for line in run.output.splitlines())
