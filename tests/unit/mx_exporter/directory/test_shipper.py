"""The tee writes every event's line to standard output, whatever happens to the exporter."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_exporter.config import Directory, Settings
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.follower import Follower
from mx_exporter.directory.maintenance import Maintenance
from mx_exporter.directory.shipper import Shipper
from mx_log.files import SNAPSHOT_NAME
from mx_log.schema import MAX_LINE_BYTES
from tests import support
from tests.support import serving
from tests.support.compacting import all_done, fill, start, start_ranks, stop
from tests.support.log_lines import segments_in
from tests.support.pages import replayed
from tests.support.writers import Writer

PENDING = "mx_exporter_segments_pending"
TEED = "mx_exporter_lines_teed_total"


#: Four times as many take longer to tee than an exporter has to end.
ATTEMPTS = 30_000


def identities(output: bytes) -> list[tuple[str, int]]:
    records = [json.loads(line) for line in output.splitlines()]
    return [(record["proc"], record["seq"]) for record in records]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_teed_replays_to_the_page_over_restarts(
    spawn: support.Spawner, tmp_path: Path, how: signal.Signals
) -> None:
    log, out = tmp_path / "log", tmp_path / "out.log"
    ranks = start_ranks(spawn, log, 3, loops=400)

    def tee() -> serving.Exporter:
        with open(out, "ab") as stdout:
            return start(spawn, log, "--tee", stdout=stdout)

    for _ in range(4):
        before = out.stat().st_size if out.exists() else 0
        exporter = tee()
        support.wait_until(
            lambda before=before: out.stat().st_size > before + 10_000 or all_done(ranks)
        )
        stop(exporter, how)
    exporter = tee()
    support.wait_until(lambda: all_done(ranks), limit=60)
    for rank in ranks:
        rank.end()

    def is_done() -> bool:
        answer = exporter.get()
        writers = answer.sample('mx_exporter_writers{state="alive"}')
        compactions = answer.sample("mx_exporter_compactions_total")
        return writers == 0 and answer.sample(PENDING) == 0 and compactions > 0

    support.wait_until(is_done)
    answer = exporter.get()
    page = exporter.derived()
    assert answer.sample("mx_exporter_unshipped_segments_total") == 0
    teed = identities(out.read_bytes())
    assert len(set(teed)) == answer.sample("mx_exporter_events_logged_total")
    if how == signal.SIGTERM:
        assert len(teed) == len(set(teed))
    assert replayed(spawn, out) == page


#: The command line where the disk takes its time.
ON_A_SLOW_DISK = """
import os, sys, time
from mx_exporter.cli import main as cli
fsync = os.fsync
def slow_fsync(fd):
    time.sleep(0.8)
    fsync(fd)
