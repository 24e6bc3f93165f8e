"""Receivers of what is pushed, on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


class Receiver(HTTPServer):
    """Answers with one status after the other, the last one again and again."""

    def __init__(self, *statuses: int, answer: bytes = b"so it is") -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.statuses = list(statuses)
        self.answer = answer
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/write"


class Answers(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((dict(self.headers), body))
        self.server.paths.append(self.path)
        left = self.server.statuses
        self.send_response(left.pop(0) if len(left) > 1 else left[0])
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Starts a receiver that answers with these statuses."""
    threads = []

    def start(*statuses: int, answer: bytes = b"so it is") -> Receiver:
        server = Receiver(*statuses, answer=answer)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        threads.append((server, thread))
        return server

    yield start
    for server, thread in threads:
        server.shutdown()
        thread.join()
        server.server_close()
