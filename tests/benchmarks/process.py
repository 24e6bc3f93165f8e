"""What the emitter adds to a rank's process: the time of its import, and memory.

Both beside `import structlog, orjson`, each in fresh processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.measuring import AT_MOST, Row, alternating
from tests.benchmarks.scraping_parts import HERE, environment, folder

_LIBRARIES = "import structlog, orjson"
_EMITTER = "import structlog, orjson; from mx_emitter import enable_metrics, get_logger, metrics"

_IMPORTS = 31
_EVENTS = 10_000_000
_LOOKS = 10

#: Ranks that make a fiftieth of the events.
_SHORT = 6

_TIMED = """
import time
began = time.perf_counter()
{}
print(time.perf_counter() - began)
"""


def rows() -> Iterator[Row]:
    """The rows; they take about a minute and a half."""
    yield _imports()
    yield from _memory()


def _imports() -> Row:
    def milliseconds(code: str) -> Callable[[], float]:
        def run() -> float:
            command = [sys.executable, "-c", _TIMED.format(code)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment())
            return float(done.stdout) * 1000

        run()  # the first of all reads files that the others find in memory
        return run

    ours, theirs = alternating(milliseconds(_EMITTER), milliseconds(_LIBRARIES), _IMPORTS)
    return Row(
        "importing the emitter",
        _LIBRARIES,
        [mine - other for mine, other in zip(ours, theirs, strict=True)],
        "ms more",
        AT_MOST,
        30,
        f"{sorted(ours)[len(ours) // 2]:.1f} ms",
        f"{sorted(theirs)[len(theirs) // 2]:.1f} ms",
    )


def _memory() -> Iterator[Row]:
    """Of ranks that make recordings of whole loads, one of them ten million events of it."""
    before, *later = _rank(_EVENTS, _LOOKS)
    short = [_rank(_EVENTS // 50, 1) for _ in range(_SHORT)]
    yield Row(
        "memory of a rank that emits",
        f"its own after {_LIBRARIES}",
        [later[-1] - before, *(last - first for first, last in short)],
        "MB more",
        AT_MOST,
        3,
        f"{later[-1]:.1f} MB",
        f"{before:.1f} MB",
    )
    yield Row(
        f"the same over {_EVENTS:,} events",
        "after the first tenth of them",
        [each - later[0] for each in later[1:]],
        "MB more",
        AT_MOST,
        0.1,
        f"{later[-1]:.2f} MB",
        f"{later[0]:.2f} MB",
    )


def _rank(events: int, looks: int) -> list[float]:
    """Megabytes of a rank at its beginning and at some looks; its log is removed meanwhile."""
    with folder() as place:
        done = threading.Event()
        remover = threading.Thread(target=_remove_finished, args=(place, done))
        remover.start()
        try:
            ran = subprocess.run(
                [sys.executable, HERE / "process_run.py", str(events), str(looks)],
                check=True,
                stdout=subprocess.PIPE,
                env=environment(
                    MX_METRICS_ENABLED="1",
                    MX_METRICS_DIR=str(place),
                    MX_METRICS_MAX_BYTES=str(1 << 40),
                    MX_METRICS_SEGMENT_BYTES=str(1 << 20),
                ),
            )
        finally:
            done.set()
            remover.join()
    return [each / 1e6 for each in json.loads(ran.stdout)]


def _remove_finished(place: Path, done: threading.Event) -> None:
    """All but the newest segments: ten million events are gigabytes."""
    while not done.wait(0.05):
        found = sorted(place.glob("events-*"), key=lambda path: int(path.stem.rpartition("-")[2]))
        for path in found[:-2]:
            os.unlink(path)
