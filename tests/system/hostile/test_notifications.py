"""Notifications that overflow, are refused, or never come: no scrape depends on them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import support
from tests.support import Lines, notifications, serving
from tests.support.writers import Writer

SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


def rotations(directory: Path, count: int) -> None:
    """Finished segments of one process, made as the emitter makes them, an attempt in each."""
    lines = Lines("c" * 12)
    for n in range(count):
        made = directory / f".events-{lines.proc}-{n}.jsonl"
        made.write_bytes(lines.header(n))
        made = made.rename(directory / made.name[1:])
        with made.open("ab") as out:
            out.write(lines("source_attempted", policy="policy-0", result="success"))


def test_the_queue_overflows_while_the_exporter_is_stopped(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    # Four notifications for each file.
    count = int(QUEUE.read_text()) // 4 + 200
    with Writer(tmp_path) as writer, notifications.listening(tmp_path) as queue:
        exporter = serving.start(spawn, tmp_path)
        writer.log(policy="policy-0")
        assert exporter.get().sample(SUCCESS) == 1
        exporter.process.send_signal(signal.SIGSTOP)
        try:
            rotations(tmp_path, count)
            assert notifications.heard(queue)[-1] & notifications.OVERFLOW
        finally:
            exporter.process.send_signal(signal.SIGCONT)
        page = exporter.get()
        assert page.sample(SUCCESS) == count + 1
        assert page.sample("mx_exporter_events_lost") == 0
        writer.rotate()
        writer.log(policy="policy-0")
        assert exporter.get().sample(SUCCESS) == count + 2


@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_no_inotify_left(spawn: support.Spawner, tmp_path: Path, limit: str) -> None:
    """The kernel refuses; the exporter says so once, and lists instead."""
    own_user = support.unshare("--user", "--map-root-user")
    exporter = notifications.start_in(spawn, own_user, f"echo 0 >/proc/sys/user/{limit}", tmp_path)
    assert f"not notified of changes in {tmp_path} (" in exporter.log
    assert "listing it every 1 s instead" in exporter.log
    serving.attempts(tmp_path, 3)
    support.wait_until(lambda: "found 1 segment" in exporter.log)  # and nobody scraped
    with Writer(tmp_path, "b" * 12) as writer:
        for count in range(1, 6):
            writer.log(policy="policy-0")
            assert exporter.get().sample(SUCCESS) == 3 + count
    assert exporter.log.count("not notified") == 1


OVERLAY = """
mount -t tmpfs none {place}
cd {place}
mkdir lower upper work merged
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
"""


def test_a_file_system_without_notifications(spawn: support.Spawner, tmp_path: Path) -> None:
    """An overlay whose upper directory others write to: it shows their files, and tells nobody.

    It does not show their locks either, and the header says so.
    """
    own_mounts = support.unshare("--user", "--map-root-user", "--mount")
    place = tmp_path / "place"
    place.mkdir()
    exporter = notifications.start_in(
        spawn, own_mounts, OVERLAY.format(place=place), place / "merged"
    )
    seen = Path(f"/proc/{exporter.process.pid}/root{place}")
    lines = Lines()
    with notifications.listening(seen / "merged") as queue:
        for n in range(3):
            with (seen / "upper" / f"events-{lines.proc}-{n}.jsonl").open("ab", 0) as out:
                out.write(lines.header(n, locked=False))
                if n == 0:  # nobody scrapes: the listing of every few seconds finds it
                    support.wait_until(lambda: "found 1 segment" in exporter.log)
                for count in range(1, 4):
                    out.write(lines("source_attempted", policy="policy-0", result="success"))
                    assert exporter.get().sample(SUCCESS) == 3 * n + count
        assert notifications.heard(queue) == []
        (seen / "merged" / "other").touch()
        assert notifications.heard(queue) != []
    assert "not notified" not in exporter.log
