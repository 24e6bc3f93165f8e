"""``mx-metrics push``: what a directory amounts to, to a Pushgateway.

One push a pod, of a state that was folded from the log: it needs no process that lived, so it
comes after the end of every rank, however they ended. It replaces what the pod pushed before.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit

from prometheus_client import push_to_gateway
from prometheus_client.core import Metric
from prometheus_client.exposition import basic_auth_handler, default_handler

from . import exposition, own
from .errors import MxError, UsageError
from .marks import settled
from .replay import fold_logs
from .settings import SOURCE_ID_WARNING, Settings
from .spread import Outcome
from .state import State

logger = logging.getLogger(__name__)

#: Seconds that a try may take, name resolution included, and how many there are.
TRY_SECONDS = 2.0
TRIES = 2

#: Seconds between two tries.
PAUSE_SECONDS = 0.2


def run(settings: Settings) -> int:
    """Push once; returns 0, or 1 when what was pushed is short of what a file holds that could not
    be read to its end.

    :raises UsageError: there is no gateway to push to.
    :raises MxError: nothing was pushed, and why.
    """
    if settings.pushgateway is None:
        raise UsageError("push where to? Give --pushgateway or MX_METRICS_PUSHGATEWAY")
    if (endpoint := settings.asked_endpoint) is not None:
        raise MxError(
            f"nothing was pushed: both a port ({endpoint}) and a Pushgateway are set, and what is "
            "served is not pushed as well; unset MX_METRICS_PORT to push"
        )
    return int(push(settings).short)


def push(settings: Settings) -> Outcome:
    """Fold the directory and push what it amounts to, with a second try.

    Files that could not be read to their end are told in the log, and are in what is returned.

    :raises MxError: nothing was pushed, and why.
    """
    assert settings.pushgateway is not None
    path = settings.directory.path
    if (objection := settings.directory.objection()) is not None:
        raise MxError(f"nothing was pushed: {path} {objection}")
    found, bases, outcome = settled(
        # Absolute, since "-" is standard input.
        lambda: fold_logs((os.path.abspath(path),), max_series=settings.max_series, jobs=1)
    )
    if not found.sources and not bases:
        raise MxError(f"nothing was pushed: there is no segment in {path}")
    for source, error in outcome.problems:
        logger.log(logging.ERROR if error.ours else logging.WARNING, "%s: %s", source.shown, error)
    if settings.source_id_label:
        logger.warning(SOURCE_ID_WARNING)
    page = _Page(list(_metrics(outcome.state, source_id_label=settings.source_id_label)))
    gateway, handler = _credentials(settings.pushgateway)
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_SECONDS)
        trouble = _within(
            TRY_SECONDS,
            lambda: push_to_gateway(
                gateway,
                settings.job,
                page,
                grouping_key={"pod": settings.pod},
                timeout=TRY_SECONDS,
                handler=handler,
            ),
        )
        if not trouble:
            logger.info("pushed to %s, as pod %s, from %s", gateway, settings.pod, path)
            return outcome
    raise MxError(f"nothing was pushed to {gateway}: {trouble}")


class _Page:
    """What `push_to_gateway` calls a registry."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _metrics(state: State, *, source_id_label: bool) -> Iterator[Metric]:
    # Without creation times: the classic text would give them as families of their own.
    yield from exposition.families(state, source_id_label=source_id_label)
    yield from own.state_families(state)


def _credentials(url: str) -> tuple[str, Callable[..., Any]]:
    """An address without the user and password in it, and what sends those instead."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, default_handler
    user, password = unquote(parts.username), unquote(parts.password or "")
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def handler(**request: Any) -> Callable[[], None]:
        return basic_auth_handler(**request, username=user, password=password)

    return bare, handler


def _within(seconds: float, send: Callable[[], None]) -> str:
    """Call ``send``; return why it failed, or "".

    In a thread: a name server that is silent, or a gateway that answers byte by byte, keeps
    within no time-out of a socket.
    """
    trouble = [f"no answer within {seconds:g} s"]

    def attempt() -> None:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - told as the reason, whatever it was
            trouble[:] = [_reason(error)]
        else:
            trouble.clear()

    thread = threading.Thread(target=attempt, name="mx-push", daemon=True)
    thread.start()
    thread.join(seconds)
    return "".join(trouble[:1])


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        with error:
            said = error.read(500).decode("utf-8", "replace").strip()
        return f"it answered {error.code} {error.reason}" + (f": {said}" if said else "")
    if isinstance(error, URLError):
        return str(getattr(error.reason, "strerror", None) or error.reason)
    return str(error) or type(error).__name__
