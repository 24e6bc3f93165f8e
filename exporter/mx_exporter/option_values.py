"""From the text of an option to its value.

A parser takes a trimmed text and raises ValueError, which says what was expected.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlsplit

from mx_log.values import FALSE, TRUE, whole_number

#: Seconds between two tries of a standby to take over.
DEFAULT_BIND_RETRY_SECS = 15.0


class Directory(NamedTuple):
    """Where the segments lie, and whether somebody named the place.

    A directory that was named is used as it is. The default lies where anybody may write, so it
    is used only while it is a real directory of our own user: see :meth:`objection`.
    """

    path: str
    named: bool

    def objection(self) -> str | None:
        """Why the directory may not be read, or None. One that does not exist is no objection."""
        if self.named:
            return None
        try:
            found = os.lstat(self.path)
        except OSError:
            return None
        if stat.S_ISLNK(found.st_mode):
            return "is a symbolic link"
        if not stat.S_ISDIR(found.st_mode):
            return "is not a directory"
        if found.st_uid != os.geteuid():
            return f"belongs to uid {found.st_uid}, and this is uid {os.geteuid()}"
        return None


class Listen(NamedTuple):
    """Where the endpoint listens. ``host`` None: all interfaces. ``port`` 0: no endpoint."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = "*" if self.host is None else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_at_least_one(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise ValueError("expected a whole number, at least 1")
    return number


def between(first: int, last: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``first`` to ``last``."""

    def parse(text: str) -> int:
        number = whole_number(text)
        if not first <= number <= last:
            raise ValueError(f"expected a whole number from {first} to {last}")
        return number

    return parse


def parse_factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError("expected a number above 0")
    return factor


def parse_port(text: str) -> int:
    try:
        port = whole_number(text)
    except ValueError:
        port = 65536
    if port > 65535:
        raise ValueError("expected a port up to 65535 (0 or below: no endpoint)")
    return max(port, 0)


def parse_listen(text: str) -> Listen:
    match = re.fullmatch(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[^:]+)", text)
    if match is None:
        raise ValueError("expected HOST:PORT, such as 127.0.0.1:9402, [::1]:9402 or :9402")
    return Listen(match["v6"] or match["host"] or None, parse_port(match["port"]))


def parse_boolean(text: str) -> bool:
    word = text.lower()
    if word not in TRUE and word not in FALSE:
        raise ValueError("expected 1, true, yes, on, or 0, false, no, off")
    return word in TRUE


def parse_created(text: str) -> bool:
    """Whether creation times are shown: the opposite of what the variable says. Never an error, as
    the client library, whose variable it is, takes any other text for no."""
    return text.lower() not in ("true", "1", "t")


def parse_directory(text: str) -> Directory:
    if "\0" in text:
        raise ValueError("expected a path")
    return Directory(text, named=True)


def parse_path(text: str) -> str:
    return parse_directory(text).path


def parse_gateway(text: str) -> str:
    """An address as `push_to_gateway` takes it, without a slash at its end."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        # Reading the port is what looks at it.
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        good = good and not (parts.query or parts.fragment)
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in url):
        raise ValueError("expected HOST:PORT or an http(s) address, such as http://gateway:9091")
    return url.rstrip("/")


def parse_address(text: str) -> str:
    """A whole http(s) address, which may have a user and a password."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in text):
        raise ValueError("expected an http(s) address, such as http://prometheus:9090/api/v1/write")
    return text


def parse_text(text: str) -> str:
    return text


def parse_duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError("expected a number of seconds, 0 or more")
    return seconds


def parse_bind_retry(text: str) -> float:
    """Never an error: a standby that gives up over this would be the worse surprise."""
    try:
        seconds = float(text)
    except ValueError:
        return DEFAULT_BIND_RETRY_SECS
    return max(seconds, 1.0) if math.isfinite(seconds) else DEFAULT_BIND_RETRY_SECS


def parse_buckets(text: str) -> tuple[str, tuple[float, ...]]:
    """A family and the upper boundaries of its buckets."""
    family, equals, given = text.partition("=")
    try:
        bounds = tuple(float(each) for each in given.split(","))
    except ValueError:
        bounds = ()
    # The last bucket needs no boundary of its own.
    if bounds[1:] and bounds[-1] == math.inf:
        bounds = bounds[:-1]
    ascending = all(low < high for low, high in pairwise(bounds))
    if not (equals and bounds and ascending and all(map(math.isfinite, bounds))):
        raise ValueError("expected FAMILY=BOUND,BOUND,... with ascending numbers")
    return family.strip(), bounds


def parse_step(text: str) -> int:
    """Seconds between two scrapes: ``15s``, ``1m`` or ``15``."""
    match = re.fullmatch(r"(\d{1,9})([smh]?)", text)
    seconds = int(match[1]) * _UNITS[match[2] or "s"] if match else 0
    if not seconds:
        raise ValueError("expected whole seconds, such as 15s or 1m")
    return seconds


def parse_label(text: str) -> tuple[str, str]:
    """A label's name and its value."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"(?a)(?!__)[a-zA-Z_]\w*", name) or name == "le":
        raise ValueError("expected NAME=VALUE, with the name of a label")
    return name, value.replace("\0", "\ufffd")


def parse_names(text: str) -> tuple[str, ...]:
    """Names between commas, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if "" in names:
        raise ValueError("expected names between commas")
    return names


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,9}))?)?([Zz]|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_AGO = re.compile(r"-?(\d+)([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def timestamp_of_now() -> str:
    """Now, as the timestamp of a line."""
    return _timestamp(datetime.now(timezone.utc))


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse_time(text: str) -> str:
    """A moment as the timestamp of a line.

    A date and time of RFC 3339, in UTC if it names no zone; a date alone is its midnight; ``2h``
    (or ``s``, ``m``, ``d``, ``w``) is so long ago.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            moment = datetime.now(timezone.utc) - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        else:
            moment = _moment(text)
        return _timestamp(moment)
    except (ValueError, OverflowError):
        raise ValueError(
            "not a time; use 2026-01-31T12:00:00Z, a date, or 2h for two hours ago"
        ) from None


def _moment(text: str) -> datetime:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    day, minute, second, fraction, zone = match.groups()
    clock = f"{minute or '00:00'}{second or ':00'}.{(fraction or '0')[:6].ljust(6, '0')}"
    zone = "+00:00" if zone is None or zone in "Zz" else zone
    if ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    return datetime.fromisoformat(f"{day}T{clock}{zone}")
