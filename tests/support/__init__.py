"""What tests of every part share: waiting, ports, real processes, and lines of log.

Nothing here knows the emitter or the exporter, so that a fault of theirs cannot hide in the
tools that look for it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent.parent

#: Variables that the product reads, or that a launcher would set for it.
PRODUCT_PREFIXES = ("MX_", "POD_")
PRODUCT_NAMES = frozenset(
    {
        "NODE_NAME",
        "RANK",
        "LOCAL_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
        "PROMETHEUS_MULTIPROC_DIR",
    }
)


def is_products(name: str) -> bool:
    """Whether an environment variable would change what the product does."""
    return name.startswith(PRODUCT_PREFIXES) or name in PRODUCT_NAMES


def clean_environment(**extra: str) -> dict[str, str]:
    """A copy of the environment without the product's variables, and with ``extra``."""
    kept = {name: value for name, value in os.environ.items() if not is_products(name)}
    return {**kept, **extra}


def leave_out(reason: str) -> Any:
    """Skip this test, which is listed at the end of the run; it fails under ``MX_TEST_ALL=1``."""
    pytest.skip(reason)


def wait_until(condition: Callable[[], T], limit: float = 30.0, message: str = "") -> T:
    """Call ``condition`` until it gives something true, and return that.

    ``limit`` is in seconds and generous on purpose: it is only ever reached by a fault.
    Raises AssertionError with ``message`` when it is.
    """
    deadline = time.monotonic() + limit
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(message or f"not so within {limit:g} s; last seen: {value!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def unshare(*what: str) -> list[str]:
    """The start of a command that runs with namespaces of its own; left out where refused."""
    command = ["unshare", *what]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        leave_out("needs unshare, of util-linux")
    if done.returncode:
        leave_out(f"namespaces are refused here: {done.stderr.strip()}")
    return command


def take_all_room(ballast: Path) -> None:
    """Fill the disk that ``ballast`` lies on, to the last page."""
    with open(ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(mmap.PAGESIZE))


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on at the moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


# --------------------------------------------------------------------------------------
# Processes


class Process(subprocess.Popen[bytes]):
    """A real process in a session of its own, whose output goes to files.

    Files, not pipes: nobody has to read for it to go on. ``output`` and ``error_output``
    are what it has written so far.
    """

    def __init__(
        self,
        argv: Iterable[str | os.PathLike[str]],
        logs: Path,
        env: Mapping[str, str],
        **more: Any,
    ) -> None:
        self._logs = logs
        logs.mkdir(parents=True)
        with open(logs / "stdout", "wb") as out, open(logs / "stderr", "wb") as err:
            more.setdefault("stdin", subprocess.DEVNULL)
            more.setdefault("stdout", out)
            more.setdefault("stderr", err)
            super().__init__(list(argv), env=dict(env), start_new_session=True, **more)

    @property
    def output(self) -> str:
        return (self._logs / "stdout").read_text("utf-8", "replace")

    @property
    def error_output(self) -> str:
        return (self._logs / "stderr").read_text("utf-8", "replace")

    def result(self, limit: float = 60.0) -> int:
        """Wait for the end and return the exit status (-n when signal n ended it)."""
        try:
            return self.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.args!r} still runs after {limit:g} s\n{self.output}\n{self.error_output}"
            ) from None

    def end(self) -> None:
        """Kill it and everything it started in its session's process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()


class Spawner:
    """What the ``spawn`` fixture gives: starts processes, and ends them with the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.processes: list[Process] = []

    def __call__(
        self, *argv: str | os.PathLike[str], env: Mapping[str, str] | None = None, **more: Any
    ) -> Process:
        """Start ``argv``; ``env`` is added to the clean environment, the rest goes to Popen."""
        process = Process(
            argv,
            self._directory / f"process-{len(self.processes)}",
            clean_environment(**(env or {})),
            **more,
        )
        self.processes.append(process)
        return process

    def python(self, *arguments: str | os.PathLike[str], **more: Any) -> Process:
        """Start this interpreter, for example with ``"-c", code`` or ``"-m", module``."""
        return self(sys.executable, "-W", "error", *arguments, **more)

    def end(self) -> None:
        for process in self.processes:
            process.end()


