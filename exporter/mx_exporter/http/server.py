"""Sockets and connections: the part of the server that clients can do harm to.

uvicorn's HTTP/1.1 protocol does the talking: on an event loop a client that stalls costs some
kilobytes instead of a thread, TLS handshakes are not done where connections are accepted, and
the whole idle exporter stays near 32 MB. uvicorn's own server object is not used, since it has
no time limit for half a request or an answer that is not taken. Added here: those limits, a
bound on open connections, and an end within a second whatever clients do. Connections are
accepted one by one, each with the TLS of that moment, and count from then on: asyncio's own
server would keep one context for ever, and know of nobody before the handshake is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ..config import Listen
from ..errors import BindError

logger = logging.getLogger(__name__)

#: Seconds a client has for a whole request: from the connection, or from the request's first byte.
REQUEST_SECONDS = 10.0

#: Seconds a client has for the TLS handshake.
HANDSHAKE_SECONDS = 10.0

#: Seconds to wait before the next try to accept, where there is no descriptor for it.
EXHAUSTED_SECONDS = 1.0

#: Seconds a client has to take an answer, from the moment that it falls behind.
ANSWER_SECONDS = 30.0

#: Seconds a connection may idle between requests: longer than a usual scrape interval.
IDLE_SECONDS = 120.0

#: Connections that may wait in the kernel to be accepted.
QUEUE = 128

#: Seconds that answers in hand have when the server stops; the whole end takes less than one.
STOP_SECONDS = 0.7


def bind(listen: Listen) -> list[socket.socket]:
    """Bind the endpoint's sockets. They do not listen yet.

    Without a host: one socket for all interfaces, IPv6 and IPv4 where there is IPv6.

    :raises BindError: the port is in use, may not be bound, or the host is unknown.
    """
    try:
        if listen.host is None:
            return [_bind_all(listen.port)]
        found = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _bind_each(dict.fromkeys((family, address) for family, _, _, _, address in found))
    except UnicodeError:
        raise BindError(f"cannot listen on {listen}: that is no host name") from None
    except OSError as error:
        raise BindError(f"cannot listen on {listen}: {_cause(error)}") from error


def _bind_all(port: int) -> socket.socket:
    if socket.has_ipv6:
        try:
            return _bind(socket.AF_INET6, ("::", port), dual=True)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return _bind(socket.AF_INET, ("0.0.0.0", port))


def _bind_each(addresses: Iterable[tuple[int, Any]]) -> list[socket.socket]:
    """Bind all addresses of a name, but for those that this machine does not have."""
    bound: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, "")
    for family, address in addresses:
        try:
            bound.append(_bind(family, address))
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                for sock in bound:
                    sock.close()
                raise
            missing = error
    if not bound:
        raise missing
    return bound


def _bind(family: int, address: Any, *, dual: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _cause(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program; end that one, or choose another port"
    if error.errno == errno.EACCES:
        return "this user may not bind that port; choose one from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return error.strerror or str(error)


def connection_limit() -> int:
    """How many connections may be open: a third of the descriptors we may have, at most 512."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(8, min(512, soft // 3))


