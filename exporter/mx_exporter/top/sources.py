"""Where `top` gets its loads from: a directory, which it only reads, or an exporter elsewhere."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..config import resolve_directory
from ..core.builtin import CATALOG
from ..core.fold import Fold
from ..directory.follower import Follower
from ..directory.settling import GRACE_SECONDS, SETTLE_SECONDS
from ..errors import MxError, UsageError
from ..loads.listing import Kept, listing
from ..loads.model import timestamp
from ..loads.recent import RecentLoads

#: Seconds that an exporter has for its answer, and the longest answer that is taken.
TIMEOUT_SECONDS, MOST_BYTES = 5.0, 64 * 1024 * 1024


class Source(Protocol):
    """Gives loads as `loads.listing` has them."""

    #: What it is, for people.
    name: str

    def read(self, load_id: str | None = None) -> dict[str, Any]:
        """The loads as they are now; with an id, those of that id, with their steps.

        :raises MxError: there are none to be had; it may be tried again.
        """


def source_of(where: str | None) -> Source:
    """A directory, or the address of an exporter; None: the directory of the environment.

    :raises UsageError: the address is none.
    """
    if where is not None and "://" in where:
        return Remote(where)
    return Local(where)


class Local:
    """A directory. It is read, and nothing in it is changed: no lock of an owner is taken."""

    def __init__(self, path: str | None) -> None:
        self._directory = resolve_directory(path)
        self.name = self._directory.path
        self._recent = RecentLoads()
        self._follower = Follower(
            self.name,
            Fold(CATALOG, tap=self._recent.feed),
            settle_seconds=SETTLE_SECONDS,
            grace_seconds=GRACE_SECONDS,
        )

    def read(self, load_id: str | None = None) -> dict[str, Any]:
        if (objection := self._directory.objection()) is not None:
            raise MxError(f"{self.name} {objection}")
        if load_id is None:
            self._follower.drain()
        if self._follower.trouble:
            raise MxError(f"{self.name}: {self._follower.trouble}")
        now = time.time()
        taken = self._recent.take(self._follower.fold.state.books)
        loads = taken.tell(timestamp(now))
        kept = Kept.of(loads, taken.before, self._follower.snapshot_events)
        return listing(kept, now, load_id)


class Remote:
    """An exporter elsewhere, by HTTP."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{address}: expected http://HOST:PORT of an exporter, or a directory")
        user, at, host = parts.netloc.rpartition("@")
        self._headers = {}
        if at:
            plain = unquote(user).encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(plain).decode()}"
        path = parts.path.rstrip("/").removesuffix("/loads.json")
        self.name = urlunsplit((parts.scheme, host, path, "", ""))

    def read(self, load_id: str | None = None) -> dict[str, Any]:
        query = "" if load_id is None else f"?id={quote(load_id, safe='')}"
        request = urllib.request.Request(f"{self.name}/loads.json{query}", headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                text = answer.read(MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise MxError(f"{self.name} answers {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise MxError(f"{self.name} cannot be reached: {reason}") from None
        try:
            found = json.loads(text)
            if isinstance(found["loads"], list) and isinstance(found["running"], list):
                return dict(found)
        except (ValueError, KeyError, TypeError):
            pass
        raise MxError(f"{self.name}/loads.json is not what an exporter answers")
