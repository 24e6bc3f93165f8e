"""Prometheus' remote write: samples with times to whatever takes them.

A request is a protobuf message of three levels, compressed by snappy. Both are written here: the
message has five fields, and a text that snappy does not shrink is a valid one of it, so neither is
worth a dependency. A request that failed on the way is sent again; to send a sample twice does no
harm, since a series has one sample of a time.
"""

from __future__ import annotations

import base64
import logging
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPException
from itertools import groupby
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from mx_log.schema import VERSION

from ..errors import MxError
from ..exposition.samples import FamilySamples, Histogram
from ..exposition.text import boundary_texts

logger = logging.getLogger(__name__)

#: Samples of a request, about.
BATCH = 10_000

#: Tries of a request, the seconds that one may take, and those before the second; the pause
#: doubles with each further one.
TRIES = 6
TRY_SECONDS = 30.0
PAUSE_SECONDS = 0.5

#: The longest pause that a server may ask for.
_MAX_PAUSE = 60.0

#: A literal of snappy has at most so many bytes here.
_LITERAL = 60_000

#: Characters of an answer that are shown.
_SHOWN = 300


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


class RemoteWriter:
    """Sends series in requests of some size.

    :param pause: waits so many seconds.
    """

    def __init__(self, to: Target, pause: Callable[[float], None] = time.sleep) -> None:
        self._to = to
        self._pause = pause
        self._series: list[bytes] = []
        self._waiting = 0
        #: Samples that were taken by the other side.
        self.sent = 0

    def add(self, series: bytes, samples: int) -> None:
        """Take a series with so many samples, as `encode_series` gives it.

        :raises MxError: a request was refused, or failed again and again.
        """
        self._series.append(series)
        self._waiting += samples
        if self._waiting >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Send what waits. Raises as `add` does."""
        if self._series:
            self._send(compress(b"".join(self._series)))
            self.sent += self._waiting
            self._series, self._waiting = [], 0

    def _send(self, body: bytes) -> None:
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": f"mx-metrics/{VERSION}",
        }
        if self._to.authorization:
            headers["Authorization"] = self._to.authorization
        pause = PAUSE_SECONDS
        for number in range(1, TRIES + 1):
            trouble, asked = self._try(body, headers)
            if not trouble:
                return
            if number < TRIES:
                logger.warning("%s: %s; trying again", self._to.shown, trouble)
                self._pause(min(max(pause, asked), _MAX_PAUSE))
                pause *= 2
        raise MxError(
            f"{self._to.shown}: {trouble}, {TRIES} times; {self.sent} samples were sent before, "
            "and nothing is doubled when it is run again"
        )

    def _try(self, body: bytes, headers: dict[str, str]) -> tuple[str, float]:
        """Why it failed and may be tried again, and after how many seconds; empty if it did not.

        :raises MxError: it need not be tried again.
        """
        request = Request(self._to.url, body, headers, method="POST")
        try:
            with urlopen(request, timeout=TRY_SECONDS):
                return "", 0.0
        except HTTPError as error:
            with error:
                said = error.read(_SHOWN).decode("utf-8", "replace").strip()
            why = f"it answered {error.code} {error.reason}" + (f": {said}" if said else "")
            if error.code != 429 and error.code < 500:
                raise MxError(
                    f"{self._to.shown}: {why}; {self.sent} samples were sent before"
                ) from None
            return why, _seconds(error.headers.get("Retry-After", ""))
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            return str(getattr(reason, "strerror", None) or reason or type(error).__name__), 0.0


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0


# --------------------------------------------------------------------------------------
# The message


def sample_labels(
    name: str, labels: Sequence[tuple[str, str]], bounds: tuple[float, ...] | None
) -> list[list[tuple[str, str]]]:
    """The labels of each sample of a series, its name among them; of a histogram the buckets, the
    count, and the sum.

    :param bounds: boundaries of a histogram; None for any other series.
    """
    if bounds is None:
        return [[*labels, ("__name__", name)]]
    return [
        *(
            [*labels, ("__name__", f"{name}_bucket"), ("le", bound)]
            for bound in boundary_texts(bounds)
        ),
        [*labels, ("__name__", f"{name}_count")],
        [*labels, ("__name__", f"{name}_sum")],
    ]


def send_families(
    families: Iterable[FamilySamples], labels: Sequence[tuple[str, str]], writer: RemoteWriter
) -> None:
    """Send what families show now, with further labels.

    :raises MxError: as the writer does.
    """
    now = [encode_time(int(time.time() * 1000))]
    for family in families:
        for one in family.series:
            named = [*labels, *zip(family.label_names, one.labels, strict=True)]
            if isinstance(one, Histogram):
                values = [*one.counts, one.count, one.sum]
                given = sample_labels(family.name, named, one.bounds)
            else:
                values, given = [one.value], sample_labels(family.name, named, None)
            for each, value in zip(given, values, strict=True):
                writer.add(encode_series(each, encode_run(value, now)), 1)
    writer.flush()


def encode_series(labels: Iterable[tuple[str, str]], samples: bytes) -> bytes:
    """A series as a field of a request.

    :param labels: with ``__name__`` among them; those that are empty are left out.
    :param samples: as `encode_run` gives them, in order of time.
    """
    inner = b"".join(
        _field(0x0A, _field(0x0A, name.encode()) + _field(0x12, value.encode("utf-8", "replace")))
        for name, value in sorted(labels)
        if value
    )
    return _field(0x0A, inner + samples)


def encode_run(value: float, times: Iterable[bytes]) -> bytes:
    """Samples of one value.

    :param times: as `encode_time` gives them.
    """
    number = b"\x09" + struct.pack("<d", value)
    found = b""
    for length, given in groupby(times, len):
        head = b"\x12" + varint(len(number) + length) + number
        found += head + head.join(given)
    return found


def encode_time(milliseconds: int) -> bytes:
    """The time of a sample, since 1970."""
    return b"\x10" + varint(milliseconds)


def varint(number: int) -> bytes:
    """A number, seven bits a byte, the lowest first; a negative one in 64 bits."""
    found = bytearray()
    number &= 0xFFFF_FFFF_FFFF_FFFF
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(tag: int, content: bytes) -> bytes:
    return b"%c%b%b" % (tag, varint(len(content)), content)


def compress(data: bytes) -> bytes:
    """Bytes in snappy's block format, as literals: nothing is gained or lost in size."""
    parts = [varint(len(data))]
    for at in range(0, len(data), _LITERAL):
        literal = data[at : at + _LITERAL]
        parts += (b"\xf4", struct.pack("<H", len(literal) - 1), literal)
    return b"".join(parts)
