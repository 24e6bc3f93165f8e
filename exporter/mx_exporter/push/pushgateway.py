"""One push of families to a Pushgateway, with a second try."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from prometheus_client import push_to_gateway
from prometheus_client.exposition import basic_auth_handler, default_handler

from ..errors import MxError
from ..exposition.samples import FamilySamples
from ..exposition.text import Collected

logger = logging.getLogger(__name__)

#: Seconds that a try may take, name resolution included, and how many there are.
TRY_SECONDS = 2.0
TRIES = 2

#: Seconds between two tries.
PAUSE_SECONDS = 0.2


def push_families(
    families: Sequence[FamilySamples], gateway_url: str, *, job: str, pod: str
) -> str:
    """Push ``families`` in place of what ``pod`` pushed before.

    :param gateway_url: address of the gateway, perhaps with a user and a password in it.
    :param job: the label ``job`` of what is pushed.
    :param pod: the label ``pod``, which keeps pods apart.
    :return: the address without user and password.
    :raises MxError: nothing was pushed; the message says why.
    """
    # Without creation times: the classic text would give them as families of their own.
    page: Any = Collected(families)
    gateway, handler = _credentials(gateway_url)
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_SECONDS)
        trouble = _within(
            TRY_SECONDS,
            lambda: push_to_gateway(
                gateway,
                job,
                page,
                grouping_key={"pod": pod},
                timeout=TRY_SECONDS,
                handler=handler,
            ),
        )
        if not trouble:
            return gateway
    raise MxError(f"nothing was pushed to {gateway}{_by_proxy(gateway)}: {trouble}")


def _credentials(url: str) -> tuple[str, Callable[..., Any]]:
    """An address without its user and password, and the handler that sends these instead."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, default_handler
    user, password = unquote(parts.username), unquote(parts.password or "")
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def handler(**request: Any) -> Callable[[], None]:
        return basic_auth_handler(**request, username=user, password=password)

    return bare, handler


def _by_proxy(gateway: str) -> str:
    """Which proxy stands between, by the environment, and how to leave it out."""
    parts = urlsplit(gateway)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.netloc):
        return ""
    shown = proxy.rpartition("@")[2]  # without a user and a password
    out = f"NO_PROXY={parts.hostname} would leave it out"
    return f" by the proxy {shown} ({parts.scheme}_proxy; {out})"


def _within(seconds: float, send: Callable[[], None]) -> str:
    """Call ``send``; return why it failed, or "".

    It runs in a thread: a socket's time-out ends neither a silent name server nor a gateway that
    answers byte by byte.
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
