"""Pages as text: what an exporter serves and what a replay prints."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from tests import support

#: Values by sample name and labels.
Samples: TypeAlias = dict[tuple[str, tuple[tuple[str, str], ...]], float]

#: The exporter's own families that a restart must not set back; the others count one life.
_LASTING = tuple(
    f"mx_exporter_{name}_total"
    for name in (
        *("events_folded", "events_logged", "events_skipped", "lines_rejected"),
        *("observations_refused", "duplicates"),
    )
)


def parse(page: str) -> Samples:
    """The samples of a page, read by the client library's parser; a sample that is there twice is
    an error."""
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of that name that have those labels."""
    return sum(
        value
        for (found, has), value in samples.items()
        if found == name and labels.items() <= dict(has).items()
    )


def only_grows(name: str) -> bool:
    """Whether no sample of that name may fall, over restarts too."""
    if name.startswith("mx_exporter_"):
        return name in _LASTING
    return name.startswith("mx_") and name.endswith(("_total", "_count", "_bucket", "_sum"))


def counters(page: bytes) -> Samples:
    """The samples that may only grow."""
    samples = parse(page.decode())
    return {key: value for key, value in samples.items() if only_grows(key[0])}


def derived(page: bytes) -> bytes:
    """The families that are derived from the log: the page without the exporter's own."""
    return b"".join(line for line in page.splitlines(keepends=True) if _is_derived(line))


def _is_derived(line: bytes) -> bool:
    if line.startswith((b"# HELP", b"# TYPE", b"# UNIT")):
        line = line.split(b" ")[2]
    return line.startswith((b"mx_", b"# EOF")) and not line.startswith(b"mx_exporter_")


def replay(spawn: support.Spawner, *arguments: str | Path, limit: float = 60.0) -> support.Process:
    """Run ``mx-metrics replay`` to its end, which must be a good one."""
    process = spawn.python("-m", "mx_exporter", "replay", *arguments)
    assert process.result(limit) == 0, process.error_output
    return process


def replayed(spawn: support.Spawner, *arguments: str | Path, limit: float = 60.0) -> bytes:
    """The page that ``mx-metrics replay`` prints."""
    return replay(spawn, *arguments, limit=limit).output.encode()


def check_metrics(promtool: str, page: bytes) -> None:
    """Assert that promtool finds no fault with a page."""
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True)
    assert (done.returncode, done.stderr.decode()) == (0, "")
