"""A real exporter, and requests to it over real sockets."""

from __future__ import annotations

import http.client
import os
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests import support
from tests.support.pages import derived


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def sample(self, name: str) -> float:
        """The value of the sample line that starts with ``name``, labels included."""
        found = [line for line in self.text.splitlines() if line.startswith(f"{name} ")]
        assert len(found) == 1, (name, found)
        return float(found[0].rpartition(" ")[2])


class Exporter:
    """A running ``mx-metrics serve``."""

    def __init__(self, process: support.Process, host: str, port: int) -> None:
        self.process = process
        self.host = host
        self.port = port

    @property
    def log(self) -> str:
        return self.process.error_output

    def get(
        self,
        path: str = "/metrics",
        method: str = "GET",
        limit: float = 30.0,
        body: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """One request on a connection of its own; ``headers`` with _ for -."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=limit)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=named)
            response = connection.getresponse()
            got = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, got, response.read())
        finally:
            connection.close()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def page(self) -> str:
        """The page that it serves; empty while it does not answer with one."""
        assert self.process.poll() is None, self.log
        try:
            answer = self.get()
        except OSError:
            return ""
        return answer.text if answer.status == 200 else ""

    def derived(self, **headers: str) -> bytes:
        """The families of its page that are derived from the log."""
        answer = self.get(**headers)
        assert answer.status == 200, answer.text
        return derived(answer.body)

    def connect(self, data: bytes = b"") -> socket.socket:
        """A raw connection on which ``data`` was sent."""
        sock = socket.create_connection((self.host, self.port), timeout=30)
        sock.sendall(data)
        return sock

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False


def start(
    spawn: support.Spawner,
    directory: Path,
    *options: str | Path,
    host: str = "127.0.0.1",
    env: dict[str, str] | None = None,
    port: int | None = None,
    ready: bool = True,
    **more: object,
) -> Exporter:
    """Start an exporter, on a free port if none is given, and wait until it is ready."""
    port = port or support.free_port(host)
    shown = f"[{host}]" if ":" in host else host
    process = spawn.python(
        *("-m", "mx_exporter", "serve", "--dir", os.fspath(directory)),
        *("--listen", f"{shown}:{port}"),
        *options,
        env=env,
        **more,
    )
    exporter = Exporter(process, host, port)
    if ready:
        support.wait_until(exporter.ready)
    return exporter


def read_all(sock: socket.socket) -> bytes:
    """What comes until the other side closes; a reset is a close."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def close_all(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def attempts(directory: Path, count: int, proc: str = "aaaaaaaaaaaa", policies: int = 1) -> Path:
    """A finished segment with ``count`` attempts at sources, over so many policies.

    It is put in its place whole: an exporter that sees a part of it, with no writer's lock, takes
    it for all there will ever be.
    """
    events = [
        ("source_attempted", {"policy": f"policy-{n % policies}", "result": "success"})
        for n in range(count)
    ]
    with tempfile.TemporaryDirectory(dir=directory.parent) as making:
        made = support.Lines(proc).segment(Path(making), 0, events)
        return made.rename(directory / made.name)
