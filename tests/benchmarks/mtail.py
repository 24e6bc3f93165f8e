"""mtail over our log: the program `mx.mtail`, and what it gives.

It is Debian's package, which ``tests/support/bring_tools.sh mtail`` unpacks below ``.venv/tools``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("mx.mtail")

#: By sample name and labels.
Samples: TypeAlias = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def binary() -> str:
    """The path of mtail, brought when there is none. Raises FileNotFoundError."""
    brought = ROOT / ".venv" / "tools" / "usr" / "bin" / "mtail"
    if not shutil.which("mtail") and not brought.exists():
        subprocess.run([ROOT / "tests" / "support" / "bring_tools.sh", "mtail"], check=True)
    found = shutil.which("mtail") or shutil.which(brought)
    if found is None:
        raise FileNotFoundError("mtail could not be had")
    return found


def version() -> str:
    """Its version, as ``mtail 3.0.0~rc50``."""
    said = subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout
    return f"mtail {said.split()[2]}"


def one_shot(logs: Iterable[Path], *before: str) -> bytes:
    """The page of a run over whole logs; ``before`` is a command to start it with."""
    with tempfile.TemporaryDirectory() as own_logs:
        return subprocess.run(
            [
                *before,
                binary(),
                "-one_shot",
                "-one_shot_format=prometheus",
                "-address=127.0.0.1",
                "-port=0",
                f"-progs={PROGRAM}",
                f"-log_dir={own_logs}",
                "-logs=" + ",".join(map(str, logs)),
            ],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ).stdout


def samples(page: bytes) -> Samples:
    """The samples of a page: boundaries as numbers, with neither mtail's label of its program
    nor a date of birth."""
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "prog"}
            if "le" in labels:
                labels["le"] = repr(float(labels["le"]))
            if not sample.name.endswith("_created"):
                found[sample.name, tuple(sorted(labels.items()))] = sample.value
    return found


def must_agree(ours: Samples, theirs: Samples) -> None:
    """Make sure that both derived the same: counts and buckets exactly, sums within 1e-6.

    Which of several processes' gauges came last is ours alone to know, as are zero series and
    families of our own. Raises AssertionError.
    """
    ours = {
        key: value
        for key, value in ours.items()
        if not key[0].startswith(("mx_loads_", "mx_emitter_"))
    }
    counted = {key: value for key, value in ours.items() if value or not key[0].endswith("_total")}
    odd = sorted(counted.keys() ^ theirs.keys())
    assert not odd, (len(odd), odd[:5])
    for (name, labels), value in counted.items():
        other = theirs[name, labels]
        if name != "mx_p2p_source_load":
            tolerance = 1e-6 * abs(value) if name.endswith("_sum") else 0
            assert abs(value - other) <= tolerance, (name, labels, value, other)
