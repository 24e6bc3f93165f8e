"""The exporter when nothing happens, and when little does.

Eight ranks made a load each and are gone: what the exporter keeps in memory and how much it runs,
beside mtail, which follows the same directory with a program of the same families. Both are
scraped before, and left alone while they are measured. Then how long it takes to be ready, and
how soon a single event is folded.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks import making, mtail
from tests.benchmarks.measuring import AT_MOST, Row
from tests.benchmarks.scraping_parts import (
    HERE,
    Server,
    environment,
    exporter,
    folder,
    lives,
    serving,
    until,
)

#: Windows in which both idle, and the seconds of each.
WINDOWS, WINDOW_SECONDS = 3, 6.0

#: Scrapes that come before.
SCRAPES = 20

#: Segments that are there at the start, in bytes, and how often it is started.
START_BYTES, STARTS = 32 * 1024 * 1024, 7

#: Events that are noticed in each round, one now and then, and rounds.
EVENTS, ROUNDS = 50, 3


def rows() -> Iterator[Row]:
    """The rows; they take about a minute."""
    with folder() as place:
        yield from _idle(place)
    with folder() as place:
        yield _start(place)
    yield _noticed()


def _idle(place: Path) -> Iterator[Row]:
    log, twin, own_logs = place / "log", place / "twin", place / "mtail"
    lives("ours", 8, log)
    twin.mkdir()
    own_logs.mkdir()
    # mtail reads nothing but what is appended to a file that it has found.
    for segment in log.iterdir():
        (twin / segment.name).touch()
    command = [
        mtail.binary(),
        "-address=127.0.0.1",
        f"-progs={mtail.PROGRAM}",
        f"-log_dir={own_logs}",
        f"-logs={twin}/events-*.jsonl",
    ]
    with contextlib.ExitStack() as running:
        theirs = running.enter_context(serving(lambda port: [*command, f"-port={port}"]))
        ours = running.enter_context(serving(exporter(log), "/readyz"))
        time.sleep(1)
        for segment in twin.iterdir():
            with open(segment, "ab") as file:
                file.write((log / segment.name).read_bytes())
        until(lambda: _same(ours, theirs))
        time.sleep(1)
        memory = [_megabytes(server) for server in (ours, theirs)]
        busy: list[tuple[float, float]] = []
        for _ in range(WINDOWS):
            before = (_cpu(ours), _cpu(theirs))
            began = time.perf_counter()
            time.sleep(WINDOW_SECONDS)
            share = 100 / (time.perf_counter() - began)
            after = (_cpu(ours), _cpu(theirs))
            busy.append(((after[0] - before[0]) * share, (after[1] - before[1]) * share))
    taken = [memory[0]]
    while len(taken) < STARTS:
        with serving(exporter(log), "/readyz") as again:
            taken.append(_megabytes(again))
    what = "idle exporter, eight finished ranks"
    mine, others = map(statistics.median, zip(*busy, strict=True))
    yield Row(
        f"{what}: resident memory",
        "mtail serving the same",
        taken,
        "MB",
        AT_MOST,
        40,
        f"{statistics.median(taken):.1f} MB",
        f"{memory[1]:.1f} MB",
    )
    yield Row(
        f"{what}: CPU, of a core",
        "mtail serving the same",
        [each for each, _ in busy],
        "%",
        AT_MOST,
        0.2,
        f"{mine:.3f} %",
        f"{others:.3f} %",
    )


def _start(place: Path) -> Row:
    made = place / "made"
    made.mkdir()
    making.make(made, START_BYTES)
    taken = []
    for at in range(STARTS):
        # Afresh each time, since the exporter compacts what it finds.
        log = place / str(at)
        shutil.copytree(made, log)
        began = time.perf_counter()
        with serving(exporter(log), "/readyz"):
            taken.append(time.perf_counter() - began)
        shutil.rmtree(log)
    return Row(
        "start to ready, 32 MiB of segments",
        "the clock: from exec to the first 200 of /readyz",
        taken,
        "s",
        AT_MOST,
        1.0,
        f"{statistics.median(taken):.2f} s",
    )


def _noticed() -> Row:
    worst, usual = [], []
    for _ in range(ROUNDS):
        with folder() as log:
            said = subprocess.run(
                [sys.executable, HERE / "idling_noticing.py", log, str(EVENTS)],
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment(MX_METRICS_ENABLED="1", MX_METRICS_DIR=str(log)),
            ).stdout
        figures = json.loads(said)
        worst.append(statistics.quantiles(figures, n=100, method="inclusive")[98])
        usual.append(statistics.median(figures))
    return Row(
        "event written to event folded, while idle: 99th percentile",
        "the clock: the exporter without its endpoint, in one process with the writer",
        worst,
        "ms",
        AT_MOST,
        20,
        f"median {statistics.median(usual):.1f} ms",
    )


def _same(ours: Server, theirs: Server) -> bool:
    """Whether both serve the same by now."""
    try:
        mtail.must_agree(
            *(
                {k: v for k, v in mtail.samples(server.get()).items() if _is_derived(k[0])}
                for server in (ours, theirs)
            )
        )
    except AssertionError:
        return False
    return True


def _is_derived(name: str) -> bool:
    return name.startswith("mx_") and not name.startswith("mx_exporter_")


def _megabytes(server: Server) -> float:
    """Resident memory after some scrapes, in 10^6 bytes."""
    for _ in range(SCRAPES):
        server.get()
    return server.megabytes()


def _cpu(server: Server) -> float:
    """CPU seconds of all threads so far. The ticks of /proc/<pid>/stat are too coarse for this."""
    total = 0
    tasks = Path(f"/proc/{server.process.pid}/task")
    for task in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9
