"""Real ranks and a real exporter that are killed at random moments, and what must hold all along.

Each rank notes in a file of its own, outside of the log, what it has acknowledged: a number that
it counts up after a recorder returned and the count of drops did not move. The event that was in
hand when a rank was killed may be in the log or not, so the page may be ahead of the notes by one
for each life of a rank; it may never be behind.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import shutil
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests import support
from tests.support import serving
from tests.support.pages import Samples, derived, only_grows, parse, total

#: Bounds that make segments finish, and be compacted, many times a second.
RANK_ENVIRONMENT = {
    "MX_METRICS_ENABLED": "1",
    "MX_METRICS_SEGMENT_BYTES": "20000",
    "MX_METRICS_MAX_BYTES": str(1 << 30),
}
EXPORTER_ENVIRONMENT = {
    "MX_METRICS_RETAIN_BYTES": "60000",
    "MX_METRICS_MAX_BYTES": str(1 << 30),
}

RANK = """
import mmap, struct, sys, time
from mx_emitter import enable_metrics, metrics
from mx_emitter.log.sink import sink

notes, slot, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with open(notes, "r+b") as file:
    noted = mmap.mmap(file.fileno(), 0)
counts = list(struct.unpack("<4Q", noted[:]))

def acknowledge(kind):
    if sink.stream is None or sink.stream._noted: kind = 3
    counts[kind] += 1
    noted[8 * kind : 8 * kind + 8] = struct.pack("<Q", counts[kind])

policy = f"slot-{slot}"
enable_metrics(rank=slot)
load = metrics.time_load("crash", "m", "main")
load.__enter__()
acknowledge(2)
due = time.monotonic()
while True:
    metrics.record_attempt(policy, "success")
    acknowledge(0)
    if counts[0] % 8 == 0:
        metrics.observe_transfer_seconds(policy, "success", counts[0] / 7)
        acknowledge(1)
    # No catching up where the machine was too busy.
    due = max(due + 1 / rate, time.monotonic())
    time.sleep(max(0, due - time.monotonic()))
"""


class Notes(NamedTuple):
    """What a slot's ranks have acknowledged, all its lives together."""

    attempts: int
    transfers: int
    loads: int
    dropped: int


class Rank:
    """A slot: one rank after the other, each killed."""

    def __init__(self, directory: Path, notes: Path, slot: int, rate: float) -> None:
        self._directory = directory
        self._notes = notes / f"slot-{slot}"
        self._notes.write_bytes(bytes(32))
        self._slot = slot
        self._rate = rate
        self._process: support.Process | None = None
        #: Ranks that were started.
        self.lives = 0

    def start(self) -> None:
        self.lives += 1
        self._process = support.Process(
            [*_PYTHON, "-c", RANK, str(self._notes), str(self._slot), str(self._rate)],
            self._notes.parent / f"rank-{self._slot}-{self.lives}",
            support.clean_environment(**RANK_ENVIRONMENT, MX_METRICS_DIR=str(self._directory)),
        )

    def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            kill(process)
            assert not process.error_output, process.error_output
            shutil.rmtree(self._notes.parent / f"rank-{self._slot}-{self.lives}")

    def read(self) -> Notes:
        return Notes(*struct.unpack("<4Q", self._notes.read_bytes()))


_PYTHON = (sys.executable, "-W", "error")


def kill(process: support.Process) -> None:
    """Kill what must still run."""
    assert process.poll() is None, f"it ended by itself: {process.error_output}"
    process.end()


class Exporter:
    """One exporter after the other, on one port, with the options and the environment given."""

    def __init__(
        self,
        directory: Path,
        logs: Path,
        *options: str,
        env: Mapping[str, str] = EXPORTER_ENVIRONMENT,
    ) -> None:
        self.directory = directory
        self._logs = logs
        self._options = options
        self._env = env
        self._port = support.free_port()
        self._process: support.Process | None = None
        self.lives = 0

    def start(self) -> None:
        self.lives += 1
        self._process = support.Process(
            [
                *(*_PYTHON, "-m", "mx_exporter", "serve", "--dir", str(self.directory)),
                *("--listen", f"127.0.0.1:{self._port}"),
                *self._options,
            ],
            self._logs / f"exporter-{self.lives}",
            support.clean_environment(**self._env),
        )

    def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            kill(process)
            said = process.error_output
            assert " ERROR " not in said, said
            assert "Traceback" not in said, said
            shutil.rmtree(self._logs / f"exporter-{self.lives}")

    def page(self) -> str | None:
        """What it serves; None while there is none that answers."""
        if self._process is None:
            return None
        whom = serving.Exporter(self._process, "127.0.0.1", self._port)
        try:
            # Time enough, so that it never serves less than all.
            answer = whom.get(X_Prometheus_Scrape_Timeout_Seconds="300")
        except (OSError, http.client.HTTPException):
            return None
        assert answer.status in (200, 503), answer.text
        return answer.text if answer.status == 200 else None

    def derived(self) -> bytes:
        """The families of its page that are derived from the log; it has to answer."""
        page = self.page()
        assert page is not None, self.process.error_output
        return derived(page.encode())

    @property
    def process(self) -> support.Process:
        assert self._process is not None
        return self._process


