"""Changes of the directory wake the exporter, and the directory may come and go."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import resource
import shutil
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from watchdog.events import FileSystemEventHandler
from watchdog.observers.inotify import InotifyObserver

from mx_exporter.directory import watch
from mx_exporter.directory.watch import NOTIFIED_PERIOD, POLLING_PERIOD, Watcher
from tests import support
from tests.support import serving

SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'


class Woken:
    """A watcher on a directory, and the wake-ups it gave."""

    def __init__(self, directory: Path) -> None:
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.watcher = Watcher(str(directory), lambda: self._calls.put(None))

    def wait(self) -> None:
        """Wait for a wake-up, and for all that may follow it to have come."""
        self._calls.get(timeout=30)
        self.quiet()

    def quiet(self) -> int:
        """Wait until none comes for a while; return how many came."""
        count = 0
        while True:
            try:
                self._calls.get(timeout=0.7)
                count += 1
            except queue.Empty:
                return count


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "segments"


@pytest.fixture
def woken(place: Path) -> Iterator[Woken]:
    woken = Woken(place)
    yield woken
    woken.watcher.stop()


def test_what_a_writer_does_wakes(woken: Woken, place: Path) -> None:
    place.mkdir()
    woken.watcher.watch()
    assert woken.watcher.watching
    assert woken.watcher.period() == NOTIFIED_PERIOD

    hidden = place / ".events-aaaaaaaaaaaa-0.jsonl"
    hidden.write_bytes(b"header\n")
    woken.wait()
    segment = hidden.rename(place / "events-aaaaaaaaaaaa-0.jsonl")
    woken.wait()
    with segment.open("ab") as out:
        out.write(b"line\n")
        out.flush()
        woken.wait()
    segment.unlink()
    woken.wait()


def test_reading_does_not_wake(woken: Woken, place: Path) -> None:
    """It would wake us for ever: reading is what we do when woken."""
    place.mkdir()
    segment = place / "events-aaaaaaaaaaaa-0.jsonl"
    segment.write_bytes(b"header\n")
    woken.watcher.watch()
    for _ in range(10):
        assert os.listdir(place)
        assert segment.read_bytes()
        os.stat(segment)
    assert woken.quiet() == 0
    segment.write_bytes(b"")
    woken.wait()


def test_a_directory_that_appears_vanishes_and_comes_back(woken: Woken, place: Path) -> None:
    woken.watcher.watch()
    assert not woken.watcher.watching
    assert woken.watcher.period() == POLLING_PERIOD

    for _ in range(3):
        place.mkdir()
        woken.watcher.watch()
        assert woken.watcher.watching
        (place / "a").write_bytes(b"")
        woken.wait()
        shutil.rmtree(place)
        woken.wait()
        woken.watcher.watch()
        assert not woken.watcher.watching


def test_a_directory_made_again_between_two_checks(woken: Woken, place: Path) -> None:
    """Perhaps with the very inode number of the old one."""
    place.mkdir()
    woken.watcher.watch()
    for _ in range(3):
        place.rmdir()
        place.mkdir()
        woken.quiet()
        woken.watcher.watch()
        (place / "a").write_bytes(b"")
        woken.wait()
        (place / "a").unlink()


def test_a_directory_that_was_renamed_away(woken: Woken, place: Path, tmp_path: Path) -> None:
    place.mkdir()
    woken.watcher.watch()
    place.rename(tmp_path / "old")
    place.mkdir()
    woken.watcher.watch()
    (tmp_path / "old" / "a").write_bytes(b"")
    assert woken.quiet() == 0
    (place / "a").write_bytes(b"")
    woken.wait()


def test_a_link_to_a_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    woken = Woken(tmp_path / "link")
    try:
        woken.watcher.watch()
        (tmp_path / "real" / "a").write_bytes(b"")
        woken.wait()
    finally:
        woken.watcher.stop()


def test_checking_the_watch_again_changes_nothing(woken: Woken, place: Path) -> None:
    place.mkdir()
    woken.watcher.watch()
    fds = os.listdir("/proc/self/fd")
    for _ in range(50):
        woken.watcher.watch()
    assert os.listdir("/proc/self/fd") == fds


def no_descriptor_left() -> None:
    """Let the next descriptor be the first that the process may not have."""
    with open(os.devnull) as probe:
        free = probe.fileno()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))


def test_no_inotify_left(
    woken: Woken, place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing alone goes on, more often, and notifications are asked for again later."""
    place.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_descriptor_left()
    try:
        for _ in range(3):
            woken.watcher.watch()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    woken.watcher.watch()
    assert not woken.watcher.watching
    assert woken.watcher.period() == POLLING_PERIOD
    assert caplog.text.count(f"not notified of changes in {place}") == 1

    later = time.monotonic() + watch.RETRY_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    woken.watcher.watch()
    monkeypatch.undo()
    assert woken.watcher.watching
    (place / "a").write_bytes(b"")
    woken.wait()


