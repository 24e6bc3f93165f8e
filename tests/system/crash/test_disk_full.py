"""A disk that fills up for real, under ranks that log and an exporter that compacts."""

from __future__ import annotations

import signal
import struct
from pathlib import Path

import pytest

from tests import support
from tests.support import compacting, serving
from tests.support.pages import Samples, only_grows, parse, replayed, total

#: Records until it is told to stop; notes, outside of the disk, how many events it recorded and
#: how many of them it has dropped and not yet reported.
RANK = """
import mmap, os, struct, sys, time
from mx_emitter import metrics
from mx_emitter.log.sink import sink
directory, policy = sys.argv[1:]
with open(f"{directory}/{policy}", "r+b") as file:
    noted = mmap.mmap(file.fileno(), 0)
recorded = 0
while not os.path.exists(f"{directory}/stop"):
    metrics.record_attempt(policy, "success")
    recorded += 1
    noted[:16] = struct.pack("<2Q", recorded, sum(sink.stream._dropped.values()))
    time.sleep(0.001)
"""

#: The disk of 256 KiB holds the limit, a segment more of each rank, and a new snapshot.
BOUNDS = {
    "MX_METRICS_SEGMENT_BYTES": "16000",
    "MX_METRICS_RETAIN_BYTES": "40000",
    "MX_METRICS_MAX_BYTES": "131072",
}


class Rank:
    def __init__(
        self,
        spawn: support.Spawner,
        log: Path,
        notes: Path,
        policy: str,
        bounds: dict[str, str] = BOUNDS,
    ) -> None:
        self._notes = notes / policy
        self._notes.write_bytes(bytes(16))
        env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log), **bounds}
        self.process = spawn.python("-c", RANK, notes, policy, env=env)
        self.policy = policy

    def _read(self, at: int) -> int:
        return int(struct.unpack("<2Q", self._notes.read_bytes())[at])

    @property
    def recorded(self) -> int:
        """Events that it recorded."""
        return self._read(0)

    @property
    def pending(self) -> int:
        """Those that it dropped and did not report yet."""
        return self._read(1)

    def shown(self, samples: Samples) -> float:
        return total(samples, "mx_p2p_source_attempts_total", policy=self.policy)


def start(spawn: support.Spawner, log: Path) -> serving.Exporter:
    return compacting.start(spawn, log, env=BOUNDS)


@pytest.mark.long
def test_ranks_and_exporter_outlive_a_full_disk(
    spawn: support.Spawner, small_disk: Path, tmp_path: Path
) -> None:
    log, ballast, notes = small_disk / "log", small_disk / "ballast", tmp_path / "notes"
    notes.mkdir()
    exporter = start(spawn, log)
    ranks = [Rank(spawn, log, notes, f"policy-{n}") for n in range(2)]
    compacting.wait_for_compaction(exporter)

    # More than it retains is finished, so that it has something to compact when it goes on.
    exporter.process.send_signal(signal.SIGSTOP)
    support.wait_until(lambda: compacting.directory_size(log) > 80_000)
    support.take_all_room(ballast)
    exporter.process.send_signal(signal.SIGCONT)
    support.wait_until(lambda: all(rank.pending > 500 for rank in ranks), limit=60)
    full = parse(exporter.get().text)
    assert total(full, "mx_exporter_retention_trouble") == 1
    assert exporter.log.count("No space left on device") == 1
    status = exporter.get("/status").text
    assert "cannot be compacted" in status
    assert "No space left on device" in status
    # What it began to write does not take up the little room that others may leave.
    assert not (log / ".mx-metrics.snapshot").exists()

    # A restart in the middle of this changes nothing.
    compacting.stop(exporter, signal.SIGKILL)
    exporter = start(spawn, log)
    again = parse(exporter.get().text)
    assert total(again, "mx_exporter_owner_state", state="owner") == 1
    grows = {key: value for key, value in full.items() if only_grows(key[0])}
    assert {key: again.get(key) for key in grows} == grows

    # And with room all goes on: the ranks report what they dropped, the exporter compacts.
    ballast.unlink()
    compacting.wait_for_compaction(exporter)
    support.wait_until(lambda: exporter.get().sample("mx_exporter_retention_trouble") == 0)
    support.wait_until(lambda: all(rank.pending == 0 for rank in ranks))
    (notes / "stop").touch()
    for rank in ranks:
        assert rank.process.result() == 0
        said = rank.process.error_output.splitlines()
        assert [line for line in said if "the file system is full" in line]
        assert len(said) <= 2  # once a reason: perhaps the limit as well
    last = parse(exporter.get().text)
    dropped = total(last, "mx_emitter_events_dropped_total")
    assert total(last, "mx_emitter_events_dropped_total", reason="no_space") > 1000
    shown = sum(rank.shown(last) for rank in ranks)
    told = dropped + sum(rank.pending for rank in ranks)
    assert shown + told == sum(rank.recorded for rank in ranks)
    assert total(last, "mx_exporter_events_lost") == 0
    assert total(last, "mx_exporter_duplicates_total") == 0
    assert exporter.derived() == replayed(spawn, log)


@pytest.mark.long
def test_a_limit_that_is_larger_than_the_volume(
    spawn: support.Spawner, small_disk: Path, tmp_path: Path
) -> None:
    """All keep to half of the volume, so that there is room for what makes room."""
    log, notes = small_disk / "log", tmp_path / "notes"
    notes.mkdir()
    retained = {"MX_METRICS_RETAIN_BYTES": str(16 << 20)}  # the default
    exporter = compacting.start(spawn, log, env=retained)
    ranks = [Rank(spawn, log, notes, f"policy-{n}", bounds={}) for n in range(2)]
    support.wait_until(lambda: exporter.get().sample("mx_exporter_compactions_total") > 5)
    (notes / "stop").touch()
    for rank in ranks:
        assert rank.process.result() == 0
    answer = exporter.get()
    assert answer.sample("mx_exporter_directory_limit_bytes") == 128 * 1024
    assert answer.sample("mx_exporter_retention_trouble") == 0
    assert exporter.log.count("the volume of") == 1
    assert "131072 at most" in exporter.get("/status").text
    last = parse(answer.text)
    assert total(last, "mx_emitter_events_dropped_total", reason="no_space") == 0
    dropped = total(last, "mx_emitter_events_dropped_total")
    told = dropped + sum(rank.pending for rank in ranks)
    assert sum(rank.shown(last) for rank in ranks) + told == sum(rank.recorded for rank in ranks)
    assert exporter.derived() == replayed(spawn, log)


#: Counts until it dies, and says how far it came.
OTHERS = """
import sys
from prometheus_client import Counter
counter = Counter("loads", "Loads.", ["policy"])
for n in range(1_000_000):
    counter.labels(f"policy-{n}").inc()
    print(n, file=sys.stderr, flush=True)
"""


def test_what_a_full_disk_does_to_files_that_are_mapped(
    spawn: support.Spawner, small_disk: Path
) -> None:
    """The multiprocess mode of prometheus_client, which the client's own metrics use, kills the
    engine where there is no room: a write to memory has no other way to fail."""
    process = spawn.python("-c", OTHERS, env={"PROMETHEUS_MULTIPROC_DIR": str(small_disk)})
    assert process.result() == -signal.SIGBUS
    assert process.error_output.count("\n") > 100
    # Where it dies, a rank goes on.
    rank = spawn.python(
        "-c",
        'from mx_emitter import metrics\nfor _ in range(100): metrics.record_attempt("r", "s")',
        env={"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(small_disk / "log")},
    )
    assert rank.result() == 0
    assert "No space left on device" in rank.error_output
