"""``mx-metrics serve``: follows a directory and serves what was derived.

Bytes come in by :class:`~mx_exporter.follow.Follower`, become state in the fold and a page by
:mod:`mx_exporter.exposition`; :mod:`mx_exporter.drains` says when, :mod:`mx_exporter.server`
carries it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from mx_emitter.events import VERSION

from . import exposition, own, page
from .drains import Drains
from .endpoint import Endpoint
from .errors import MxError
from .fold import Fold
from .follow import Follower
from .place import STATES, Place, look_at
from .server import Server, bind
from .settings import Listen, Settings
from .wake import Waker

logger = logging.getLogger(__name__)

#: Seconds that a drain in hand has at the end, after the endpoint has closed.
_LAST_DRAIN_SECONDS = 0.1


class Pipeline:
    """The way from the directory to the page. Used by the drains' worker, one call at a time.

    :param wake: called, from any thread, when the directory changed.
    """

    def __init__(self, settings: Settings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._fold = Fold(max_series=settings.max_series)
        self._follower = Follower(settings.directory.path, self._fold)
        self._waker = Waker(settings.directory.path, wake)
        self._process = ProcessCollector(registry=None)
        self._drain_seconds = 0.0
        self._told = ""
        self._place = self._look()

    def drain(self, deadline: float | None) -> bool:
        """Fold what is in the directory now; stop at ``deadline`` (monotonic seconds).

        Returns whether everything was read.
        """
        started = time.monotonic()
        if self._settings.directory.objection() is None:
            self._waker.look()
            self._follower.drain(deadline)
        self._drain_seconds = time.monotonic() - started
        self._place = self._look()
        if self._place.state != self._told:
            self._told = self._place.state
            if self._told == "segments":
                logger.info("found %d segments", len(self._follower.segments))
            else:
                logger.warning("nothing to show: %s", self._place.text)
        return self._follower.bytes_unread == 0

    def period(self) -> float:
        """Seconds after which to drain though nothing woke us."""
        return self._waker.period()

    def page(self, openmetrics: bool) -> bytes:
        """The exposition: the derived families, then those about ourselves."""
        metrics = [
            *exposition.families(
                self._fold.state,
                source_id_label=self._settings.source_id_label,
                openmetrics=openmetrics,
            ),
            *own.state_families(self._fold.state),
            *own.reading_families(self._follower),
            *own.capped_families(self._fold, source_id_label=self._settings.source_id_label),
            *self._own_families(),
            *self._process.collect(),
        ]
        return exposition.render(metrics, openmetrics=openmetrics)

    def index(self) -> bytes:
        """The page for people."""
        state, follower = self._fold.state, self._follower
        seen = page.Seen(
            segments=len(follower.segments),
            writers_alive=follower.writers_alive,
            writers_gone=state.gone,
            logged=state.logged,
            folded=sum(state.events.values()),
            refused=sum(state.refused.values()),
            skipped=state.skipped,
            lost=state.lost,
            rejected_lines=sum(state.rejected.values()),
            duplicates=state.duplicates,
            unread_bytes=follower.bytes_unread,
            last_event=state.last_event,
            drain_seconds=self._drain_seconds,
        )
        return page.render(self._place, seen)

    def starting(self) -> bytes:
        """The page for people before the first fold is done."""
        return page.render(self._place, None)

    def close(self) -> None:
        """Stop watching the directory."""
        self._waker.stop()

    def _look(self) -> Place:
        return look_at(
            self._settings.directory,
            segments=len(self._follower.segments),
            client_files=self._follower.foreign_db_files,
            trouble=self._follower.trouble,
        )

    def _own_families(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "mx_exporter_build_info",
            "Version of the exporter; always 1.",
            labels=("version", "python"),
        )
        build.add_metric((VERSION, platform.python_version()), 1)
        yield build
        yield GaugeMetricFamily(
            "mx_exporter_last_drain_seconds",
            "Duration of the latest drain of the directory.",
            value=self._drain_seconds,
        )
        state = GaugeMetricFamily(
            "mx_exporter_directory_state",
            "What stands at the directory: 1 for the state it is in. Anything but segments means "
            "that there is nothing to derive metrics from.",
            labels=("state",),
        )
        for name in STATES:
            state.add_metric((name,), self._place.state == name)
        yield state


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
