"""The endpoint's paths: ``/metrics``, ``/healthz``, ``/readyz``, and ``/`` for people.

It knows nothing of sockets. Pages are made by the scheduler's worker; here only headers are read
and written.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from http import HTTPStatus
from typing import Protocol, TypeVar

from .message import Answer, Request, plain
from .negotiate import CONTENT_TYPE, DRAIN_SHARE, timeout_seconds, wants_gzip, wants_openmetrics

T = TypeVar("T")

HTML = "text/html; charset=utf-8"

#: Bodies under this many bytes are sent as they are: one packet either way.
GZIP_FROM = 1024

#: On a page of 1.4 MB level 1 takes 3 ms for 99 kB, level 6 takes 10 ms for 84 kB. Time counts
#: more: the rendering thread is what the next scrape waits for, and the way is short.
GZIP_LEVEL = 1

#: Seconds that people wait for a drain, at most.
PAGE_SECONDS = 2.0


class Scheduler(Protocol):
    """When the directory is drained: see :mod:`mx_exporter.service.scheduler`."""

    #: Set once the first drain is done.
    ready: asyncio.Event

    async def after_drain(
        self, key: Hashable, make: Callable[[], T], deadline: float | None = None
    ) -> T:
        """Return what ``make`` returns after a drain that starts from now on."""


class Pages(Protocol):
    """What the endpoint shows. The first two are called in the scheduler's worker."""

    def page(self, openmetrics: bool) -> bytes:
        """The exposition."""

    def index(self) -> bytes:
        """The page for people, HTML in UTF-8."""

    def starting(self) -> bytes:
        """The same before the first fold is done; called in the event loop."""

    def note_late(self, seconds: float) -> None:
        """A page was made only after its scrape's time-out, of so many seconds; called in the
        event loop."""


class Endpoint:
    """The application.

    :param scheduler: drains the directory.
    :param pages: what is shown after a drain.
    """

    def __init__(self, scheduler: Scheduler, pages: Pages) -> None:
        self._scheduler = scheduler
        self._pages = pages
        self._paths: dict[str, Callable[[Mapping[str, str]], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/": self._index,
        }

    async def __call__(self, request: Request) -> Answer:
        path = self._paths.get(request.page)
        if path is None:
            return plain(HTTPStatus.NOT_FOUND, "Not found. There are /metrics and /.")
        if request.method not in ("GET", "HEAD"):
            allow = ("allow", "GET, HEAD")
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD only.", allow)
        try:
            return await path(request.headers)
        except Exception:  # noqa: BLE001 - logged by the scheduler, where it was raised
            error = HTTPStatus.INTERNAL_SERVER_ERROR
            return plain(error, "The page could not be made; see the exporter's log.")

    async def _metrics(self, headers: Mapping[str, str]) -> Answer:
        if not self._scheduler.ready.is_set():
            return plain(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The directory is being read for the first time.",
                ("retry-after", "1"),
            )
        openmetrics = wants_openmetrics(headers.get("accept", ""))
        zipped = wants_gzip(headers.get("accept-encoding", ""))
        limit = timeout_seconds(headers.get("x-prometheus-scrape-timeout-seconds", ""))
        began = time.monotonic()
        deadline = None if limit is None else began + limit * DRAIN_SHARE

        def make() -> tuple[bytes, bool]:
            page = self._pages.page(openmetrics)
            if zipped and len(page) >= GZIP_FROM:
                return gzip.compress(page, GZIP_LEVEL, mtime=0), True
            return page, False

        making = asyncio.ensure_future(
            self._scheduler.after_drain(("/metrics", openmetrics, zipped), make, deadline)
        )

        def made(done: asyncio.Future[tuple[bytes, bool]]) -> None:
            took = time.monotonic() - began
            if not done.cancelled() and not done.exception() and limit and took > limit:
                self._pages.note_late(limit)

        making.add_done_callback(made)
        # A client that hung up as its time was over must not keep this from being noted.
        body, is_zipped = await asyncio.shield(making)
        encoding = (("content-encoding", "gzip"),) if is_zipped else ()
        return Answer(
            body,
            CONTENT_TYPE[openmetrics],
            headers=(("vary", "Accept, Accept-Encoding"), *encoding),
        )

    async def _healthz(self, _: Mapping[str, str]) -> Answer:
        return plain(HTTPStatus.OK, "ok")

    async def _readyz(self, _: Mapping[str, str]) -> Answer:
        if self._scheduler.ready.is_set():
            return plain(HTTPStatus.OK, "ok")
        return plain(HTTPStatus.SERVICE_UNAVAILABLE, "reading the directory for the first time")

    async def _index(self, _: Mapping[str, str]) -> Answer:
        if not self._scheduler.ready.is_set():
            return Answer(self._pages.starting(), HTML)
        deadline = time.monotonic() + PAGE_SECONDS
        return Answer(await self._scheduler.after_drain("/", self._pages.index, deadline), HTML)
