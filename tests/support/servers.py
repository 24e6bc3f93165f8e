"""A real Prometheus and a real Pushgateway."""

from __future__ import annotations

import json
import socket
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.basics import free_port, wait_until
from tests.support.processes import Spawner


class Prometheus:
    """A running Prometheus, asked through its API. ``options`` are its own; what lies in ``data``
    of its place, it serves."""

    def __init__(
        self, spawn: Spawner, binary: str, place: Path, config: str, *options: str
    ) -> None:
        place.mkdir(exist_ok=True)
        (place / "config.yml").write_text(config)
        self._port = free_port()
        self.process = spawn(
            binary,
            f"--config.file={place}/config.yml",
            f"--storage.tsdb.path={place}/data",
            f"--web.listen-address=127.0.0.1:{self._port}",
            *options,
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def query(self, expression: str, **parameters: str) -> list[dict[str, Any]]:
        """An instant query's result; empty while Prometheus is not ready."""
        answer = self.ask("query", query=expression, **parameters)
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
