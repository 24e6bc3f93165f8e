"""One exporter owns a directory; the others stand by, only read, or take over."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from mx_exporter.directory.ownership import Ownership
from mx_log.files import LOCK_NAME, SNAPSHOT_NAME
from tests import support
from tests.support import serving
from tests.support.compacting import (
    SMALL,
    all_done,
    as_nobody,
    can_mount,
    fill,
    serve_command,
    start,
    start_ranks,
    stop,
    wait_for_compaction,
)
from tests.support.log_lines import segments_in
from tests.support.pages import counters, parse, total

ATTEMPTS = 'mx_p2p_source_attempts_total{policy="random",result="success",scheme=""}'


def beside(spawn: support.Spawner, directory: Path, port: int) -> support.Process:
    """Another exporter of the same directory and port; waits until it has said something."""
    process = spawn.python(*serve_command(directory, port)[1:], "--retain-seconds", "0", env=SMALL)
    support.wait_until(lambda: process.error_output)
    return process


def test_a_standby_takes_over_from_a_killed_owner_and_logs_it_once(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    ranks = start_ranks(spawn, log, 3, loops=600)
    support.wait_until(lambda: len(segments_in(log)) > 3)
    owner = start(spawn, log)
    lock = (log / LOCK_NAME).stat().st_ino
    standby = beside(spawn, log, owner.port)
    wait_for_compaction(owner)
    before = counters(owner.get().body)
    stop(owner, signal.SIGKILL)
    successor = serving.Exporter(standby, owner.host, owner.port)
    support.wait_until(successor.ready)
    after = counters(successor.derived())
    for key, value in before.items():
        if not key[0].startswith("mx_exporter_"):
            assert after[key] >= value, key
    support.wait_until(lambda: all_done(ranks), limit=60)
    answer = successor.get()
    totals = {
        result: answer.sample(
            f'mx_p2p_list_sources_total{{policy="random",result="{result}",scheme=""}}'
        )
        for result in ("ok", "empty")
    }
    assert totals == {"ok": 3 * 400, "empty": 3 * 200}
    assert answer.sample("mx_exporter_events_lost") == 0
    said = successor.log
    assert len(re.findall("standing by", said)) == 1
    assert f"process {owner.process.pid} on {socket.gethostname()}" in said
    assert said.count("taking over") == 1
    assert (log / LOCK_NAME).stat().st_ino == lock
    stop(successor)
    assert (log / LOCK_NAME).stat().st_ino == lock


def test_who_owns_a_directory_can_be_read_though_the_disk_is_full(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room that is given up there is taken by the ranks at once."""
    ballast, truncate = small_disk / "ballast", os.ftruncate

    def truncate_and_lose(fd: int, length: int) -> None:
        truncate(fd, length)
        support.take_all_room(ballast)

    monkeypatch.setattr(os, "ftruncate", truncate_and_lose)
    lock = small_disk / LOCK_NAME
    lock.write_text('{"pid":4194304,"hostname":"%s"}\n' % ("the-one-before" * 9))
    support.take_all_room(ballast)
    owner, other = Ownership(str(small_disk)), Ownership(str(small_disk))
    assert (owner.claim(), other.claim()) == ("owner", "standby")
    assert json.loads(lock.read_text()) == {"pid": os.getpid(), "hostname": socket.gethostname()}
    assert other.reason == f"process {os.getpid()} on {socket.gethostname()}"
    owner.release()


