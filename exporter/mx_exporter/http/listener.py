"""The endpoint's life: bound, set up with TLS and passwords, served, and closed.

TLS and passwords may change while it listens: see :mod:`mx_exporter.http.web_config`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from ..config import Listen, Settings
from ..errors import MxError
from .basic_auth import BasicAuth
from .message import Answer, Request
from .server import Server
from .sockets import bind
from .web_config import WebConfigFile

logger = logging.getLogger(__name__)

#: Seconds between two checks whether the files of the web configuration changed.
CHECK_SECONDS = 1.0


class App(Protocol):
    """What answers requests, and wants to know of clients before they say what they ask for."""

    def __call__(self, request: Request, /) -> Awaitable[Answer]: ...

    def arrived(self) -> None: ...


class BoundEndpoint(NamedTuple):
    """Sockets that are bound, and the file of their TLS and passwords, if there is one."""

    sockets: list[socket.socket]
    web: WebConfigFile | None


def bind_endpoint(settings: Settings) -> BoundEndpoint | None:
    """Bind the endpoint of the settings, or None where none is wanted.

    :raises BindError: the port could not be had.
    :raises UsageError: the web configuration is wrong.
    """
    file, listen = settings.web_config_file, settings.endpoint
    web = None if file is None else WebConfigFile(file)
    return None if listen is None else BoundEndpoint(bind(listen), web)


async def serve_endpoint(app: App, settings: Settings, bound: BoundEndpoint | None) -> None:
    """Serve ``app`` on an endpoint that was bound, until cancelled.

    :raises BindError: another program has come to listen on the port.
    """
    listen = settings.endpoint
    if bound is None or listen is None:
        logger.info("no endpoint (port 0 or below); following %s", settings.directory.path)
        await asyncio.Event().wait()
        return
    auth = BasicAuth(app)
    server = Server(auth, bound.sockets, arrived=app.arrived)
    try:
        _apply(bound.web, auth, server)
        await server.start()
        scheme = "http" if server.tls is None else "https"
        everywhere = " on all interfaces" if listen.host is None else ""
        address = Listen(listen.host or "localhost", listen.port)
        where = settings.directory.path
        logger.info("serving %s://%s/metrics%s, from %s", scheme, address, everywhere, where)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if bound.web is not None and bound.web.reload_if_changed():
                _apply(bound.web, auth, server)
    finally:
        await server.stop()
        auth.close()


async def bind_and_serve(app: App, settings: Settings) -> None:
    """Bind the endpoint as soon as it can be had, and serve it. It never ends by itself."""
    logged = ""
    while True:
        try:
            await serve_endpoint(app, settings, bind_endpoint(settings))
        except MxError as error:
            if str(error) != logged:
                logged = str(error)
                pause = settings.bind_retry_secs
                logger.error("no endpoint for now, tried again every %g s: %s", pause, error)
        await asyncio.sleep(settings.bind_retry_secs)


def _apply(web: WebConfigFile | None, auth: BasicAuth, server: Server) -> None:
    if web is not None:
        auth.users, server.tls = web.config.users, web.config.tls
