"""Prometheus' remote write: samples with times to whatever takes them.

A request is a protobuf message of three levels, compressed by snappy. Both are written here: the
message has five fields, and a text that snappy does not shrink is a valid one of it, so neither is
worth a dependency. A request that failed on the way is sent again; to send a sample twice does no
harm, since a series has one sample of a time.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from ..errors import MxError
from ..exposition.samples import FamilySamples, Histogram
from ..exposition.text import boundary_texts
from .post import Poster, Target

#: Samples of a request, about.
BATCH = 10_000

#: A literal of snappy has at most so many bytes here.
_LITERAL = 60_000

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class RemoteWriter:
    """Sends series in requests of some size.

    :param pause: waits so many seconds.
    """

    def __init__(self, to: Target, pause: Callable[[float], None] = time.sleep) -> None:
        self._post = Poster(to, _HEADERS, lambda code: code == 429 or code >= 500, pause)
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
            try:
                self._post.send(compress(b"".join(self._series)))
            except MxError as error:
                raise MxError(
                    f"{error}; {self.sent} samples were sent before, and nothing is doubled when "
                    "it is run again"
                ) from None
            self.sent += self._waiting
            self._series, self._waiting = [], 0


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
