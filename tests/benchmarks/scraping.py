"""A scrape, by how many processes ever lived: ours, and the client's multiprocess mode.

The page is asked for over HTTP, a connection a scrape, of a server that is a process of its own,
on a directory where 8, 64 or 512 processes each lived and made one load. Nothing changes there
meanwhile. Both pages say the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from pathlib import Path

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_log.files import SNAPSHOT_NAME
from tests.benchmarks.measuring import AT_MOST, Row, alternating, ratios
from tests.benchmarks.scraping_parts import (
    HERE,
    Server,
    exporter,
    folder,
    lives,
    samples,
    serving,
    until,
)
from tests.support import Lines

#: Lifetimes: what a scrape may take of the client's, rounds, and the client's scrapes in each.
SIZES = {8: (0.5, 15, 20), 64: (0.1, 11, 4), 512: (0.015, 7, 1)}

#: Our scrapes in each round.
SCRAPES = 50

#: Processes of a crash loop, and of a short one.
KILLED, FEW = 10_000, 8

#: Histogram series of a very large page, and changes before each of which it is scraped.
HISTOGRAMS, CHANGES = 10_000, 15

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def rows() -> Iterator[Row]:
    """The rows of a scrape."""
    with folder() as place, contextlib.ExitStack() as running:
        with ThreadPoolExecutor(2) as both:
            for made in [
                both.submit(lives, side, count, place / f"{side}-{count}")
                for count in sorted(SIZES, reverse=True)
                for side in ("client", "ours")
            ]:
                made.result()
        ours = {}
        for count in SIZES:
            ours[count] = running.enter_context(serving(exporter(place / f"ours-{count}")))
        for count, (target, rounds, scrapes) in SIZES.items():
            with serving(_client(place / f"client-{count}")) as theirs:
                _agree(ours[count], theirs)
                mine, others = alternating(
                    partial(ours[count].seconds, SCRAPES),
                    partial(theirs.seconds, scrapes),
                    rounds,
                )
            yield Row(
                f"a scrape, {count} lifetimes",
                "the client's MultiProcessCollector",
                ratios(mine, others),
                "x",
                AT_MOST,
                target,
                _took(mine),
                _took(others),
            )
        yield _flat(ours[max(SIZES)], ours[min(SIZES)])
    with folder() as place:
        yield from _after_a_change(place)
    with folder() as place:
        yield _crash_loop(place)


def _after_a_change(place: Path) -> Iterator[Row]:
    """A scrape right after one series changed, where there are very many. Each policy has a
    histogram; beside it, nine counters."""
    log = Lines()
    with open(place / f"events-{log.proc}-0.jsonl", "ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(log.header())
        for n in range(HISTOGRAMS):
            file.write(log("sources_ordered", policy=f"policy-{n}", seconds=n / 1000, load_id="l"))
        for name, accept in (("classic", "text/plain"), ("OpenMetrics", OPENMETRICS)):
            with serving(exporter(place), "/readyz") as server:
                before = server.megabytes()
                cold = _seconds(server, accept)
                taken = []
                for _ in range(CHANGES):
                    file.write(log("sources_ordered", policy="policy-7", seconds=1, load_id="l"))
                    taken.append(_seconds(server, accept))
                memory = server.megabytes()
            yield Row(
                f"a scrape of {HISTOGRAMS:,} histogram series after a change, {name}",
                "the clock",
                taken,
                "s",
                AT_MOST,
                0.5,
                f"the first {cold:.1f} s; {before:.0f} MB before it, {memory:.0f} after",
            )


def _seconds(server: Server, accept: str) -> float:
    began = time.perf_counter()
    server.get(Accept=accept)
    return time.perf_counter() - began


def _flat(many: Server, few: Server) -> Row:
    """How a scrape grows with lifetimes: a minute after the last one, when the exporter has put
    most finished segments into a snapshot. Before that, each costs 0.4 us of the listing."""
    before = _took([many.seconds(10 * SCRAPES)])
    finished = _finished(many)
    until(lambda: _finished(many) < finished, limit=120, pause=0.5)
    mine, others = alternating(partial(many.seconds, SCRAPES), partial(few.seconds, SCRAPES), 61)
    return Row(
        f"a scrape, {max(SIZES)} lifetimes",
        f"our own, {min(SIZES)} lifetimes",
        ratios(mine, others),
        "x",
        AT_MOST,
        1.2,
        f"{_took(mine)}; with all {finished} segments, in the first minute, {before}",
        _took(others),
    )


def _crash_loop(place: Path) -> Row:
    """How a scrape grows with processes that were killed in a load one after the other, of which
    nothing but the snapshot is left. One that lives logs an event before each scrape."""
    with contextlib.ExitStack() as running:
        sides = []
        for count in (KILLED, FEW):
            directory, log = place / f"{count}", Lines("f" * 12)
            directory.mkdir()
            _kill(count, directory)
            path = directory / f"events-{log.proc}-0.jsonl"
            file = running.enter_context(open(path, "ab", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(log.header())
            server = running.enter_context(serving(exporter(directory)))
            assert _gauge(server, 'mx_exporter_writers{state="gone"}') == count
            sides.append(partial(_changing, server, file, log))
        mine, others = alternating(*sides, 61)
        kept = (place / f"{KILLED}" / SNAPSHOT_NAME).stat().st_size
    return Row(
        f"a scrape after a change, after {KILLED:,} processes that crashed",
        f"our own, after {FEW}",
        ratios(mine, others),
        "x",
        AT_MOST,
        1.2,
        f"{_took(mine)}; the snapshot has {kept / 1e6:.2f} MB",
        _took(others),
    )


def _kill(count: int, directory: Path) -> None:
    """So many processes live one after the other, and each is killed in its load, while an exporter
    compacts."""
    live, compactor = Follower(str(directory), Fold(CATALOG)), Compactor(1, 10**9, min_age=0)
    for n in range(count):
        log, load = Lines(f"{n:012x}"), {"engine": "vllm", "model": "m", "load_id": f"{n:032x}"}
        started = ("load_started", {**load, "model_role": "main"})
        log.segment(directory, 0, [started, ("load_phase_started", {**load, "phase": "chain"})])
        if n % 500 == 0 or n == count - 1:
            live.drain()
            compactor.compact(live)
    assert not compactor.trouble


def _changing(server: Server, file: FileIO, log: Lines) -> float:
    """What a scrape takes after an event, the median of so many."""
    taken = []
    for _ in range(SCRAPES):
        file.write(log("nixl_received", result="complete"))
        taken.append(_seconds(server, "text/plain"))
    return statistics.median(taken)


def _finished(server: Server) -> int:
    return _gauge(server, 'mx_exporter_segments{state="finished"}')


def _gauge(server: Server, name: str) -> int:
    found = re.search(rf"^{re.escape(name)} (\d+)".encode(), server.get(), re.MULTILINE)
    assert found, f"the page has no {name}"
    return int(found[1])


def _client(directory: Path) -> Callable[[int], list[str]]:
    return lambda port: [
        sys.executable,
        str(HERE / "scraping_client.py"),
        str(directory),
        str(port),
    ]


def _took(seconds: list[float]) -> str:
    return f"{sorted(seconds)[len(seconds) // 2] * 1e3:.2f} ms"


def _agree(ours: Server, theirs: Server) -> None:
    """All that the client's page says, ours says too: what is compared is the same work.

    Raises AssertionError.
    """
    mine, expected = samples(ours.get()), samples(theirs.get())
    assert expected, "the client's page is empty"
    for name, value in expected.items():
        assert name in mine, f"{name} is not on our page"
        assert abs(mine[name] - value) <= 1e-9 * abs(value), (name, mine[name], value)
