"""``mx-metrics serve``: follows a directory and serves what was derived.

:mod:`mx_exporter.pipeline` makes the page, :mod:`mx_exporter.drains` says when to read,
:mod:`mx_exporter.server` carries it out; here they are put together, started and stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from typing import Any

from .drains import Drains
from .endpoint import Endpoint
from .errors import MxError
from .keeping import Keeper
from .pipeline import Pipeline
from .server import Server, bind
from .settings import Listen, Settings

logger = logging.getLogger(__name__)

#: Seconds that a drain in hand has at the end, after the endpoint has closed.
_LAST_DRAIN_SECONDS = 0.25

#: Seconds that the shipping of what was drained has at the end; they begin with the signal.
_LAST_SHIPPING_SECONDS = 0.3


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    :raises BindError: the endpoint's port could not be had.
    :raises UsageError: a tee is wanted and standard output is closed.
    """
    log_to_stderr()
    asyncio.run(_run(settings, Keeper(settings)))
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


async def _run(settings: Settings, keeper: Keeper) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.set_exception_handler(_say_in_one_line)
    await _stand_by(settings, keeper, stop)
    if not stop.is_set():
        await _serve(settings, keeper, stop)


async def _stand_by(settings: Settings, keeper: Keeper, stop: asyncio.Event) -> None:
    """Wait while another exporter owns the directory: it may well have our port, too."""
    ownership, retry = keeper.ownership, settings.bind_retry_secs
    if settings.directory.objection() is not None or ownership.claim() != "standby":
        return
    logger.warning(
        "standing by: %s is owned by another exporter, %s; trying to take over every %g s",
        ownership.directory,
        ownership.reason,
        retry,
    )
    while not stop.is_set() and ownership.claim() == "standby":
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), retry)
    if not stop.is_set():
        logger.info("taking over")


async def _serve(settings: Settings, keeper: Keeper, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    sockets = bind(settings.endpoint) if settings.endpoint else []
    pipeline = Pipeline(settings, keeper, lambda: drains.wake_soon())
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
        shipped = loop.time() + _LAST_SHIPPING_SECONDS
        keeper.finish(_LAST_SHIPPING_SECONDS)
        await server.stop()
        draining.cancel()
        limit = max(0.0, shipped - loop.time()) + _LAST_DRAIN_SECONDS
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(drains.close(pipeline.close), limit)


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
