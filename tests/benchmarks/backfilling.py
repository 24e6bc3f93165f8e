"""`mx-metrics backfill` on one core, whole: from the log to the file; and promtool over that file.

Both by the seconds of a core that they took. The log is that of a fleet of which each pod loads
once and is scraped for some minutes; longer runs of equal samples are written quicker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mx_demo.fleet import write_fleet
from tests import support
from tests.benchmarks.measuring import AT_LEAST, Row

_PODS = 200
_ROUNDS = 3

#: Long ago, so that no block is of the last three hours.
_START = 1_767_225_600

#: Where all lies in memory, so that no disk is measured.
_SHARED = Path("/dev/shm")


def rows() -> Iterator[Row]:
    """The row; it takes a minute."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        with tempfile.TemporaryDirectory(dir=_SHARED if _SHARED.is_dir() else None) as place:
            yield _measured(Path(place))
    finally:
        os.sched_setaffinity(0, cores)


def _measured(place: Path) -> Row:
    write_fleet(place / "fleet", _PODS, start=_START)
    pods = sorted((place / "fleet").iterdir())
    out, blocks = place / "out.om", place / "blocks"
    command = [sys.executable, "-m", "mx_exporter", "backfill", "-o", out, "--step", "1s", *pods]
    tool = [support.tool("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
    ours, theirs = [], []
    for _ in range(_ROUNDS):
        ours.append(_run(command))
        shutil.rmtree(blocks, ignore_errors=True)
        theirs.append(_run([*tool, "--max-block-duration=720h", out, blocks]))
    with out.open("rb") as file:
        samples = sum(not line.startswith(b"#") for line in file)
    rates = [samples / took / 1e6 for took in ours]
    return Row(
        f"backfill of {samples / 1e6:.1f} million samples, one core: a second",
        "promtool, which makes blocks of them, one core",
        rates,
        "million",
        AT_LEAST,
        1.0,
        f"{sorted(rates)[len(rates) // 2]:.2f} million/s",
        f"{samples / sorted(theirs)[len(theirs) // 2] / 1e6:.2f} million/s",
    )


def _run(command: list[str | Path]) -> float:
    """Seconds of the core that a program took."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])