class Crashes:
    """Ranks and exporter, killed for a while, scraped all along.

    :param rate: events a second of each rank.
    :param rank_life: mean seconds from the start of a rank to its end.
    :param exporter_life: the same of the exporter.
    """

    def __init__(
        self,
        where: Path,
        *,
        seed: int,
        ranks: int = 4,
        rate: float = 500,
        rank_life: float = 1.5,
        exporter_life: float = 1.5,
        scrape_pause: float = 0.1,
    ) -> None:
        self.directory = where / "log"
        notes, logs = where / "notes", where / "logs"
        for made in (self.directory, notes, logs):
            made.mkdir()
        self._random = random.Random(seed)
        self._rank_life = rank_life
        self._exporter_life = exporter_life
        self._scrape_pause = scrape_pause
        self.ranks = [Rank(self.directory, notes, slot, rate) for slot in range(ranks)]
        self.exporter = Exporter(self.directory, logs, "--retain-seconds", "0.5")
        self.scrapes = 0
        self._last: Samples = {}
        self._began = time.monotonic()

    def run(self, seconds: float) -> None:
        """Kill and scrape for so long. At the end the exporter lives, and no rank does."""
        self._began = time.monotonic()
        stop = threading.Event()
        faults: list[BaseException] = []

        def scrape() -> None:
            try:
                while not stop.wait(self._scrape_pause):
                    self.scrape()
            except BaseException as error:  # noqa: BLE001 - raised again by the main thread
                faults.append(error)

        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            self._kill_all_along(seconds, until=lambda: bool(faults))
        finally:
            stop.set()
            scraper.join()
        if faults:
            raise faults[0]

    def end(self) -> None:
        """End all, also where one of them was not as it should be."""
        with contextlib.ExitStack() as ending:
            for who in (self.exporter, *self.ranks):
                ending.callback(who.kill)

    def _kill_all_along(self, seconds: float, until: Callable[[], bool]) -> None:
        start = time.monotonic()
        for rank in self.ranks:
            rank.start()
        self.exporter.start()
        due = {rank: start + self._life(self._rank_life) for rank in self.ranks}
        exporter_due = start + self._life(self._exporter_life)
        while not until() and (now := time.monotonic()) < start + seconds:
            for rank, at in due.items():
                if now >= at:
                    rank.kill()
                    rank.start()
                    due[rank] = time.monotonic() + self._life(self._rank_life)
            if now >= exporter_due:
                if self._random.random() < 0.5:
                    self._await_compaction()
                self.exporter.kill()
                self.exporter.start()
                exporter_due = time.monotonic() + self._life(self._exporter_life)
            time.sleep(0.005)
        for rank in self.ranks:
            rank.kill()

    def _life(self, mean: float) -> float:
        return min(self._random.expovariate(1 / mean), 4 * mean)

    def _await_compaction(self) -> None:
        """Until a snapshot is being written, or until it was put in place and the segments that it
        stands for are about to go."""
        making = self.directory / ".mx-metrics.snapshot"
        deadline = time.monotonic() + 0.5
        _spin(making.exists, deadline)
        if self._random.random() < 0.5:
            _spin(lambda: not making.exists(), deadline)

    def scrape(self) -> Samples | None:
        """Scrape once, and compare with the notes and the last page; None: nobody answered."""
        before = [rank.read() for rank in self.ranks]
        began = time.monotonic()
        page = self.exporter.page()
        if page is None:
            return None
        after = [rank.read() for rank in self.ranks]
        lives = [rank.lives for rank in self.ranks]
        samples = parse(page)
        for key, value in self._last.items():
            if only_grows(key[0]):
                assert samples.get(key, -1) >= value, f"{key} fell from {value}"
        for slot, (least, most) in enumerate(zip(before, after, strict=True)):
            _compare(samples, slot, least, most, lives[slot])
        loads = total(samples, "mx_loads_in_progress") + total(samples, "mx_loads_abandoned_total")
        assert sum(note.loads for note in before) <= loads <= sum(lives)
        for name in ("events_lost", "duplicates_total"):
            found = total(samples, f"mx_exporter_{name}")
            assert found == 0, f"{name}: {found}, {began - self._began:.1f} s after the start"
        self._last = samples
        self.scrapes += 1
        return samples


def _spin(condition: Callable[[], bool], deadline: float) -> None:
    """Wait for what lasts a millisecond; it may well not come."""
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.0001)


def _compare(samples: Samples, slot: int, least: Notes, most: Notes, in_hand: int) -> None:
    """The page has what a slot's ranks had acknowledged when the scrape began, and not more than
    what they had when it ended and one event a life."""
    policy = f"slot-{slot}"
    attempts = total(samples, "mx_p2p_source_attempts_total", policy=policy, result="success")
    transfers = total(samples, "mx_p2p_transfer_seconds_count", policy=policy)
    assert least.dropped == most.dropped == 0
    assert least.attempts <= attempts, f"slot {slot}: {least.attempts - attempts} attempts short"
    assert least.transfers <= transfers, f"slot {slot}: {least.transfers - transfers} short"
    surplus = attempts + transfers - most.attempts - most.transfers
    assert surplus <= in_hand, f"slot {slot}: {surplus} events too many in {in_hand} lives"