def test_a_standby_binds_nothing_and_ends_on_sigterm(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    fill(tmp_path, "aaaaaaaaaaaa", 1)
    owner = start(spawn, tmp_path)
    port = support.free_port()
    standby = beside(spawn, tmp_path, port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    standby.send_signal(signal.SIGTERM)
    assert standby.result() == 0
    assert standby.error_output.count("\n") == 1
    assert owner.get().sample(ATTEMPTS) == 20


#: As often as can be asked for.
SOON = {**SMALL, "MX_METRICS_BIND_RETRY_SECS": "1"}


@pytest.mark.long
def test_of_two_that_start_before_the_directory_is_there_one_stands_by(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    owner = start(spawn, log)
    standby = spawn.python(*serve_command(log, owner.port)[1:], env=SOON)
    support.wait_until(lambda: "standing by: there is no" in standby.error_output)
    fill(log, "aaaaaaaaaaaa", 1)
    named = f"owned by another exporter, process {owner.process.pid} on {socket.gethostname()}"
    support.wait_until(lambda: named in standby.error_output)
    assert owner.get().sample('mx_exporter_owner_state{state="owner"}') == 1
    stop(owner, signal.SIGKILL)
    successor = serving.Exporter(standby, owner.host, owner.port)
    support.wait_until(successor.ready)
    answer = successor.get()
    assert answer.sample('mx_exporter_owner_state{state="owner"}') == 1
    assert answer.sample(ATTEMPTS) == 20


def test_one_that_stands_by_for_a_directory_takes_over_where_none_ever_came(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    owner = start(spawn, tmp_path / "log")
    standby = spawn.python(*serve_command(tmp_path / "log", owner.port)[1:], env=SOON)
    support.wait_until(lambda: "standing by" in standby.error_output)
    stop(owner, signal.SIGKILL)
    support.wait_until(serving.Exporter(standby, owner.host, owner.port).ready)
    assert standby.error_output.count("standing by") == 1
    standby.send_signal(signal.SIGTERM)
    assert standby.result() == 0


@pytest.mark.long
def test_one_that_stands_by_beside_a_stranger_fails_once_the_directory_is_there(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        failed = spawn.python(*serve_command(tmp_path / "log", port)[1:], env=SOON)
        support.wait_until(lambda: "standing by" in failed.error_output)
        fill(tmp_path / "log", "aaaaaaaaaaaa", 1)
        assert failed.result() == 1
    assert failed.error_output.count("the port is in use by another program") == 2
    owner = start(spawn, tmp_path / "log")
    assert owner.get().sample('mx_exporter_owner_state{state="owner"}') == 1


def test_an_owner_that_cannot_bind_fails_and_lets_go(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    fill(tmp_path, "aaaaaaaaaaaa", 1)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        failed = spawn.python(*serve_command(tmp_path, port)[1:])
        assert failed.result() == 1
    assert "the port is in use by another program" in failed.error_output
    assert failed.error_output.count("\n") == 1
    owner = start(spawn, tmp_path)
    assert owner.get().sample('mx_exporter_owner_state{state="owner"}') == 1


def test_without_an_endpoint_it_owns_and_compacts(spawn: support.Spawner, tmp_path: Path) -> None:
    fill(tmp_path, "aaaaaaaaaaaa", 20)
    process = spawn.python(
        *("-m", "mx_exporter", "serve", "--dir", tmp_path, "--retain-seconds", "0"),
        env={**SMALL, "MX_METRICS_PORT": "0"},
    )
    support.wait_until(lambda: len(segments_in(tmp_path)) < 6)
    process.send_signal(signal.SIGTERM)
    assert process.result() == 0
    assert start(spawn, tmp_path).get().sample(ATTEMPTS) == 20 * 20


def test_a_directory_that_comes_late_is_owned(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    exporter = start(spawn, log)
    assert exporter.get().sample('mx_exporter_owner_state{state="waiting"}') == 1
    fill(log, "aaaaaaaaaaaa", 20)
    answer = exporter.get()
    assert answer.sample(ATTEMPTS) == 400
    assert answer.sample('mx_exporter_owner_state{state="owner"}') == 1
    support.wait_until(lambda: len(segments_in(log)) < 6)
    assert exporter.get().sample(ATTEMPTS) == 400
    assert "this exporter owns" in exporter.log


# --------------------------------------------------------------------------------------
# Where it may not write


def is_served_without_owning(exporter: serving.Exporter, directory: Path, why: str) -> None:
    answer = exporter.get()
    assert answer.sample(ATTEMPTS) == 400
    assert answer.sample('mx_exporter_owner_state{state="reader"}') == 1
    assert answer.sample("mx_exporter_compactions_total") == 0
    assert why in exporter.get("/status").text
    said = [line for line in exporter.log.splitlines() if "without owning it" in line]
    assert len(said) == 1
    assert why in said[0]
    assert len(segments_in(directory)) == 20
    assert not (directory / SNAPSHOT_NAME).exists()


def test_a_directory_of_another_user_is_served(spawn: support.Spawner, tmp_path: Path) -> None:
    fill(tmp_path, "aaaaaaaaaaaa", 20)
    tmp_path.chmod(0o755)
    exporter = as_nobody(spawn, tmp_path)
    is_served_without_owning(exporter, tmp_path, "the directory cannot be written to")


def test_a_sticky_directory_of_another_user_is_served(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    fill(log, "aaaaaaaaaaaa", 20)
    log.chmod(0o1777)
    exporter = as_nobody(spawn, log)
    is_served_without_owning(exporter, log, "sticky and belongs to another user")
    assert not (log / LOCK_NAME).exists()


def test_a_directory_that_is_mounted_read_only_is_served(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    if not can_mount():
        support.leave_out("this user may not mount anything")
    log, seen = tmp_path / "log", tmp_path / "seen"
    fill(log, "aaaaaaaaaaaa", 20)
    seen.mkdir()
    port = support.free_port()
    script = 'mount --bind "$1" "$2" && mount -o remount,ro,bind "$2" && shift 2 && exec "$@"'
    process = spawn(
        *("unshare", "-m", "sh", "-c", script, "sh", log, seen),
        *serve_command(seen, port),
        env=SMALL,
    )
    exporter = serving.Exporter(process, "127.0.0.1", port)
    support.wait_until(exporter.ready)
    is_served_without_owning(exporter, log, "the directory cannot be written to")
    # It sees what the ranks write on the other side.
    fill(log, "bbbbbbbbbbbb", 1)
    assert exporter.get().sample(ATTEMPTS) == 420


def test_a_reader_beside_an_owner_who_compacts_counts_the_same(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    log.chmod(0o755)
    reader = as_nobody(spawn, log)
    owner = start(spawn, log)
    ranks = start_ranks(spawn, log, 2, loops=600)
    totals = [0.0]
    while not all_done(ranks):
        found = parse(reader.page())
        totals.append(total(found, "mx_p2p_list_sources_total"))
    assert totals == sorted(totals)
    wait_for_compaction(owner)
    pages = owner.derived(), reader.derived()
    assert pages[0] == pages[1]
    assert b'mx_p2p_list_sources_total{policy="random",result="ok",scheme=""} 800.0' in pages[0]
    assert reader.get().sample("mx_exporter_events_lost") == 0
