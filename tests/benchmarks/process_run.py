"""A rank that emits so many events: process_run.py EVENTS LOOKS

Prints its resident memory in bytes, as JSON: after `import structlog, orjson`, and that many times
while it emits, evenly spread. The events are those of whole loads, one after the other.
"""

from __future__ import annotations

import gc
import json
import sys

import orjson  # noqa: F401 - what an engine has anyhow
import structlog  # noqa: F401

#: Lines of one load: the timers write two.
LINES = 34


def resident() -> int:
    """What the kernel counts as this process's own and shared pages in memory."""
    gc.collect()
    with open("/proc/self/smaps_rollup") as file:
        (line,) = (line for line in file if line.startswith("Rss:"))
    return int(line.split()[1]) * 1024


def main(events: int, looks: int) -> None:
    from tests.benchmarks import one_load

    found = [resident()]
    from mx_emitter import enable_metrics, metrics

    assert enable_metrics()
    for _ in range(looks):
        for _ in range(events // looks // LINES):
            one_load.load(metrics)
        found.append(resident())
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
