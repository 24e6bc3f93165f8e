"""Compares the samples of the client's multiprocess mode with those of a replay of our log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from mx_exporter.core.builtin import CATALOG, FAMILIES
from mx_exporter.core.exact_sum import to_float
from mx_exporter.core.fold import Fold
from tests import support
from tests.support import pages
from tests.support.pages import Samples

PROGRAMS = Path(__file__).parent / "programs"


def both(theirs: Path, ours: Path, *, with_ids: bool = False) -> tuple[Samples, Samples]:
    """The samples of the client's directory, and those of ours."""
    flag = ["--source-id-label"] if with_ids else []
    return (
        samples(printed(PROGRAMS / "collect.py", theirs)),
        samples(printed("-m", "mx_exporter", "replay", ours, *flag)),
    )


def check(expected: Samples, found: Samples, tolerance: Samples) -> None:
    """Every sample of the client is there, equal; what we have beside it is none that counts."""
    wrong = {
        key: (value, found.get(key))
        for key, value in expected.items()
        if key not in found or abs(found[key] - value) > 1e-12 * tolerance.get(key, 0)
    }
    assert not wrong
    # What we have beside it are zero series and the families of our own.
    more = {
        key: value
        for key, value in found.items()
        if key not in expected and not key[0].startswith(("mx_loads_", "mx_emitter_"))
    }
    assert {key: value for key, value in more.items() if value} == {}
    assert all(name.endswith("_total") for name, _ in more)


def samples(page: bytes) -> Samples:
    """The samples of the ``mx_`` families, without the times at which they began."""
    return {
        key: value
        for key, value in pages.parse(page.decode()).items()
        if key[0].startswith("mx_") and not key[0].endswith("_created")
    }


def printed(*command: object) -> bytes:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        check=True,
        stdout=subprocess.PIPE,
        env=support.clean_environment(),
    ).stdout


def magnitudes(directory: Path) -> Samples:
    """For each histogram's sum: the sum of the magnitudes of what went into it."""
    whole = Fold(CATALOG)
    for segment in sorted(directory.glob("events-*.jsonl")):
        for line in segment.read_bytes().splitlines():
            event = json.loads(line)
            for field in ("seconds", "count"):
                if field in event:
                    event[field] = abs(event[field])
            whole.feed_lines([json.dumps(event).encode()])
    found: Samples = {}
    for family in FAMILIES:
        if family.buckets:
            for labels, series in whole.state.series[family.name].items():
                key = tuple(sorted(zip(family.label_names(), labels, strict=True)))
                found[f"{family.name}_sum", key] = to_float(series.total.units())
    return found
