"""One client's connection: HTTP/1.1 by h11, and a limit of time on each step that a client takes.

A connection is idle, or the client sends a request, or the answer is being made, or the client
takes the answer. Pipelined requests wait for their turn. Bodies are skipped: the answer to a
request that announces one ends the connection, since the body may still be on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import h11

from .message import App, Request, plain

logger = logging.getLogger(__name__)

#: Seconds a client has for a whole request: from the connection, or from the request's first byte.
REQUEST_SECONDS = 10.0

#: Seconds a client has to take an answer, from the moment that it falls behind.
ANSWER_SECONDS = 30.0

#: Seconds a connection may idle between requests: longer than a usual scrape interval.
IDLE_SECONDS = 120.0

#: A page is handed to the transport in pieces, so that a slow reader holds one piece, not a page.
PIECE = 64 * 1024

#: What stands before the path in an absolute form (RFC 9112, 3.2.2), as a client of a proxy sends.
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")

#: What announces a body.
_BODY_HEADERS = frozenset({"content-length", "transfer-encoding"})


class Connection(asyncio.Protocol):
    """Answers one client's requests, one after the other.

    :param app: what answers them.
    :param opened: called once the connection stands, after the TLS handshake where there is one.
    :param lost: called at its end.
    """

    def __init__(
        self,
        app: App,
        opened: Callable[[Connection], object],
        lost: Callable[[Connection], object],
    ) -> None:
        self._app = app
        self._opened = opened
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport
        self._writable = asyncio.Event()
        self._writable.set()
        #: The answer in hand, and whether its head was written.
        self._answer: asyncio.Task[None] | None = None
        self._head_written = False
        self._last_answer = False
        self._limit: asyncio.TimerHandle | None = None
        self._idle = False
        self.hung_up = False
        #: When the client last did something whole: connected, or got an answer.
        self.since = self._loop.time()

    @property
    def answering(self) -> bool:
        """Whether the client waits for its answer. One that is slow to take it is not waiting."""
        return self._answer is not None and not self._head_written

    def finish(self) -> None:
        """Close now, or after the answer in hand."""
        if self._answer is not None:
            self._last_answer = True
        else:
            self._transport.close()

    def hang_up(self) -> None:
        """Close at once; what was not sent yet never is."""
        self.hung_up = True
        self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._allow(REQUEST_SECONDS)
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._allow(None)
        if self._answer is not None:
            self._answer.cancel()
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        if self._http.their_state is h11.MUST_CLOSE:
            return  # the client said that nothing would follow
        if self._idle:
            self._idle = False
            self._allow(REQUEST_SECONDS)
        self._http.receive_data(data)
        self._read()

    def pause_writing(self) -> None:
        self._writable.clear()
        if self._limit is None:
            self._allow(ANSWER_SECONDS)

    def resume_writing(self) -> None:
        self._writable.set()

    # Requests in, answers out

    def _read(self) -> None:
        while self._http.their_state is not h11.MUST_CLOSE:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                self._refuse()
                return
            if event is h11.NEED_DATA:
                return
            if event is h11.PAUSED:  # the next request, before this one has its answer
                self._transport.pause_reading()
                return
            if isinstance(event, h11.Request):
                self._allow(None)
                self._head_written = False
                self._answer = self._loop.create_task(self._send_answer(_request(event)))

    async def _send_answer(self, request: Request) -> None:
        try:
            answer = await self._app(request)
        except Exception:
            logger.exception("%s could not be answered", request.path)
            error = HTTPStatus.INTERNAL_SERVER_ERROR
            answer = plain(error, "The answer could not be made; see the exporter's log.")
        headers = [
            ("date", formatdate(usegmt=True)),
            ("content-type", answer.content_type),
            ("content-length", str(len(answer.body))),
            *answer.headers,
        ]
        if self._last_answer or _BODY_HEADERS & request.headers.keys():
            headers.append(("connection", "close"))
        self._head_written = True
        self._send(_response(answer.status, headers))
        body = memoryview(b"" if request.method == "HEAD" else answer.body)
        for start in range(0, len(body), PIECE):
            await self._writable.wait()
            self._send(h11.Data(data=body[start : start + PIECE]))  # type: ignore[arg-type]
        self._send(h11.EndOfMessage())
        self._answer = None
        self.since = self._loop.time()
        self._next_request()

    def _next_request(self) -> None:
        """After an answer: read on, or close."""
        both_done = self._http.our_state is self._http.their_state is h11.DONE
        if self._last_answer or not both_done:
            self._transport.close()
            self._allow(ANSWER_SECONDS)
            return
        self._http.start_next_cycle()
        pipelined, _ = self._http.trailing_data
        self._idle = not pipelined
        self._allow(REQUEST_SECONDS if pipelined else IDLE_SECONDS)
        self._transport.resume_reading()
        self._read()

    def _refuse(self) -> None:
        """Answer what is no HTTP, and close. Nothing is logged: a scanner sends thousands."""
        if self._answer is None:
            status = HTTPStatus.BAD_REQUEST
            text = b"This is no valid HTTP request.\n"
            headers = [
                ("content-type", "text/plain; charset=utf-8"),
                ("content-length", str(len(text))),
                ("connection", "close"),
            ]
            with contextlib.suppress(h11.LocalProtocolError):
                self._send(_response(status, headers))
                self._send(h11.Data(data=text))
                self._send(h11.EndOfMessage())
                self._transport.close()
                return
        # Nonsense in the body of a request that is being answered.
        self.hang_up()

    def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if data := self._http.send(event):
            self._transport.write(data)

    def _allow(self, seconds: float | None) -> None:
        """Hang up in that many seconds, instead of what was set before; None: never."""
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self._loop.call_later(seconds, self.hang_up)


def _request(event: h11.Request) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    target = event.target
    if absolute := _AUTHORITY.match(target):
        target = target[absolute.end() :]
        target = target if target.startswith(b"/") else b"/" + target
    path, _, query = target.partition(b"#")[0].decode("ascii").partition("?")
    return Request(event.method.decode("ascii"), unquote(path), headers, query)


def _response(status: HTTPStatus, headers: list[tuple[str, str]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=status.phrase)
