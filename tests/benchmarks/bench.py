"""All benchmarks in one run, as one table: `make bench`, ARGS="--only folding --json bench.json".

The table is Markdown, as it stands in docs/performance.md. A figure that is not reached is said,
and fails nothing: how fast a machine is today is no test.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.benchmarks import mtail
from tests.benchmarks.measuring import Row

#: Modules that have ``rows()``, in the order of the table.
SECTIONS = (
    "recorders", "process", "scraping", "looking", "folding", "shipped", "replaying",
    "listing", "backfilling", "fleets", "idling",
)  # fmt: skip

#: Those that are run once more after all others: minutes later a machine is another one.
TWICE = ("recorders", "folding", "replaying", "backfilling", "idling")

_LIBRARIES = ("structlog", "orjson", "msgspec", "prometheus_client", "h11", "duckdb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, metavar="SECTION")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all rounds there, too")
    given = parser.parse_args()
    began = time.monotonic()
    machine = about()
    print("; ".join(f"{key} {value}" for key, value in machine.items()), end="\n\n", flush=True)
    rows = run([*given.only, *(name for name in TWICE if name in given.only)])
    print("\n".join([*HEAD, *map(line, rows)]))
    missed = sum(not row.reached for row in rows)
    print(f"\n{len(rows)} figures, {missed} not reached, {time.monotonic() - began:.0f} s")
    if given.json:
        Path(given.json).write_text(
            json.dumps({"machine": machine, "rows": [as_object(row) for row in rows]}, indent=1)
        )


def run(sections: Iterable[str]) -> list[Row]:
    """The rows of some sections; one that is there twice adds its rounds to those it had."""
    found: dict[tuple[str, str], Row] = {}
    for name in sections:
        began = time.monotonic()
        for row in importlib.import_module(f"tests.benchmarks.{name}").rows():
            key = (row.what, row.against)
            if key in found:
                row = dataclasses.replace(row, values=[*found[key].values, *row.values])
            found[key] = row
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return list(found.values())


HEAD = (
    "| what | against | figure | lowest to highest | to reach | ours | theirs |",
    "|---|---|---|---|---|---|---|",
)


def line(row: Row) -> str:
    """A row as a line of the table; a figure that is not reached stands in bold."""
    figure = shown(row.median, row.unit)
    cells = (
        row.what,
        row.against,
        figure if row.reached else f"**{figure}**",
        f"{shown(min(row.values), row.unit)} to {shown(max(row.values), row.unit)}",
        f"{row.bound} {row.target:g}{unit(row.unit)}",
        row.ours,
        row.theirs,
    )
    return f"| {' | '.join(cells)} |"


def shown(value: float, given: str) -> str:
    """A figure with three digits."""
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}{unit(given)}"


def unit(given: str) -> str:
    return given if given == "x" or not given else f" {given}"


def as_object(row: Row) -> dict[str, Any]:
    """A row for machines."""
    return {
        "what": row.what,
        "against": row.against,
        "median": row.median,
        "lowest": min(row.values),
        "highest": max(row.values),
        "values": list(row.values),
        "unit": row.unit,
        "bound": row.bound,
        "target": row.target,
        "reached": row.reached,
        "ours": row.ours,
        "theirs": row.theirs,
    }


def about() -> dict[str, str]:
    """The machine and the versions that were measured."""
    found = {
        "CPU": f"{len(os.sched_getaffinity(0))} cores, {_cpu()}",
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "modelexpress": "0.7.0",
    }
    found |= {name: metadata.version(name) for name in _LIBRARIES}
    found["mtail"] = mtail.version().removeprefix("mtail ")
    return found


def _cpu() -> str:
    for each in Path("/proc/cpuinfo").read_text().splitlines():
        if each.startswith("model name"):
            return each.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
