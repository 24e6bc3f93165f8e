"""`top` in a real pseudo-terminal, beside ranks that log and exporters that serve."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_demo.fleet import write_fleet
from tests import support
from tests.support import serving
from tests.support.terminal import Terminal
from tests.support.writers import Writer

COMMON = {"engine": "vllm", "model": "acme/model", "load_id": "feedfacecafe"}


@contextlib.contextmanager
def top(spawn: support.Spawner, where: str | Path, columns: int = 80) -> Iterator[Terminal]:
    def start(fd: int) -> support.Process:
        arguments = ("-m", "mx_exporter", "top", where, "--interval", "0.1")
        env = {"TERM": "xterm-256color"}
        return spawn.python(*arguments, stdin=fd, stdout=fd, stderr=fd, env=env)

    terminal = Terminal(start, columns)
    try:
        yield terminal
    finally:
        terminal.close()


@contextlib.contextmanager
def rank(tmp_path: Path) -> Iterator[tuple[Path, Writer]]:
    """A directory with a rank that lives."""
    directory = tmp_path / "log"
    directory.mkdir()
    writer = Writer(directory)
    try:
        yield directory, writer
    finally:
        writer.close()


def row(shown: list[str], text: str) -> str:
    (found,) = [line for line in shown if text in line]
    return found


def test_it_follows_the_events_of_a_rank(spawn: support.Spawner, tmp_path: Path) -> None:
    with rank(tmp_path) as (directory, writer), top(spawn, directory) as terminal:
        shown = terminal.wait_for("0 in progress", "q quit")
        assert str(directory)[:40] in shown[0]
        writer.log("load_started", model_role="main", **COMMON)
        terminal.wait_for("1 in progress", "feedfacecafe")
        writer.log("load_phase_started", phase="model_init", **COMMON)
        shown = terminal.wait_for("in model_init")
        assert "running" in row(shown, "feedfacecafe")
        terminal.press("\r")
        terminal.wait_for("Load feedfacecafe: running", "model_init   never ended")
        writer.log("load_phase_finished", phase="model_init", seconds=3.5, **COMMON)
        writer.log(
            "load_finished",
            model_role="main",
            outcome="error",
            seconds=4.0,
            error_type="Broken",
            error="no room",
            **COMMON,
        )
        shown = terminal.wait_for("Load feedfacecafe: error after 4.0 s", "Broken: no room")
        assert any("3.5" in line and "model_init" in line for line in shown)
        terminal.press("\x1b")
        shown = terminal.wait_for("0 in progress  1 load, 1 failed or killed")
        assert "error" in row(shown, "feedfacecafe")
        assert all(len(line) <= 80 for line in shown)
        terminal.press("q")
        assert terminal.result() == 0
        # Nothing of ours is left in the directory, and the terminal is as it was.
        assert [path.name for path in directory.iterdir()] == [writer.path.name]
        assert terminal.attributes == terminal.before


def test_sorting_and_choosing(spawn: support.Spawner, tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet", 3, start=1_700_000_000.0)
    directory = tmp_path / "log"
    directory.mkdir()
    for path in (tmp_path / "fleet").rglob("*.jsonl"):
        os.utime(path, (1, 1))  # written long ago: who wrote it is gone
        path.rename(directory / path.name)
    with top(spawn, directory, columns=120) as terminal:
        terminal.wait_for("12 loads", "s sort: start")

        def seconds(shown: list[str]) -> list[float]:
            return [float(line.split()[3]) for line in shown if line.startswith("engine-")]

        terminal.press("s")
        shown = terminal.wait_for("s sort: seconds")
        assert seconds(shown) == sorted(seconds(shown), reverse=True)
        assert len(seconds(shown)) == 12
        slowest = [line.split()[2] for line in shown if line.startswith("engine-")]
        terminal.press("\x1b[B\x1b[Bk\r")
        terminal.wait_for(f"Load {slowest[1]}:", "AT   TOOK")
        terminal.press("\x7f" + "sss")
        terminal.wait_for("s sort: start")
        terminal.resize(60, 24)
        assert all(len(line) <= 60 for line in terminal.wait_for("12 loads"))
        terminal.press("\x1b[99~q")  # a key that nobody knows, and one
        assert terminal.result() == 0


def test_an_exporter_elsewhere(spawn: support.Spawner, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        directory, writer = stack.enter_context(rank(tmp_path))
        exporter = serving.start(spawn, directory)
        terminal = stack.enter_context(top(spawn, f"http://{exporter.address}/"))
        writer.log("load_started", model_role="main", **COMMON)
        writer.log("load_phase_started", phase="chain", **COMMON)
        terminal.wait_for("1 in progress", "in chain", f"http://{exporter.address}")
        terminal.press("\r")
        terminal.wait_for("Load feedfacecafe: running", "chain   never ended")
        exporter.process.terminate()
        assert exporter.process.result() == 0
        # What was there stays, and the reason is said.
        terminal.wait_for("cannot be reached", "Load feedfacecafe: running")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.result() == 128 + signal.SIGTERM
        assert terminal.attributes == terminal.before


@contextlib.contextmanager
def dripping() -> Iterator[str]:
    """The address of a server whose answer never ends."""
    ended = threading.Event()

    def answer() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not ended.wait(0.05):
                    connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_slow_source_holds_up_no_key(spawn: support.Spawner) -> None:
    with dripping() as address, top(spawn, address) as terminal:
        terminal.wait_for("reading …")
        terminal.resize(60, 24)
        terminal.press("sq")
        assert terminal.result() == 0
        assert terminal.attributes == terminal.before


def test_hostile_values_are_text(spawn: support.Spawner, tmp_path: Path) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\u202e" + "漢" * 30
    said = {"engine": "e", "model": hostile, "load_id": hostile}
    with rank(tmp_path) as (directory, writer), top(spawn, directory) as terminal:
        writer.log("load_started", model_role="m", **said)
        writer.log("load_phase_started", phase=hostile, **said)
        shown = terminal.wait_for("1 in progress", "\\x1b[2J")
        assert "POD" in shown[1]
        terminal.press("\r")
        terminal.wait_for("Load \\x1b[2J", "q quit")
        terminal.press("\x1bq")  # Escape, and at once another key
        assert terminal.result() == 0


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("ftp://host/", "expected http://HOST:PORT of an exporter, or a directory"),
        ("http://", "expected http://HOST:PORT of an exporter, or a directory"),
        (".", "top needs a terminal; `mx-metrics loads` prints the loads"),
    ],
)
def test_what_it_cannot_show_is_said(where: str, said: str, spawn: support.Spawner) -> None:
    process = spawn.python("-m", "mx_exporter", "top", where)
    assert process.result() == 2
    assert said in process.error_output
