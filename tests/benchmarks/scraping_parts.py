"""What `scraping` and `idling` share: lives, servers of pages, and asking them."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent

#: On the path of each program that is started, which imports ``tests.benchmarks``.
ROOT = HERE.parent.parent

#: Where releases of the client are installed, each in a folder of its own.
CLIENTS = ROOT / ".venv" / "clients"

#: Variables that would change what is measured.
_PREFIXES = ("MX_", "POD_", "PROMETHEUS_", "prometheus_")

_SAMPLE = re.compile(r"(mx_(?!exporter_|emitter_|loads_)\S*?(?:{.*})?) (\S+)")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder on tmpfs, where there is one."""
    memory = "/dev/shm"
    place = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def environment(**extra: str) -> dict[str, str]:
    """The environment without the product's variables and the client's, and with ``extra``."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_PREFIXES)}
    path = os.pathsep.join(filter(None, [str(ROOT), extra.pop("PYTHONPATH", "")]))
    return {**kept, **extra, "PYTHONPATH": path}


def lives(side: str, count: int, directory: Path) -> None:
    """So many processes live and make a load each, into ``directory``. See `scraping_lives`."""
    directory.mkdir()
    subprocess.run(
        [sys.executable, HERE / "scraping_lives.py", side, str(count)],
        check=True,
        env=environment(
            PYTHONPATH=str(CLIENTS / "0.7.0"),
            MX_METRICS_ENABLED="1",
            MX_METRICS_SCHEME="bench",
            MX_METRICS_DIR=str(directory),
            PROMETHEUS_MULTIPROC_DIR=str(directory),
        ),
    )


class Server:
    """A process that serves pages on a port of this machine."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def get(self, path: str = "/metrics", **headers: str) -> bytes:
        """One page, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            page = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"{path} answered {answer.status}")
        return page

    def answers(self, path: str) -> bool:
        """Whether the page is served by now."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.returncode}")
        try:
            self.get(path)
        except OSError:
            return False
        return True

    def megabytes(self) -> float:
        """Resident memory, in 10^6 bytes."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def seconds(self, scrapes: int) -> float:
        """What a scrape took, the median of so many."""
        taken = []
        for _ in range(scrapes):
            began = time.perf_counter()
            self.get()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)


@contextlib.contextmanager
def serving(make: Callable[[int], list[str]], ready: str = "/metrics") -> Iterator[Server]:
    """The process of the command that ``make`` gives for a port, once it serves ``ready``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        make(port), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        server = Server(process, port)
        until(lambda: server.answers(ready))
        yield server
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], limit: float = 60.0, pause: float = 0.002) -> None:
    """Wait for a condition, so many seconds. Raises TimeoutError."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(pause)


def exporter(directory: Path) -> Callable[[int], list[str]]:
    """The command of our exporter."""
    command = [sys.executable, "-m", "mx_exporter", "serve", "--dir", str(directory)]
    return lambda port: [*command, "--listen", f"127.0.0.1:{port}"]


def samples(page: bytes) -> dict[str, float]:
    """The client's families on a page: value by name and labels."""
    found = {}
    for line in page.decode().splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample:
            found[sample[1]] = float(sample[2])
    return found
