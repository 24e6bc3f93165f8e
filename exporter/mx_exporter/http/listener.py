"""The endpoint's life: bound, told how to meet clients, and closed.

How clients are met, by TLS and with passwords, may change while we listen: see
:mod:`mx_exporter.http.web_config`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, NamedTuple

from ..config import Listen, Settings
from ..errors import MxError
from .basic_auth import Guard
from .server import Server, bind
from .web_config import Watched

logger = logging.getLogger(__name__)

#: Seconds between two looks at the files of the web configuration.
LOOK_SECONDS = 1.0


class Opened(NamedTuple):
    """An endpoint that can be had, and how its clients are to be met."""

    sockets: list[socket.socket]
    web: Watched | None


def open_endpoint(settings: Settings) -> Opened | None:
    """Bind the endpoint of the settings, or None where none is wanted.

    :raises BindError: the port could not be had.
    :raises UsageError: the web configuration is wrong.
    """
    file, listen = settings.web_config_file, settings.endpoint
    web = None if file is None else Watched(file)
    return None if listen is None else Opened(bind(listen), web)


async def listen_for(app: Any, settings: Settings, opened: Opened | None) -> None:
    """Serve ``app`` on an endpoint that was opened, until cancelled.

    :raises BindError: another program has come to listen on the port.
    """
    listen = settings.endpoint
    if opened is None or listen is None:
        logger.info("no endpoint (port 0 or below); following %s", settings.directory.path)
        await asyncio.Event().wait()
        return
    guard = Guard(app)
    server = Server(guard, opened.sockets)
    try:
        _apply(opened.web, guard, server)
        await server.start()
        scheme = "http" if server.tls is None else "https"
        everywhere = " on all interfaces" if listen.host is None else ""
        address = Listen(listen.host or "localhost", listen.port)
        where = settings.directory.path
        logger.info("serving %s://%s/metrics%s, from %s", scheme, address, everywhere, where)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if opened.web is not None and opened.web.look():
                _apply(opened.web, guard, server)
    finally:
        await server.stop()
        guard.close()


async def listen_patiently(app: Any, settings: Settings) -> None:
    """The same, opening the endpoint as soon as it can be had. It never ends by itself."""
    told = ""
    while True:
        try:
            await listen_for(app, settings, open_endpoint(settings))
        except MxError as error:
            if str(error) != told:
                told = str(error)
                pause = settings.bind_retry_secs
                logger.error("no endpoint for now, tried again every %g s: %s", pause, error)
        await asyncio.sleep(settings.bind_retry_secs)


def _apply(web: Watched | None, guard: Guard, server: Server) -> None:
    if web is not None:
        guard.users, server.tls = web.config.users, web.config.tls
