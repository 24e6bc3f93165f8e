"""Requests that carry metrics to an address: credentials, a time-out, and further tries."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from mx_log.schema import VERSION

from ..errors import MxError

logger = logging.getLogger(__name__)

#: Tries of a request, the seconds that one may take, and those before the second; the pause
#: doubles with each further one.
TRIES = 6
TRY_SECONDS = 30.0
PAUSE_SECONDS = 0.5

#: The longest pause that a server may ask for.
_MAX_PAUSE = 60.0

#: Characters of an answer that are shown, and bytes of a good one that are read.
_SHOWN = 300
_MAX_ANSWER = 1 << 20


class Target(NamedTuple):
    """Where samples are sent to.

    :ivar shown: the address without a user and a password.
    """

    url: str
    shown: str
    authorization: str


def target(url: str, token_file: str | None = None) -> Target:
    """What an address and the file of a bearer token say.

    :param url: perhaps with a user and a password in it.
    :raises MxError: the file cannot be read.
    """
    parts = urlsplit(url)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    authorization = ""
    if token_file is not None:
        try:
            with open(token_file, encoding="ascii") as file:
                authorization = f"Bearer {file.read().strip()}"
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it holds no token"
            raise MxError(f"{token_file}: the token cannot be read: {why}") from None
    elif parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Target(bare, bare, authorization)


class Poster:
    """Sends requests, each again while that may help.

    :param headers: of each request, beside those that are needed anyway.
    :param again: whether a request that was answered with a status may be sent again.
    :param pause: waits so many seconds.
    """

    def __init__(
        self,
        to: Target,
        headers: Mapping[str, str],
        again: Callable[[int], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._to = to
        self._headers = {**headers, "User-Agent": f"mx-metrics/{VERSION}"}
        if to.authorization:
            self._headers["Authorization"] = to.authorization
        self._again = again
        self._pause = pause

    def send(self, body: bytes) -> bytes:
        """Send a body and return the answer's.

        :raises MxError: it was refused, or failed again and again.
        """
        pause = PAUSE_SECONDS
        for number in range(1, TRIES + 1):
            request = Request(self._to.url, body, self._headers, method="POST")
            try:
                with urlopen(request, timeout=TRY_SECONDS) as answer:
                    return bytes(answer.read(_MAX_ANSWER))
            except HTTPError as error:
                with error:
                    said = error.read(_SHOWN).decode("utf-8", "replace").strip()
                trouble = f"it answered {error.code} {error.reason}" + (f": {said}" if said else "")
                if not self._again(error.code):
                    raise MxError(f"{self._to.shown}: {trouble}") from None
                asked = _seconds(error.headers.get("Retry-After", ""))
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                trouble = str(getattr(reason, "strerror", None) or reason or type(error).__name__)
                asked = 0.0
            if number < TRIES:
                logger.warning("%s: %s; trying again", self._to.shown, trouble)
                self._pause(min(max(pause, asked), _MAX_PAUSE))
                pause *= 2
        raise MxError(f"{self._to.shown}: {trouble}, {TRIES} times")


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0