class Server:
    """Serves an ASGI application on bound sockets.

    :param app: the application; its lifespan is not run and request bodies are not for it.
    :param sockets: bound, and closed by :meth:`stop`.
    :ivar tls: serve HTTPS by this context, from the next connection on.
    """

    def __init__(
        self, app: Any, sockets: list[socket.socket], tls: ssl.SSLContext | None = None
    ) -> None:
        self._config = Config(
            app,
            http=_Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._config.load()
        # Each bad request would be a line, and a scanner sends thousands.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._sockets = sockets
        self.tls = tls
        self._state = ServerState()
        self._accepting: list[asyncio.Task[None]] = []
        #: Connections on the way to be one of the protocol's, by when they were accepted.
        self._arriving: dict[asyncio.Task[None], float] = {}
        self._limit = connection_limit()

    async def start(self) -> None:
        """Listen and accept.

        :raises BindError: another program has come to listen on the port since it was bound.
        """
        for sock in self._sockets:
            try:
                sock.listen(QUEUE)
            except OSError as error:
                raise BindError(f"cannot listen: {_cause(error)}") from error
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            sock.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(sock)))

    async def stop(self) -> None:
        """Stop accepting, finish the answers in hand for :data:`STOP_SECONDS`, hang up."""
        for task in self._accepting:
            task.cancel()
        if self._accepting:
            await asyncio.wait(self._accepting)
        for sock in self._sockets:
            sock.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + STOP_SECONDS
        await asyncio.sleep(0)
        while (self._state.connections or self._arriving) and loop.time() < end:
            for arrival in self._arriving:
                arrival.cancel()
            # Each time, since one that was just accepted joins them only now.
            for connection in self._connections():
                connection.finish()
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.hang_up()

    async def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        exhausted = False
        while True:
            try:
                client, _ = await loop.sock_accept(sock)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    if not exhausted:
                        logger.error("no connection can be accepted: %s", error.strerror)
                    exhausted = True
                    await asyncio.sleep(EXHAUSTED_SECONDS)
                continue  # or the client has gone already
            exhausted = False
            arrival = loop.create_task(self._welcome(client, self.tls))
            self._arriving[arrival] = loop.time()
            arrival.add_done_callback(lambda done: self._arriving.pop(done, None))
            self._make_room()
            # Where more of them wait already, nothing above has let others run.
            await asyncio.sleep(0)

    async def _welcome(self, client: socket.socket, tls: ssl.SSLContext | None) -> None:
        """See a connection through its handshake, after which its protocol has it."""
        arrival = asyncio.current_task()
        assert arrival is not None

        def connection() -> _Connection:
            return _Connection(
                self._config, self._state, {}, made=lambda: self._arriving.pop(arrival, None)
            )

        # What goes wrong is the client's affair, and asyncio has hung up on it.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                connection,
                client,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )

    def _connections(self) -> list[_Connection]:
        return [c for c in self._state.connections if isinstance(c, _Connection)]

    def _make_room(self) -> None:
        """Hang up on whoever has kept a connection busy with nothing for longest."""
        # One that was hung up on leaves the set a moment later; it makes no room twice.
        open_ = [c for c in self._connections() if not c.hung_up]
        if len(open_) + len(self._arriving) <= self._limit:
            return
        oldest = min((c for c in open_ if not c.answering), key=lambda c: c.since, default=None)
        arrival = next(iter(self._arriving))
        if oldest is not None and oldest.since <= self._arriving[arrival]:
            oldest.hang_up()
        else:
            del self._arriving[arrival]
            # Later, since one that has not begun would leave its socket to nobody.
            asyncio.get_running_loop().call_soon(arrival.cancel)


class _Connection(H11Protocol):
    """One connection. It is asking (or idle), then we are answering, then it takes the answer."""

    def __init__(self, *args: Any, made: Callable[[], object], **more: Any) -> None:
        super().__init__(*args, **more)
        self._made = made
        self._limit: asyncio.TimerHandle | None = None
        self._idle = False
        self.hung_up = False
        #: When the client last did something whole: connected, or got an answer.
        self.since = self.loop.time()

    @property
    def answering(self) -> bool:
        """Whether the client waits for us. One that is slow to take its answer is not waiting."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_started and not cycle.disconnected

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._allow(REQUEST_SECONDS)
        self._made()

    def connection_lost(self, exc: Exception | None) -> None:
        self._allow(None)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self._idle = False
            self._allow(REQUEST_SECONDS)
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._allow(None)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._limit is None:
            self._allow(ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()
        # Its own keep-alive timer would wait for ever for a client that takes no byte.
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._allow(ANSWER_SECONDS)
        elif self.cycle.response_complete:
            self._idle = True
            self._allow(IDLE_SECONDS)

    def send_400_response(self, msg: str) -> None:
        if self.cycle is None or self.cycle.response_complete:
            with contextlib.suppress(h11.LocalProtocolError):
                super().send_400_response(msg)
                return
        # Nonsense in the body of a request that is being answered.
        self.hang_up()

    def finish(self) -> None:
        """Close now, or after the answer in hand."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def hang_up(self) -> None:
        """Close at once; what was not sent yet never is."""
        self.hung_up = True
        self.transport.abort()

    def _allow(self, seconds: float | None) -> None:
        """Hang up in that many seconds, instead of what was set before; None: never."""
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self.hang_up)
