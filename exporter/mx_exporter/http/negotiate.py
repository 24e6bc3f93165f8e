"""What a scrape asks for in its headers. Pure functions of header texts.

Two content types are served: the classic text and OpenMetrics. OpenMetrics goes only to a client
that names it, since ``*/*`` comes from browsers and curl. The higher q-value wins; at equal ones
OpenMetrics does, which says more. That gives what every Prometheus asks for: 2.x names
OpenMetrics with the highest q, 3.x puts it behind protobuf (which is not served) and before
the text. The version that is asked for only chooses the type; the answer names its own version.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

#: Content type by whether it is OpenMetrics.
CONTENT_TYPE = {
    False: "text/plain; version=0.0.4; charset=utf-8",
    True: "application/openmetrics-text; version=1.0.0; charset=utf-8",
}

#: Versions of OpenMetrics whose readers take a page of version 1.0.0. None: no version named.
_OPENMETRICS_VERSIONS = {None, "0.0.1", "1.0.0"}

#: Share of the scrape's time-out that a drain may use; the rest is for rendering and the way back.
DRAIN_SHARE = 0.8


class _Range(NamedTuple):
    """An element of an Accept header: a name, its q-value and its other parameters."""

    name: str
    q: float
    parameters: dict[str, str]


def _ranges(header: str) -> Iterator[_Range]:
    """The header's elements. One with a q that is no number from 0 to 1 is left out."""
    for element in header.split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        parameters: dict[str, str] = {}
        for parameter in rest:
            key, _, value = parameter.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        try:
            q = float(parameters.pop("q", "1"))
        except ValueError:
            continue
        if name and 0 <= q <= 1:
            yield _Range(name.lower(), q, parameters)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header is best answered by OpenMetrics. A blank or broken one is not."""
    ranges = list(_ranges(accept))
    openmetrics = max(
        (
            r.q
            for r in ranges
            if r.name == "application/openmetrics-text"
            and r.parameters.get("version") in _OPENMETRICS_VERSIONS
        ),
        default=0.0,
    )
    # The most specific range that covers a type gives its q-value.
    for name in ("text/plain", "text/*", "*/*"):
        covering = [r.q for r in ranges if r.name == name]
        if covering:
            return openmetrics > 0 and openmetrics >= max(covering)
    return openmetrics > 0


def wants_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip, and does not prefer the plain body."""
    q = {r.name: r.q for r in _ranges(accept_encoding)}
    gzip = q.get("gzip", q.get("x-gzip", q.get("*", 0.0)))
    return gzip > 0 and gzip >= q.get("identity", 0.0)


def timeout_seconds(scrape_timeout: str) -> float | None:
    """What ``X-Prometheus-Scrape-Timeout-Seconds`` says; None: no limit.

    Anything but a positive, finite number counts as not given.
    """
    try:
        seconds = float(scrape_timeout)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