os.fsync = slow_fsync
sys.exit(cli.main(sys.argv[1:]))
"""


def test_sigterm_on_a_slow_disk_writes_no_line_twice(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """The end waits until it is saved what went out."""
    log, out = tmp_path / "log", tmp_path / "out.log"
    fill(log, "a" * 12, 1)
    port = support.free_port()
    with open(out, "ab") as stdout:
        given = ("--dir", log, "--listen", f"127.0.0.1:{port}", "--tee")
        process = spawn.python("-c", ON_A_SLOW_DISK, "serve", *given, stdout=stdout)
    exporter = serving.Exporter(process, "127.0.0.1", port)
    support.wait_until(exporter.ready)
    support.wait_until(lambda: out.read_bytes().count(b"\n") == 21)
    stop(exporter)
    with open(out, "ab") as stdout:
        exporter = start(spawn, log, "--tee", stdout=stdout)
    support.wait_until(lambda: exporter.get().sample(PENDING) == 0)
    stop(exporter)
    assert len(identities(out.read_bytes())) == 21


def test_sigterm_while_teeing_writes_no_line_twice(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for proc in "abcd":
        fill(log, proc * 12, 1, attempts=ATTEMPTS)
    env = {"MX_METRICS_MAX_BYTES": "999999999"}
    output = b""
    while output.count(b"\n") < 4 * (ATTEMPTS + 1):
        exporter = start(
            spawn, log, "--tee", stdout=subprocess.PIPE, bufsize=0, env=env, ready=False
        )
        pipe = exporter.process.stdout
        assert pipe is not None
        # All of it does not fit in the pipe: the signal comes while the tee writes.
        assert select.select([pipe], [], [], 30)[0], exporter.log
        output += pipe.read(4096)
        exporter.process.send_signal(signal.SIGTERM)
        output += b"".join(iter(lambda pipe=pipe: pipe.read(65536), b""))
        assert exporter.process.result() == 0
    teed = identities(output)
    assert len(teed) == len(set(teed)) == 4 * (ATTEMPTS + 1)


def test_positions_are_kept_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    fill(log, "aaaaaaaaaaaa", 2)
    monkeypatch.setattr("mx_exporter.directory.maintenance.SAVE_SECONDS", 0.0)
    with open(tmp_path / "out", "wb") as out:
        monkeypatch.setattr("sys.stdout", out)
        maintenance = Maintenance(
            CATALOG, Settings(directory=Directory(str(log), named=True), tee=True)
        )
        follower = Follower(str(log), Fold(CATALOG))

        def kept() -> bool:
            maintenance.claim()
            follower.drain()
            maintenance.ship_and_compact(follower)
            again = Follower(str(log), Fold(CATALOG))
            again.drain()
            return len(again.shipped) == 2

        support.wait_until(kept)
        inode = (log / SNAPSHOT_NAME).stat().st_ino
        assert kept()
        assert (log / SNAPSHOT_NAME).stat().st_ino == inode
        maintenance.finish_shipping(10)
        maintenance.close(follower)


def test_a_stopped_reader_of_the_tee_delays_no_scrape(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log, archive, out = tmp_path / "log", tmp_path / "archive", tmp_path / "out.log"
    archive.mkdir()
    fill(log, "aaaaaaaaaaaa", 20, attempts=70)
    options = ("--tee", "--archive-dir", str(archive))
    exporter = start(spawn, log, *options, stdout=subprocess.PIPE)
    support.wait_until(lambda: exporter.get().sample(TEED) > 100)
    support.wait_until(lambda: len(list(archive.iterdir())) == 20)
    fill(log, "bbbbbbbbbbbb", 1)
    started = time.monotonic()
    answer = exporter.get()
    assert time.monotonic() - started < support.SOON
    name = 'mx_p2p_source_attempts_total{policy="random",result="success",scheme=""}'
    assert answer.sample(name) == 20 * 70 + 20
    assert answer.sample(PENDING) > 0
    started = time.monotonic()
    stop(exporter)
    assert time.monotonic() - started < support.SOON
    assert exporter.process.stdout is not None
    first = exporter.process.stdout.read()
    assert first.endswith(b"\n")
    with open(out, "wb") as stdout:
        exporter = start(spawn, log, *options, stdout=stdout)
    support.wait_until(lambda: exporter.get().sample(PENDING) == 0)
    teed = identities(first + out.read_bytes())
    assert len(teed) == len(set(teed)) == 20 * 71 + 21


def test_a_closed_reader_ends_the_tee_alone(spawn: support.Spawner, tmp_path: Path) -> None:
    fill(tmp_path / "log", "aaaaaaaaaaaa", 20)
    read, write = os.pipe()
    os.close(read)
    try:
        exporter = start(spawn, tmp_path / "log", "--tee", stdout=write)
    finally:
        os.close(write)
    failures = 'mx_exporter_shipping_failures_total{to="tee"}'
    support.wait_until(lambda: exporter.get().sample(failures) == 1)
    fill(tmp_path / "log", "bbbbbbbbbbbb", 1)
    support.wait_until(lambda: exporter.get().sample(PENDING) == 21)
    assert exporter.get().sample(failures) == 1
    assert len(segments_in(tmp_path / "log")) == 21
    assert exporter.log.count("the tee has ended") == 1
    stop(exporter)


def test_a_closed_output_is_wrong_use(spawn: support.Spawner, tmp_path: Path) -> None:
    command = ("serve", "--tee", "--dir", str(tmp_path))
    script = f'exec "$0" -m mx_exporter {" ".join(command)} >&-'
    process = spawn("sh", "-c", script, sys.executable)
    assert process.result() == 2
    assert process.error_output == "mx-metrics: --tee: standard output is closed\n"


# --------------------------------------------------------------------------------------
# Which lines


class Teeing:
    """A shipper that writes to a file, and a follower that tells it of segments."""

    def __init__(self, directory: Path, out: Path) -> None:
        self.follower = Follower(str(directory), Fold(CATALOG))
        self.path = out
        self._fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.shipper = Shipper(str(directory), CATALOG.decoder, tee=self._fd)

    def output(self) -> bytes:
        """What was written when everything that was drained has been looked at."""
        self.follower.drain()
        self.shipper.offer(self.follower.segments, {})
        support.wait_until(self._is_idle)
        return self.path.read_bytes()

    def _is_idle(self) -> bool:
        shipments = self.shipper._shipments.values()
        return all(each.seen == (each.size, each.done) for each in shipments)

    def close(self) -> None:
        self.shipper.finish(10)
        self.shipper.join()
        os.close(self._fd)


@pytest.fixture
def teeing(tmp_path: Path) -> Iterator[Teeing]:
    (tmp_path / "log").mkdir()
    teeing = Teeing(tmp_path / "log", tmp_path / "out")
    yield teeing
    teeing.close()


@pytest.fixture
def writer(teeing: Teeing) -> Iterator[Writer]:
    with Writer(Path(teeing.follower.directory)) as writer:
        yield writer


def test_what_goes_out_late_at_the_end_has_its_position(
    teeing: Teeing, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for shipping is over while a write is under way."""
    written, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow_write(fd: int, data: bytes) -> int:
        count = write(fd, data)
        if threading.current_thread().name == "mx-ship":
            written.set()
            go_on.wait(60)
        return count

    monkeypatch.setattr(os, "write", slow_write)
    teeing.follower.drain()
    teeing.shipper.offer(teeing.follower.segments, {})
    assert written.wait(60)
    later = threading.Timer(0.5, go_on.set)
    later.start()
    teeing.shipper.finish(0)
    teeing.shipper.join()
    positions = teeing.shipper.positions()
    later.join()
    assert positions == {writer.path.name: writer.path.stat().st_size}