# --------------------------------------------------------------------------------------
# Real servers


class Prometheus:
    """A running Prometheus, asked through its API. ``options`` are its own."""

    def __init__(
        self, spawn: Spawner, binary: str, place: Path, config: str, *options: str
    ) -> None:
        place.mkdir()
        (place / "config.yml").write_text(config)
        self._port = free_port()
        self.process = spawn(
            binary,
            f"--config.file={place}/config.yml",
            f"--storage.tsdb.path={place}/data",
            f"--web.listen-address=127.0.0.1:{self._port}",
            *options,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query's result; empty while Prometheus is not ready."""
        answer = self.ask("query", query=expression)
        result: list[dict[str, Any]] = answer["result"] if answer else []
        return result

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; None while Prometheus is not ready."""
        assert self.process.poll() is None, self.process.error_output
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None


class Pushgateway:
    """A running Pushgateway. ``options`` are its own."""

    def __init__(self, spawn: Spawner, binary: str, *options: str | Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.process = spawn(
            binary, f"--web.listen-address={self.address}", "--persistence.file=", *options
        )
        wait_until(self._listens)

    def page(self) -> str:
        """All that was pushed to it, and its own families."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.process.error_output
        host, _, port = self.address.partition(":")
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return False
        return True


# --------------------------------------------------------------------------------------
# Lines of log, written without the emitter


class Lines:
    """The lines of one writer: counts ``seq`` up and the clock on, a second a line.

    >>> log = Lines("0123456789ab", rank=3)
    >>> log.header(), log("source_attempted", policy="random", result="success")
    """

    #: 2026-01-01T00:00:00Z, so that expected pages can be written down.
    START = 1_767_225_600

    def __init__(
        self,
        proc: str = "aaaaaaaaaaaa",
        *,
        rank: int | None = 0,
        scheme: str = "",
        seq: int = 0,
        start: float = START,
        step: float = 1.0,
    ) -> None:
        self.proc = proc
        self.rank = rank
        self.scheme = scheme
        self.seq = seq
        self.time = start
        self.step = step

    def record(self, event: str, **fields: Any) -> dict[str, Any]:
        """The next event as a dict, with the reserved keys; ``fields`` may replace them."""
        whole = int(self.time)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        record = {
            "event": event,
            "timestamp": f"{stamp}.{round((self.time - whole) * 1e6):06d}Z",
            "level": "info",
            "proc": self.proc,
            "seq": self.seq,
            "rank": self.rank,
            "scheme": self.scheme,
            **fields,
        }
        self.seq += 1
        self.time += self.step
        return record

    def __call__(self, event: str, **fields: Any) -> bytes:
        """The next event as a line, its newline included."""
        return json.dumps(self.record(event, **fields), separators=(",", ":")).encode() + b"\n"

    def header(self, segment: int = 0, **fields: Any) -> bytes:
        """The line that opens a segment."""
        event = "segment_continued" if segment else "process_started"
        given = {
            "segment": segment,
            "format": 1,
            "component": "client",
            "version": "0.7.0",
            "emitter_version": "0.1.0",
            "pid": 4711,
            "hostname": "pod-0",
            "pod_name": None,
            "pod_uid": None,
            "pod_namespace": None,
            "node_name": None,
        }
        return self(event, **{**given, **fields})

    def segment(
        self, directory: Path, n: int, events: Iterable[tuple[str, dict[str, Any]]], **header: Any
    ) -> Path:
        """Write a finished segment: its header, then ``(event, fields)`` for each line."""
        path = directory / f"events-{self.proc}-{n}.jsonl"
        first = self.header(n, **header)
        path.write_bytes(first + b"".join(self(event, **fields) for event, fields in events))
        return path
