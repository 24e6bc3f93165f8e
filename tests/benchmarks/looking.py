"""The page of the exporter: how long it takes, and what it costs a scrape and a drain.

In the directory are 10,000 loads of 100 processes. A scrape is timed by itself and while somebody
asks for the page again and again, without a pause; and as often as a browser does that shows it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mx_demo.loads import USUAL
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.loads.recent import RecentLoads
from mx_exporter.pages.front import REFRESH_SECONDS
from tests.benchmarks.measuring import AT_MOST, Row, alternating, ratios, seconds
from tests.benchmarks.scraping_parts import Server, environment, folder, serving
from tests.support.simulated_loads import simulate

PROCESSES, LOADS = 100, 100

#: Scrapes of a round, and a pause between two.
SCRAPES, PAUSE = 100, 0.01

ROUNDS = 11

#: Asks for the page until it is ended: of a port, with a pause in seconds.
LOOKER = """
import http.client, sys, time
while True:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()
    time.sleep(float(sys.argv[2]))
"""


def rows() -> Iterator[Row]:
    """The rows of the page."""
    with folder() as place:
        _write(place)
        with serving(partial(_exporter, place), "/readyz") as server:
            pages = [seconds(partial(server.get, "/")) for _ in range(ROUNDS)]
            yield Row(
                f"the page, {PROCESSES * LOADS:,} loads in the directory",
                "the clock",
                pages[1:],
                "s",
                AT_MOST,
                0.3,
                f"the first {pages[0]:.2f} s",
            )
            for what, pause in (
                ("while the page is made all the time", 0.0),
                ("while a browser shows the page", REFRESH_SECONDS),
            ):
                beside, alone = alternating(
                    partial(_beside, server, pause), partial(_scrape, server), ROUNDS
                )
                yield Row(
                    f"a scrape {what}",
                    "a scrape",
                    ratios(beside, alone),
                    "x",
                    AT_MOST,
                    1.2,
                    _took(beside),
                    _took(alone),
                )
        lines = [path.read_bytes().splitlines() for path in place.iterdir()][:20]
        kept, bare = alternating(
            partial(_fold, lines, kept=True), partial(_fold, lines, kept=False), ROUNDS
        )
        yield Row(
            "folding with the latest loads kept, for the page",
            "folding",
            ratios(kept, bare),
            "x",
            AT_MOST,
            1.2,
            _took(kept),
            _took(bare),
        )


def _write(place: Path) -> None:
    scenarios = [one for one in USUAL if one != "alone"]
    for rank in range(PROCESSES):
        drawn = [scenarios[(rank + at) % len(scenarios)] for at in range(LOADS)]
        simulate(drawn, rank=rank % 8, pod=f"pod-{rank // 8}", seed=rank).write(place)


def _exporter(place: Path, port: int) -> list[str]:
    # So much is kept that nothing is compacted meanwhile.
    env = ["MX_METRICS_MAX_BYTES=1000000000", "MX_METRICS_RETAIN_BYTES=500000000"]
    serve = [sys.executable, "-m", "mx_exporter", "serve", "--dir", str(place)]
    return ["env", *env, *serve, "--listen", f"127.0.0.1:{port}"]


def _scrape(server: Server) -> float:
    taken = []
    for _ in range(SCRAPES):
        time.sleep(PAUSE)
        taken.append(server.seconds(1))
    return sorted(taken)[SCRAPES // 2]


def _beside(server: Server, pause: float) -> float:
    looking = subprocess.Popen(
        [sys.executable, "-c", LOOKER, str(server.port), str(pause)], env=environment()
    )
    try:
        time.sleep(0.5)  # it has asked by now
        return _scrape(server)
    finally:
        with contextlib.suppress(ProcessLookupError):
            looking.kill()
        looking.wait()


def _fold(lines: list[list[bytes]], *, kept: bool) -> float:
    fold = Fold(CATALOG, tap=RecentLoads().feed if kept else None)

    def run() -> None:
        for segment in lines:
            for start in range(0, len(segment), 1000):
                fold.feed_lines(segment[start : start + 1000])

    return seconds(run)


def _took(values: list[float]) -> str:
    return f"{1000 * sorted(values)[len(values) // 2]:.2f} ms"
