"""``mx-metrics serve``: follows a directory and serves what was derived.

:mod:`mx_exporter.pipeline` makes the page, :mod:`mx_exporter.drains` says when to read,
:mod:`mx_exporter.server` carries it out; here they are put together, started and stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from typing import Any

from .drains import Drains
from .endpoint import Endpoint
from .errors import MxError
from .pipeline import Pipeline
from .server import Server, bind
from .settings import Listen, Settings

logger = logging.getLogger(__name__)

#: Seconds that a drain in hand has at the end, after the endpoint has closed.
_LAST_DRAIN_SECONDS = 0.1


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    :raises BindError: the endpoint's port could not be had.
    """
    log_to_stderr()
    sockets = bind(settings.endpoint) if settings.endpoint else []
    asyncio.run(_serve(settings, sockets))
    return 0


def log_to_stderr() -> None:
    """Log to standard error, one line a message; other libraries only from warnings on."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s")
    formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("mx_exporter").setLevel(logging.INFO)


async def _serve(settings: Settings, sockets: list[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.set_exception_handler(_say_in_one_line)

    pipeline = Pipeline(settings, lambda: drains.wake_soon())
    drains = Drains(pipeline)
    if settings.source_id_label:
        logger.warning("source_worker_id is shown as a label: its series grow without end")
    server = Server(Endpoint(drains, pipeline), sockets)
    draining = loop.create_task(drains.run())
    stopping = loop.create_task(stop.wait())
    try:
        await server.start()
        logger.info("%s", _address_text(settings))
        await asyncio.wait((draining, stopping), return_when=asyncio.FIRST_COMPLETED)
        if draining.done():
            raise MxError(f"draining ended: {draining.exception()!r}")
    finally:
        await server.stop()
        draining.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(drains.close(pipeline.close), _LAST_DRAIN_SECONDS)


def _say_in_one_line(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio has to say of a connection (out of descriptors, say), without a traceback."""
    logger.error("%s: %r", context["message"], context.get("exception"))


def _address_text(settings: Settings) -> str:
    listen, where = settings.endpoint, settings.directory.path
    if listen is None:
        return f"no endpoint (port 0 or below); following {where}"
    everywhere = " on all interfaces" if listen.host is None else ""
    address = Listen(listen.host or "localhost", listen.port)
    return f"serving http://{address}/metrics{everywhere}, from {where}"
