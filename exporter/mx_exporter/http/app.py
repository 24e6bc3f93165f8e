"""The endpoint's paths: ``/metrics``, ``/healthz``, ``/readyz``, and ``/`` for people.

An ASGI application that knows nothing of sockets. Pages are made by the drains' worker; here
only headers are read and written.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, TypeVar

from .negotiate import CONTENT_TYPE, drain_seconds, wants_gzip, wants_openmetrics

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"

#: Bodies under this many bytes are sent as they are: one packet either way.
GZIP_FROM = 1024

#: On a page of 1.4 MB level 1 takes 3 ms for 99 kB, level 6 takes 10 ms for 84 kB. Time counts
#: more: the rendering thread is what the next scrape waits for, and the way is short.
GZIP_LEVEL = 1

#: A page is handed to the connection in pieces, so that a slow reader holds one piece, not a page.
PIECE = 64 * 1024

#: Seconds that people are kept waiting for a drain.
PAGE_SECONDS = 2.0


class Drains(Protocol):
    """When the directory is read: see :mod:`mx_exporter.service.scheduler`."""

    #: Set once the first drain is done.
    ready: asyncio.Event

    async def after_drain(
        self, key: Hashable, make: Callable[[], T], deadline: float | None = None
    ) -> T:
        """Return what ``make`` returns after a drain that starts from now on."""


class Pages(Protocol):
    """What the endpoint shows. Both are called in the drains' worker."""

    def page(self, openmetrics: bool) -> bytes:
        """The exposition."""

    def index(self) -> bytes:
        """The page for people, HTML in UTF-8."""

    def starting(self) -> bytes:
        """The same before the first fold is done; called in the event loop."""


class _Answer(NamedTuple):
    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


def _plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> _Answer:
    return _Answer(text.encode() + b"\n", TEXT, status, headers)


class Endpoint:
    """The application.

    :param drains: who drains the directory.
    :param pages: what is shown after a drain.
    """

    def __init__(self, drains: Drains, pages: Pages) -> None:
        self._drains = drains
        self._pages = pages
        self._paths: dict[str, Callable[[dict[bytes, str]], Awaitable[_Answer]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/": self._index,
        }

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:  # noqa: ARG002
        answer = await self._answer(scope)
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *answer.headers,
        ]
        # Bodies are not read, and one that is not read cannot be told from the next request.
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]):
            headers.append(("Connection", "close"))
        await send(
            {
                "type": "http.response.start",
                "status": int(answer.status),
                "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
            }
        )
        body = b"" if scope["method"] == "HEAD" else answer.body
        for start in range(0, max(len(body), 1), PIECE):
            piece = body[start : start + PIECE]
            more = start + PIECE < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _answer(self, scope: Scope) -> _Answer:
        path = self._paths.get(scope["path"])
        if path is None:
            return _plain(HTTPStatus.NOT_FOUND, "Not found. There are /metrics and /.")
        if scope["method"] not in ("GET", "HEAD"):
            allow = ("Allow", "GET, HEAD")
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD only.", allow)
        headers: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            text = value.decode("latin-1")
            # A header that comes twice is one list.
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        try:
            return await path(headers)
        except Exception:  # noqa: BLE001 - told in the log by the drains, where it was raised
            error = HTTPStatus.INTERNAL_SERVER_ERROR
            return _plain(error, "The page could not be made; see the exporter's log.")

    async def _metrics(self, headers: dict[bytes, str]) -> _Answer:
        if not self._drains.ready.is_set():
            return _plain(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The directory is being read for the first time.",
                ("Retry-After", "1"),
            )
        openmetrics = wants_openmetrics(headers.get(b"accept", ""))
        zipped = wants_gzip(headers.get(b"accept-encoding", ""))
        seconds = drain_seconds(headers.get(b"x-prometheus-scrape-timeout-seconds", ""))
        deadline = None if seconds is None else time.monotonic() + seconds

        def make() -> tuple[bytes, bool]:
            page = self._pages.page(openmetrics)
            if zipped and len(page) >= GZIP_FROM:
                return gzip.compress(page, GZIP_LEVEL, mtime=0), True
            return page, False

        body, is_zipped = await self._drains.after_drain(
            ("/metrics", openmetrics, zipped), make, deadline
        )
        encoding = (("Content-Encoding", "gzip"),) if is_zipped else ()
        return _Answer(
            body,
            CONTENT_TYPE[openmetrics],
            headers=(("Vary", "Accept, Accept-Encoding"), *encoding),
        )

    async def _healthz(self, _: dict[bytes, str]) -> _Answer:
        return _plain(HTTPStatus.OK, "ok")

    async def _readyz(self, _: dict[bytes, str]) -> _Answer:
        if self._drains.ready.is_set():
            return _plain(HTTPStatus.OK, "ok")
        return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "reading the directory for the first time")

    async def _index(self, _: dict[bytes, str]) -> _Answer:
        if not self._drains.ready.is_set():
            return _Answer(self._pages.starting(), HTML)
        deadline = time.monotonic() + PAGE_SECONDS
        return _Answer(await self._drains.after_drain("/", self._pages.index, deadline), HTML)
