"""``mx-metrics serve``: follows a directory and serves the metrics derived from it.

:mod:`mx_exporter.service.pipeline` makes the page, :mod:`mx_exporter.service.scheduler` says when
to drain the directory, :mod:`mx_exporter.http.listener` serves the page; here they are put
together, started and stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable
from typing import Any

from ..config import SOURCE_ID_WARNING, Settings
from ..core.catalog import Catalog
from ..directory.maintenance import Maintenance
from ..errors import MxError, PortInUse
from ..http.app import Endpoint
from ..http.listener import BoundEndpoint, bind_and_serve, bind_endpoint, serve_endpoint
from ..log_setup import log_to_stderr
from ..tables.read import catalog_of
from .pipeline import Pipeline
from .scheduler import Scheduler

logger = logging.getLogger(__name__)

#: Seconds that a drain in hand has at the end, after the endpoint has closed; and the longer time
#: where positions of the tee are to be saved after it: without them, lines go out twice.
_LAST_DRAIN_SECONDS, _LAST_SAVING_SECONDS = 0.25, 5.0

#: Seconds that the shipping of what was drained has at the end; they begin with the signal.
_LAST_SHIPPING_SECONDS = 0.3

#: Seconds in which an exporter that serves owns a directory that comes, if nobody else does.
_CLAIM_SECONDS = 5.0

#: The same beside an engine; what is left in the directory is read before, within the first.
_ENGINE_DRAIN_SECONDS, _ENGINE_SHIPPING_SECONDS = 2.0, 1.5


def run(settings: Settings, *, beside_engine: bool = False, warnings: Iterable[str] = ()) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    :param beside_engine: for an engine's container: an endpoint that cannot be had is tried again
        and again, and at the end what is left in the directory is read and shipped, which takes
        a few seconds.
    :param warnings: warnings about the settings, for the log.
    :raises BindError: the endpoint's port could not be had.
    :raises UsageError: a tee is wanted and standard output is closed; the web configuration or
        the file of families is wrong.
    """
    log_to_stderr()
    for warning in warnings:
        logger.warning("%s", warning)
    if settings.destination is not None:
        logger.error("serve does not push; `mx-metrics run` and `mx-metrics push` do")
    catalog = catalog_of(settings.catalog)
    asyncio.run(_run(catalog, settings, Maintenance(catalog, settings), beside_engine))
    return 0


async def _run(
    catalog: Catalog, settings: Settings, maintenance: Maintenance, beside_engine: bool
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Whoever started this process may have blocked them until here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    loop.set_exception_handler(_log_in_one_line)
    await _stand_by(settings, maintenance, stop)
    bound = None if beside_engine else await _bind(settings, maintenance, stop)
    if beside_engine or not stop.is_set():
        await _serve(catalog, settings, maintenance, stop, bound, beside_engine=beside_engine)


async def _stand_by(settings: Settings, maintenance: Maintenance, stop: asyncio.Event) -> None:
    """Wait while another exporter owns the directory: it may well have the port, too."""
    ownership, retry = maintenance.ownership, settings.bind_retry_secs
    if settings.directory.objection() is not None or ownership.claim() != "standby":
        return
    logger.warning(
        "standing by: %s is owned by another exporter, %s; trying to take over every %g s",
        ownership.directory,
        ownership.reason,
        retry,
    )
    while not stop.is_set() and ownership.claim() == "standby":
        await _wait(stop, retry)
    if not stop.is_set():
        logger.info("taking over")


async def _bind(
    settings: Settings, maintenance: Maintenance, stop: asyncio.Event
) -> BoundEndpoint | None:
    """Bind the endpoint.

    Where there is no directory that could be owned, the port may be another exporter's that waits
    for the same one. Then stand by, and tell once the directory is there.

    :raises BindError: the port could not be had, and is none of another exporter's.
    """
    ownership, retry = maintenance.ownership, settings.bind_retry_secs
    told = False
    while not stop.is_set():
        try:
            return bind_endpoint(settings)
        except PortInUse as error:
            if settings.directory.objection() is not None or ownership.state != "waiting":
                raise
            if not told:
                told = True
                logger.warning(
                    "standing by: there is no %s yet (%s), and %s; if that is another exporter of "
                    "it, this one takes over when it ends; trying every %g s",
                    ownership.directory,
                    ownership.reason,
                    error,
                    retry,
                )
        # The other one is to own the directory first, or it would be served by one and owned by
        # the other.
        there = os.path.isdir(ownership.directory)
        await _wait(stop, max(retry, _CLAIM_SECONDS) if there else retry)
        if there and not stop.is_set():
            await _stand_by(settings, maintenance, stop)
    return None


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until the end."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _serve(
    catalog: Catalog,
    settings: Settings,
    maintenance: Maintenance,
    stop: asyncio.Event,
    bound: BoundEndpoint | None,
    *,
    beside_engine: bool,
) -> None:
    loop = asyncio.get_running_loop()
    pipeline = Pipeline(catalog, settings, maintenance, lambda: scheduler.wake_soon())
    scheduler = Scheduler(pipeline)
    if settings.source_id_label:
        logger.warning(SOURCE_ID_WARNING)
    app = Endpoint(scheduler, pipeline)
    listening = loop.create_task(
        bind_and_serve(app, settings) if beside_engine else serve_endpoint(app, settings, bound)
    )
    draining = loop.create_task(scheduler.run_forever())
    stopping = loop.create_task(stop.wait())
    try:
        await asyncio.wait((listening, draining, stopping), return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            listening.result()
        if draining.done():
            raise MxError(f"draining ended: {draining.exception()!r}")
    finally:
        shipping = _LAST_SHIPPING_SECONDS
        if beside_engine:
            shipping = _ENGINE_SHIPPING_SECONDS
            pipeline.settle_at_once()
            with contextlib.suppress(asyncio.TimeoutError):
                last = scheduler.after_drain("last", lambda: None)
                await asyncio.wait_for(last, _ENGINE_DRAIN_SECONDS)
        shipped = loop.time() + shipping
        maintenance.finish_shipping(shipping)
        listening.cancel()
        await asyncio.wait((listening,))
        app.close()
        draining.cancel()
        last_seconds = _LAST_SAVING_SECONDS if maintenance.saves else _LAST_DRAIN_SECONDS
        limit = max(0.0, shipped - loop.time()) + last_seconds
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(scheduler.close(pipeline.close), limit)


def _log_in_one_line(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio reports of a connection (no descriptors left, say) without a traceback."""
    logger.error("%s: %r", context["message"], context.get("exception"))