def descriptors() -> set[tuple[str, str]]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def test_a_directory_that_goes_while_the_watch_is_set_up(
    woken: Woken, place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir()
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "realpath", lambda path: f"{path}-gone")
        woken.watcher.watch()
    assert not woken.watcher.watching
    assert "No such file" in caplog.text
    if version("watchdog").startswith("6."):
        for fd, _ in descriptors() - before:
            os.close(int(fd))
    place.rmdir()
    woken.watcher.watch()
    place.mkdir()
    woken.watcher.watch()
    assert woken.watcher.watching


# --------------------------------------------------------------------------------------
# The same with a whole exporter


def test_events_are_folded_without_a_scrape(spawn: support.Spawner, tmp_path: Path) -> None:
    """What a drain of a wake-up read shows in the log of the process: it found segments."""
    exporter = serving.start(spawn, tmp_path)
    assert "found" not in exporter.log
    serving.attempts(tmp_path, 3)
    support.wait_until(lambda: "found 1 segment" in exporter.log)


def test_an_exporter_waits_for_its_directory(spawn: support.Spawner, tmp_path: Path) -> None:
    place = tmp_path / "later" / "segments"
    exporter = serving.start(spawn, place)
    page = exporter.get()
    assert page.sample('mx_exporter_directory_state{state="missing"}') == 1
    assert page.sample("mx_exporter_events_logged_total") == 0

    place.mkdir(parents=True)
    serving.attempts(place, 3)
    page = exporter.get()
    assert page.sample('mx_exporter_directory_state{state="segments"}') == 1
    assert page.sample(SUCCESS) == 3

    # Counters do not fall when the directory goes, and what comes back is not counted twice.
    shutil.rmtree(place)
    page = exporter.get()
    assert page.sample('mx_exporter_directory_state{state="missing"}') == 1
    assert page.sample(SUCCESS) == 3
    place.mkdir()
    serving.attempts(place, 3)
    serving.attempts(place, 2, "bbbbbbbbbbbb")
    page = exporter.get()
    assert page.sample(SUCCESS) == 5
    assert page.sample("mx_exporter_duplicates_total") == 4
    exporter.process.terminate()
    assert exporter.process.result() == 0


def test_the_end_of_a_writer_is_seen_without_a_notification(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """A lock that is let go is no change of the directory: only the listing every few seconds
    sees it. Nobody scrapes either; that the segment may be compacted now shows in its going."""
    log = tmp_path / "log"
    log.mkdir()
    segment = serving.attempts(tmp_path, 10)
    with open(segment) as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        segment = segment.rename(log / segment.name)
        env = {"MX_METRICS_RETAIN_BYTES": "1"}
        exporter = serving.start(spawn, log, "--retain-seconds", "0", env=env)
        support.wait_until(lambda: exporter.get().sample('mx_exporter_owner_state{state="owner"}'))
        assert exporter.get().sample('mx_exporter_writers{state="alive"}') == 1
    support.wait_until(lambda: not segment.exists())


def test_many_notifications_switch_to_polling_for_a_while(
    woken: Woken, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "REST_SECONDS", 3600.0)
    place.mkdir()
    woken.watcher.watch()
    # Two notices in a row that are alike become one.
    with (
        open(place / "a", "wb", buffering=0) as file,
        open(place / "b", "wb", buffering=0) as other,
    ):

        def write(count: int) -> None:
            for _ in range(count // 2):
                file.write(b"x")
                other.write(b"x")
            woken.wait()

        write(watch.MANY // 4)
        woken.watcher.watch()
        assert woken.watcher.watching
        write(watch.MANY * 2)
        woken.watcher.watch()
        assert not woken.watcher.watching
        assert woken.watcher.period() == watch.RESTING_PERIOD
        woken.watcher.watch()
        assert not woken.watcher.watching
        file.write(b"x")
        assert woken.quiet() == 0
    monkeypatch.setattr(woken.watcher, "_rest_until", time.monotonic())
    # Nothing wakes us before the next look, which is not put off.
    assert woken.watcher.period() == watch.RESTING_PERIOD
    woken.watcher.watch()
    assert woken.watcher.watching
    assert woken.watcher.period() == NOTIFIED_PERIOD
    (place / "c").touch()
    woken.wait()


def test_a_watch_that_is_stopped_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """watchdog's thread says so where it is stopped in the middle of a notification."""
    observer = InotifyObserver()
    observer.schedule(FileSystemEventHandler(), str(tmp_path))
    observer.start()
    (emitter,) = observer.emitters
    observer.stop()
    observer.join()
    emitter.queue_events(0.1)
    assert caplog.messages == []
    logging.getLogger("watchdog.observers.inotify").error("another")
    assert caplog.messages == ["another"]
