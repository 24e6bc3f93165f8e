"""Eight ranks that log for a long time, an exporter that lives all the while, and how they are."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tests import support
from tests.support.crashing import Exporter, kill
from tests.support.pages import Samples, only_grows, parse, total
from tests.support.programs import soak_rank
from tests.support.programs.soak_rank import EVENTS, EVENTS_PER_LOAD

RANKS = 8

#: Events a second of all ranks together.
RATE = 2000.0

#: Small enough that segments finish, and are compacted, every second.
RANK_ENVIRONMENT = {
    "MX_METRICS_ENABLED": "1",
    "MX_METRICS_SEGMENT_BYTES": "200000",
    "MX_METRICS_MAX_BYTES": str(1 << 30),
}
EXPORTER_ENVIRONMENT = {
    "MX_METRICS_RETAIN_BYTES": "2000000",
    "MX_METRICS_MAX_BYTES": str(1 << 30),
}

#: The sample that shows how often an event was logged; of others their count shows it.
SHOWN = {
    "sources_listed": "mx_p2p_list_sources_total",
    "candidates_counted": "mx_p2p_candidates_count",
    "sources_ordered": "mx_p2p_source_selection_seconds_count",
    "source_selected": "mx_p2p_source_selections_total",
    "nixl_received": "mx_nixl_receive_total",
    "transfer_finished": "mx_p2p_transfer_seconds_count",
    "source_attempted": "mx_p2p_source_attempts_total",
    "load_finished": "mx_load_seconds_count",
    "load_phase_finished": "mx_load_phase_seconds_count",
    "source_attempt_phase_finished": "mx_p2p_source_attempt_phase_seconds_count",
}


def shown(samples: Samples, event: str) -> float:
    if event in SHOWN:
        return total(samples, SHOWN[event])
    return total(samples, "mx_exporter_events_folded_total", event=event)


class Vitals(NamedTuple):
    """How it is: bytes, counts, seconds. Of the ranks, the mean of those that live long."""

    scrape_seconds: float
    exporter_resident: float
    exporter_descriptors: float
    rank_resident: float
    rank_descriptors: float


class Tolerated(NamedTuple):
    """By how much the last quarter may exceed the first one: a share, and a bit."""

    share: float
    more: float
    #: What stands for a quarter. Of what a compaction or another process raises for a while, it is
    #: the least: a leak raises that as well.
    typical: Callable[[Iterable[float]], float]


#: In an hour a leak of one byte an event would be 5 MB of the exporter, and 0.7 of a rank.
TOLERATED = {
    "scrape_seconds": Tolerated(0.5, 0.01, min),
    "exporter_resident": Tolerated(0.0, 3 << 20, statistics.median),
    "exporter_descriptors": Tolerated(0.0, 0, min),
    "rank_resident": Tolerated(0.0, 256 << 10, statistics.median),
    "rank_descriptors": Tolerated(0.0, 0, statistics.median),
}


def _resident(process: support.Process) -> int:
    assert process.poll() is None, f"it ended by itself: {process.error_output}"
    with open(f"/proc/{process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


def _descriptors(process: support.Process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def cpu_seconds(process: support.Process) -> float:
    with open(f"/proc/{process.pid}/stat") as stat:
        # The name, in brackets, may hold anything.
        ticks = stat.read().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


class Rank:
    """A slot: one rank after the other, all together at the pace that they began with."""

    def __init__(self, directory: Path, home: Path, slot: int) -> None:
        self._directory = directory
        self._notes = home / f"notes-{slot}"
        self._notes.write_bytes(bytes(8 * len(EVENTS)))
        self._slot = slot
        self._logs = home
        self.process: support.Process | None = None
        #: Ranks that were started.
        self.lives = 0

    def start(self, began: float) -> None:
        """:param began: monotonic time of the slot's first load."""
        self.lives += 1
        pause = EVENTS_PER_LOAD * RANKS / RATE
        self.process = support.Process(
            [
                *(sys.executable, "-W", "error", soak_rank.__file__),
                *(self._notes, str(self._slot), repr(pause), repr(began)),
            ],
            self._logs / f"rank-{self._slot}-{self.lives}",
            support.clean_environment(
                **RANK_ENVIRONMENT,
                MX_METRICS_DIR=str(self._directory),
                PYTHONPATH=str(support.ROOT),
            ),
        )

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            kill(process)
            assert not process.error_output, process.error_output

    def acknowledged(self) -> list[int]:
        """Events that were logged by recorders that have returned, in the order of `EVENTS`."""
        return list(struct.unpack(f"<{len(EVENTS)}Q", self._notes.read_bytes()))