def test_lines_go_out_as_they_are_and_whole(teeing: Teeing, writer: Writer) -> None:
    header = writer.path.read_bytes()
    assert teeing.output() == header
    line = writer.lines("nixl_received", result="complete")
    writer.write(line[:10])
    assert teeing.output() == header
    writer.write(line[10:])
    assert teeing.output() == header + line
    writer.write(b"\0\0" + line + b"\n\njunk\n[1]\n" + b'{"event":1}\n')
    assert teeing.output() == header + line + b"\0\0" + line


def test_the_last_line_without_an_end(teeing: Teeing, writer: Writer) -> None:
    header = writer.path.read_bytes()
    line = writer.lines("nixl_received", result="complete")
    writer.write(line[:-1])
    assert teeing.output() == header
    writer.close()
    assert teeing.output() == header + line


def test_a_torn_last_line_stays(teeing: Teeing, writer: Writer) -> None:
    header = writer.path.read_bytes()
    writer.write(writer.lines("nixl_received", result="complete")[:-10])
    writer.close()
    assert teeing.output() == header
    assert teeing.shipper.pending == 0


@pytest.mark.parametrize("size", [MAX_LINE_BYTES, MAX_LINE_BYTES + 70_000, 3 * MAX_LINE_BYTES])
def test_a_line_over_the_limit_is_passed_over(teeing: Teeing, writer: Writer, size: int) -> None:
    header = writer.path.read_bytes()
    good = writer.lines("nixl_received", result="complete")
    long = good[:-2] + b',"x":"' + b"x" * size + b'"}\n'
    writer.write(long[: size // 2])
    assert teeing.output() == header
    writer.write(long[size // 2 : -100])
    assert teeing.output() == header
    writer.write(long[-100:] + good)
    assert teeing.output() == header + good


def test_a_line_larger_than_a_pipe_buffer(teeing: Teeing, writer: Writer) -> None:
    header = writer.path.read_bytes()
    long = writer.lines("of_an_engine", text="y" * 100_000)
    writer.write(long)
    assert teeing.output() == header + long


def test_a_truncated_segment_is_written_from_its_start(teeing: Teeing, writer: Writer) -> None:
    header = writer.path.read_bytes()
    line = writer.log()
    assert teeing.output() == header + line
    os.truncate(writer.path, len(header))
    other = writer.lines("nixl_failed", kind="timeout")
    assert len(other) < len(line)
    writer.write(other)
    assert teeing.output() == header + line + header + other


def test_a_line_that_a_crash_tore_is_ended_first(tmp_path: Path) -> None:
    fill(tmp_path / "log", "aaaaaaaaaaaa", 1, attempts=1)
    segment = (tmp_path / "log" / "events-aaaaaaaaaaaa-0.jsonl").read_bytes()
    (tmp_path / "out").write_bytes(segment[:30])
    teeing = Teeing(tmp_path / "log", tmp_path / "out")
    try:
        assert teeing.output() == segment[:30] + b"\n" + segment
    finally:
        teeing.close()


def test_a_full_disk_is_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Linux has a device that is always full."""
    monkeypatch.setattr("mx_exporter.directory.shipper.RETRY_SECONDS", 0.01)
    fill(tmp_path / "log", "aaaaaaaaaaaa", 1)
    teeing = Teeing(tmp_path / "log", Path("/dev/full"))
    try:
        teeing.follower.drain()
        teeing.shipper.offer(teeing.follower.segments, {})
        support.wait_until(lambda: teeing.shipper.failures["tee"] > 3)
        assert teeing.shipper.positions() == {}
        assert teeing.shipper.pending == 1
    finally:
        teeing.close()
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
