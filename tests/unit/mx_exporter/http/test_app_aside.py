"""A page for people is made when nobody scrapes, and no client has just come who might."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Hashable, Mapping
from http import HTTPStatus
from typing import TypeVar

import pytest

from mx_exporter import worker
from mx_exporter.http import app
from mx_exporter.http.message import Answer, Request, plain
from mx_exporter.http.server import Server
from tests import support

T = TypeVar("T")

FRONT = Request("GET", "/", {})


class AtOnce:
    """A scheduler whose directory is always drained."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.ready.set()

    async def after_drain(
        self, _key: Hashable, make: Callable[[], T], _deadline: float | None = None
    ) -> T:
        return make()


class Pages:
    """Of one page, which says how long it was kept from going on after `first` was done."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._first = first

    def page(self, openmetrics: bool) -> bytes:
        raise NotImplementedError

    def look(self) -> Pages:
        return self

    starting = look

    def note_late(self, seconds: float) -> None:
        raise NotImplementedError

    def answer(
        self, _path: str, _query: Mapping[str, str], between: Callable[[], object]
    ) -> Answer:
        time.sleep(2 * worker.STEP_SECONDS)  # it has worked for as long as it may
        self._first()
        began = time.monotonic()
        between()
        return Answer(str(time.monotonic() - began).encode())


def waited(endpoint: app.Endpoint) -> float:
    """Seconds for which the page was kept from going on."""

    async def ask() -> float:
        try:
            return float((await endpoint(FRONT)).body)
        finally:
            endpoint.close()

    return asyncio.run(ask())


def endpoint_of(first: Callable[[app.Endpoint], object]) -> app.Endpoint:
    pages = Pages(lambda: first(endpoint))
    endpoint = app.Endpoint(AtOnce(), pages)
    return endpoint


def test_a_page_waits_for_who_has_come_and_asked_for_nothing_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "ARRIVAL_SECONDS", 0.2)
    monkeypatch.setattr(worker, "MOST_ASIDE_SECONDS", support.SOON)
    assert waited(endpoint_of(app.Endpoint.arrived)) >= 0.19


def test_a_page_does_not_wait_once_it_is_known_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the test would not end."""
    monkeypatch.setattr(app, "ARRIVAL_SECONDS", 1e9)
    monkeypatch.setattr(worker, "MOST_ASIDE_SECONDS", 1e9)
    endpoint = endpoint_of(lambda _: None)
    endpoint.arrived()
    waited(endpoint)


def test_the_server_says_that_somebody_came_before_it_knows_what_for() -> None:
    async def nothing(_: Request) -> Answer:
        return plain(HTTPStatus.OK, "ok")

    async def connect() -> None:
        came = asyncio.Event()
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        server = Server(nothing, [sock], arrived=came.set)
        await server.start()
        try:
            with socket.create_connection(sock.getsockname()):
                await asyncio.wait_for(came.wait(), support.SOON)
        finally:
            await server.stop()

    asyncio.run(connect())