class Soak:
    """Half of the ranks live all the time; the others are killed now and then.

    :param where: a folder of its own; the log and its archive lie there.
    :param seconds: how long, in all.
    :param say: takes a line on how it goes, every minute.
    """

    def __init__(self, where: Path, seconds: float, say: Callable[[str], None]) -> None:
        self.directory, self.archive, home = where / "log", where / "archive", where / "home"
        for made in (self.directory, self.archive, home):
            made.mkdir()
        self.ranks = [Rank(self.directory, home, slot) for slot in range(RANKS)]
        options = ("--retain-seconds", "1", "--archive-dir", str(self.archive))
        self.exporter = Exporter(self.directory, home, *options, env=EXPORTER_ENVIRONMENT)
        self.vitals: list[Vitals] = []
        #: Seconds that it took, and what the exporter used of the CPU.
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._wanted = seconds
        self._say = say
        self._last: Samples = {}
        self._took = 0.0

    @property
    def acknowledged(self) -> int:
        return sum(sum(rank.acknowledged()) for rank in self.ranks)

    @property
    def lives(self) -> int:
        """Ranks that were started."""
        return sum(rank.lives for rank in self.ranks)

    def run(self) -> None:
        """At the end the exporter lives, and no rank does."""
        self.exporter.start()
        support.wait_until(self.exporter.page)
        began = time.monotonic()
        for rank in self.ranks:
            rank.start(began)
        # A slot after the other, each of them five times.
        mortal = self.ranks[RANKS // 2 :]
        to_kill = [(self._wanted * n / 21, mortal[n % 4]) for n in range(1, 21)]
        scrape_every = min(5.0, self._wanted / 80)
        said = 0.0
        while (now := time.monotonic() - began) < self._wanted:
            if to_kill and now >= to_kill[0][0]:
                rank = to_kill.pop(0)[1]
                rank.kill()
                rank.start(began)
            self.scrape()
            # What a process needs once, it has by then.
            if now > self._wanted / 20:
                self.vitals.append(self._look())
            if now >= said + 60 and self.vitals:
                said = now
                self._say(self._progress(now))
            time.sleep(max(0.0, now + scrape_every - (time.monotonic() - began)))
        self.cpu_seconds = cpu_seconds(self.exporter.process)
        for rank in self.ranks:
            rank.kill()
        self.seconds = time.monotonic() - began

    def end(self) -> None:
        """End all, and remove what takes room."""
        with contextlib.ExitStack() as ending:
            ending.callback(shutil.rmtree, self.archive)
            for who in (self.exporter, *self.ranks):
                ending.callback(who.kill)

    def scrape(self) -> Samples:
        """Scrape once, and compare with the notes and the last page."""
        before = [rank.acknowledged() for rank in self.ranks]
        began = time.monotonic()
        page = self.exporter.page()
        self._took = time.monotonic() - began
        assert page is not None, self.exporter.process.error_output
        samples = parse(page)
        for key, value in self._last.items():
            if only_grows(key[0]):
                assert samples.get(key, -1) >= value, f"{key} fell from {value}"
        after = [rank.acknowledged() for rank in self.ranks]
        for at, event in enumerate(EVENTS):
            least, most = (sum(notes[at] for notes in all_) for all_ in (before, after))
            count = shown(samples, event)
            # Whoever is killed may have an event in hand, and logged it or not.
            assert least <= count <= most + self.lives, f"{event}: {least}, {count}, {most}"
        for name in ("events_lost", "duplicates_total"):
            assert total(samples, f"mx_exporter_{name}") == 0, name
        self._last = samples
        return samples

    def _look(self) -> Vitals:
        exporter = self.exporter.process
        lasting = [rank.process for rank in self.ranks[: RANKS // 2] if rank.process]
        return Vitals(
            self._took,
            _resident(exporter),
            _descriptors(exporter),
            statistics.mean(map(_resident, lasting)),
            statistics.mean(map(_descriptors, lasting)),
        )

    def _progress(self, seconds: float) -> str:
        now, acknowledged = self.vitals[-1], self.acknowledged
        compactions = total(self._last, "mx_exporter_compactions_total")
        return (
            f"{seconds / 60:4.0f} min: {acknowledged} events, "
            f"{acknowledged / seconds:.0f}/s; {compactions:.0f} compactions; "
            f"exporter {now.exporter_resident / 1e6:.1f} MB, "
            f"{now.exporter_descriptors:.0f} descriptors; "
            f"a rank {now.rank_resident / 1e6:.1f} MB, {now.rank_descriptors:g} descriptors; "
            f"scrape {now.scrape_seconds * 1000:.1f} ms"
        )

    def quarters(self) -> dict[str, tuple[float, float]]:
        """What stands for the first quarter and for the last, of each of the vitals."""
        quarter = len(self.vitals) // 4
        return {
            name: (
                tolerated.typical(getattr(v, name) for v in self.vitals[:quarter]),
                tolerated.typical(getattr(v, name) for v in self.vitals[-quarter:]),
            )
            for name, tolerated in TOLERATED.items()
        }
