"""Accepting connections, within bounds whatever clients do.

On an event loop a client that stalls costs some kilobytes instead of a thread. Connections are
accepted one by one, each with the TLS of that moment, and count from then on: asyncio's own server
would keep one TLS context for ever, and know of no connection before its handshake is done. The
number of open connections is bounded, and the server ends within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable

from ..errors import BindError
from .connection import Connection
from .message import App
from .sockets import cause_of

logger = logging.getLogger(__name__)

#: Seconds a client has for the TLS handshake.
HANDSHAKE_SECONDS = 10.0

#: Seconds to wait before the next try to accept, where there is no descriptor for it.
EXHAUSTED_SECONDS = 1.0

#: Connections that may wait in the kernel to be accepted.
QUEUE = 128

#: Bytes that the kernel takes of an answer before its reader does, in place of the megabytes that
#: it would come to: they are copied for each slow reader while a scrape waits.
SEND_BUFFER = 128 * 1024

#: Seconds that answers in hand have when the server stops; the whole end takes less than one.
STOP_SECONDS = 0.7

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def connection_limit() -> int:
    """How many connections may be open: a third of the descriptors we may have, at most 512."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(8, min(512, soft // 3))


class Server:
    """Serves an application on bound sockets.

    :param app: what answers requests.
    :param sockets: bound, and closed by :meth:`stop`.
    :param arrived: told of each client that connects.
    :ivar tls: serve HTTPS by this context, from the next connection on.
    """

    def __init__(
        self,
        app: App,
        sockets: list[socket.socket],
        tls: ssl.SSLContext | None = None,
        *,
        arrived: Callable[[], object] = lambda: None,
    ) -> None:
        self._app = app
        self._sockets = sockets
        self.tls = tls
        self._arrived = arrived
        self._accepting: list[asyncio.Task[None]] = []
        #: Connections before the end of their handshake, by when they were accepted.
        self._arriving: dict[asyncio.Task[None], float] = {}
        self._connections: set[Connection] = set()
        self._limit = connection_limit()

    async def start(self) -> None:
        """Listen and accept.

        :raises BindError: another program has come to listen on the port since it was bound.
        """
        for sock in self._sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit
            try:
                sock.listen(QUEUE)
            except OSError as error:
                raise BindError(f"cannot listen: {cause_of(error)}") from error
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
        while (self._connections or self._arriving) and loop.time() < end:
            for arrival in self._arriving:
                arrival.cancel()
            # Each time, since one that was just accepted joins them only now.
            for connection in tuple(self._connections):
                connection.finish()
            await asyncio.sleep(0.01)
        for connection in tuple(self._connections):
            connection.hang_up()

    async def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        exhausted = False
        while True:
            try:
                client, _ = await loop.sock_accept(sock)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    if not exhausted:
                        logger.error("no connection can be accepted: %s", error.strerror)
                    exhausted = True
                    await asyncio.sleep(EXHAUSTED_SECONDS)
                continue  # or the client has gone already
            exhausted = False
            self._arrived()
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

        def opened(connection: Connection) -> None:
            self._arriving.pop(arrival, None)
            self._connections.add(connection)

        # What goes wrong is the client's affair, and asyncio has hung up on it.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self._app, opened, self._connections.discard),
                client,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )

    def _make_room(self) -> None:
        """Hang up on whoever has kept a connection busy with nothing for longest."""
        # One that was hung up on leaves the set a moment later; it makes no room twice.
        open_ = [c for c in self._connections if not c.hung_up]
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
