"""The endpoint's paths: ``/metrics``, ``/healthz``, ``/readyz``, and those for people.

It knows nothing of sockets. The exposition is made by the scheduler's worker; here only headers are
read and written. Pages for people are made in a thread of their own, of values that are taken after
a drain, so that no scrape waits for one.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Protocol, TypeVar
from urllib.parse import parse_qsl

from ..worker import StepAside, Worker
from .message import Answer, Request, plain
from .negotiate import CONTENT_TYPE, DRAIN_SHARE, timeout_seconds, wants_gzip, wants_openmetrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Bodies under this many bytes are sent as they are: one packet either way.
GZIP_FROM = 1024

#: On a page of 1.4 MB level 1 takes 3 ms for 99 kB, level 6 takes 10 ms for 84 kB. Time counts
#: more: the rendering thread is what the next scrape waits for, and the way is short.
GZIP_LEVEL = 1

#: Seconds that people wait for a drain, at most.
PAGE_SECONDS = 2.0

#: Seconds for which a client that came counts as one that scrapes, unless its request is known
#: before: usually it is, in a fraction of them.
ARRIVAL_SECONDS = 0.005

#: Different pages for people that may wait to be made.
PAGES_WAITING = 16

#: What a page for people may do, beside what the page itself says: nothing.
_GUARDED = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
)


class Scheduler(Protocol):
    """When the directory is drained: see :mod:`mx_exporter.service.scheduler`."""

    #: Set once the first drain is done.
    ready: asyncio.Event

    async def after_drain(
        self, key: Hashable, make: Callable[[], T], deadline: float | None = None
    ) -> T:
        """Return what ``make`` returns after a drain that starts from now on."""


class Look(Protocol):
    """What there was to see at one moment. Used in any thread, by one at a time."""

    def answer(
        self, path: str, query: Mapping[str, str], between: Callable[[], object]
    ) -> Answer | None:
        """The page of a path; None where there is none.

        :param between: called again and again while it is made.
        """


class Pages(Protocol):
    """What the endpoint shows. The first two are called in the scheduler's worker."""

    def page(self, openmetrics: bool) -> bytes:
        """The exposition."""

    def look(self) -> Look:
        """What pages for people are made of. A scrape waits for it, so it takes no time."""

    def starting(self) -> Look:
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
        self._paths: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "/metrics": self._scrape,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/": self._for_people,
            "/status": self._for_people,
            "/loads.json": self._for_people,
        }
        self._worker: Worker | None = None
        #: Scrapes that wait for their answer.
        self._scrapes = 0
        #: When the latest client came, until a request is known.
        self._arrival = -math.inf
        #: Pages for people that are being made, or wait for it.
        self._making: dict[Hashable, asyncio.Future[Answer]] = {}

    def close(self) -> None:
        """Let the thread that makes pages for people end."""
        if self._worker is not None:
            self._worker.close()

    def arrived(self) -> None:
        """A client came; what it asks for is not known yet."""
        self._arrival = time.monotonic()

    async def __call__(self, request: Request) -> Answer:
        self._arrival = -math.inf
        path = self._paths.get(request.page)
        if path is None and request.path.startswith("/loads/"):
            path = self._for_people
        if path is None:
            return _NOT_FOUND
        if request.method not in ("GET", "HEAD"):
            allow = ("allow", "GET, HEAD")
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD only.", allow)
        try:
            return await path(request)
        except Exception:  # noqa: BLE001 - logged where it was raised
            error = HTTPStatus.INTERNAL_SERVER_ERROR
            return plain(error, "The page could not be made; see the exporter's log.")

    async def _scrape(self, request: Request) -> Answer:
        self._scrapes += 1
        try:
            return await self._metrics(request)
        finally:
            self._scrapes -= 1

    async def _metrics(self, request: Request) -> Answer:
        headers = request.headers
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

    async def _healthz(self, _: Request) -> Answer:
        return plain(HTTPStatus.OK, "ok")

    async def _readyz(self, _: Request) -> Answer:
        if self._scheduler.ready.is_set():
            return plain(HTTPStatus.OK, "ok")
        return plain(HTTPStatus.SERVICE_UNAVAILABLE, "reading the directory for the first time")

    async def _for_people(self, request: Request) -> Answer:
        if self._scheduler.ready.is_set():
            deadline = time.monotonic() + PAGE_SECONDS
            look = await self._scheduler.after_drain("look", self._pages.look, deadline)
        else:
            look = self._pages.starting()
        zipped = wants_gzip(request.headers.get("accept-encoding", ""))
        path = request.page if request.page in self._paths else request.path
        # Whoever asks for the same page of one drain shares it.
        key = (look, path, request.query, zipped)
        making = self._making.get(key)
        if making is None:
            if len(self._making) >= PAGES_WAITING:
                text = "Too many pages are being made."
                return plain(HTTPStatus.SERVICE_UNAVAILABLE, text, ("retry-after", "1"))
            if self._worker is None:
                self._worker = Worker(asyncio.get_running_loop(), "mx-pages")
            aside = StepAside(self._is_urgent)
            make = partial(_made, look, path, request.query, aside, zipped=zipped)
            making = self._making[key] = self._worker.call(make)
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(making)

    def _is_urgent(self) -> bool:
        """Whether somebody scrapes, or may be about to. Any thread may ask."""
        return self._scrapes > 0 or time.monotonic() - self._arrival < ARRIVAL_SECONDS


_NOT_FOUND = plain(HTTPStatus.NOT_FOUND, "Not found. There are /metrics and /.")


def _made(
    look: Look, path: str, query: str, between: Callable[[], object], *, zipped: bool
) -> Answer:
    try:
        answer = look.answer(path, dict(parse_qsl(query)), between)
    except Exception:
        logger.exception("a page for people could not be made")
        raise
    if answer is None:
        return _NOT_FOUND
    headers = (*answer.headers, *_GUARDED, ("vary", "Accept-Encoding"))
    if not zipped or len(answer.body) < GZIP_FROM:
        return answer._replace(headers=headers)
    body = gzip.compress(answer.body, GZIP_LEVEL, mtime=0)
    return answer._replace(body=body, headers=(*headers, ("content-encoding", "gzip")))
