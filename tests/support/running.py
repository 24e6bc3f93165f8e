"""Engines under `mx-metrics run`, and the processes around them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import support
from tests.support import serving

#: An engine that logs, says so, and ends when its standard input does.
RANK = """
import sys
from mx_emitter import enable_metrics, metrics
enable_metrics()
for _ in range(int(sys.argv[1])):
    metrics.record_nixl_receive("complete")
print("logged", flush=True)
sys.exit(len(sys.stdin.read()))
"""

#: An engine that says each signal it gets, until SIGUSR2.
LISTENER = """
import signal, sys
def say(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR2:
        sys.exit(5)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), say)
signal.signal(signal.SIGUSR2, say)
print("listening", flush=True)
while True:
    signal.pause()
"""

RECEIVED = 'mx_nixl_receive_total{result="complete",scheme=""}'


class Running:
    """A ``mx-metrics run``."""

    def __init__(self, process: support.Process, port: int) -> None:
        self.process = process
        self.exporter = serving.Exporter(process, "127.0.0.1", port)

    @property
    def log(self) -> str:
        return self.process.error_output

    def children(self) -> dict[int, str]:
        """Its children's command lines by pid. The exporter's is our own."""
        return children_of(self.process.pid)

    def exporter_pid(self) -> int:
        pids = [pid for pid, command in self.children().items() if " run " in command]
        return pids[0] if pids else 0

    def engine_pid(self) -> int:
        pids = [pid for pid, command in self.children().items() if " run " not in command]
        return pids[0] if pids else 0

    def say(self, *words: str) -> None:
        """Wait until the engine has printed these words, each on a line."""
        support.wait_until(lambda: self.process.output.split() == list(words), limit=60)

    def received(self) -> float:
        """What the exporter shows for :data:`RECEIVED`; -1 before it does."""
        assert self.process.poll() is None, self.log
        try:
            answer = self.exporter.get()
        except OSError:
            return -1
        return answer.sample(RECEIVED) if f"{RECEIVED} " in answer.text else -1


def children_of(pid: int) -> dict[int, str]:
    found = {}
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, pids):
            found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    except OSError:  # it ended just now
        return {}
    return found


def state_of(pid: int) -> str:
    """The letter of a process's state, as `ps` shows it."""
    try:
        return re.findall(r"^State:\s+(\w)", Path(f"/proc/{pid}/status").read_text(), re.M)[0]
    except OSError:
        return "gone"


def start(
    spawn: support.Spawner,
    directory: Path,
    *command: str | os.PathLike[str],
    options: tuple[str | os.PathLike[str], ...] = (),
    port: int | None = None,
    **more: Any,
) -> Running:
    """Run ``command``; ``options`` are those of `run`. The port is a free one, None given."""
    if port is None:
        port = support.free_port()
        options = ("--listen", f"127.0.0.1:{port}", *options)
    process = spawn.python(
        *("-m", "mx_exporter", "run", "--dir", directory, *options, "--", *command), **more
    )
    return Running(process, port)


def start_rank(spawn: support.Spawner, directory: Path, events: int = 3, **more: Any) -> Running:
    """Run an engine that has logged so many events, and waits."""
    rank = (sys.executable, "-c", RANK, str(events))
    running = start(spawn, directory, *rank, stdin=subprocess.PIPE, **more)
    running.say("logged")
    return running


def end(running: Running, status: int = 0) -> None:
    """Let an engine of :func:`start_rank` end, with that status, and see `run` pass it on."""
    assert running.process.stdin is not None
    running.process.stdin.write(b"x" * status)
    running.process.stdin.close()
    assert running.process.result() == status, running.log


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    assert pid > 0
    os.kill(pid, how)
