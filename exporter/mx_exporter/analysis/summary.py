"""What many loads come to.

They are gathered one by one, in room that grows with a number a load.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from ..loads.model import Load
from ..loads.quantiles import quantile

#: What loads can be grouped by.
KEYS: dict[str, Callable[[Load], str]] = {
    "pod": lambda load: load.process.place,
    "node": lambda load: load.process.node or "unknown",
    "model": lambda load: load.model or "unknown",
    "scheme": lambda load: load.scheme or "none",
    "version": lambda load: load.process.version or "unknown",
}


class Group:
    """Loads, or attempts, that have something in common."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        #: Seconds of those that ended well.
        self.seconds = array("d")

    def add(self, outcome: str, seconds: float | None) -> None:
        """One more."""
        self.outcomes[outcome] += 1
        if outcome == "success" and seconds is not None:
            self.seconds.append(seconds)

    def quantile(self, q: float) -> float | None:
        """Exact, of those that ended well."""
        return quantile(self.seconds, q)

    @property
    def total(self) -> int:
        """How many there are."""
        return self.outcomes.total()


class Summary:
    """Loads as they come.

    :param most: how many are kept whole, those that matter most.
    :param by: a key of `KEYS`; peers are told apart whatever it is.
    """

    def __init__(self, most: int | None = None, by: str | None = None) -> None:
        self.all = Group()
        self.groups: dict[str, Group] = {}
        self.peers: dict[str, Group] = {}
        self.schemes: set[str] = set()
        self.pods: set[str] = set()
        #: Peers whose attempts never ended: how many.
        self.hanging: Counter[str] = Counter()
        #: Seconds of the slowest that ended well.
        self.slowest = 0.0
        #: Seconds of all that were not kept.
        self.left: list[float] = []
        self._most = most
        self._key = KEYS.get(by or "")
        self._worst: list[tuple[tuple[Any, ...], int, Load]] = []
        self._number = count()

    def add(self, load: Load) -> None:
        """One more load."""
        self.all.add(load.outcome, load.seconds)
        self.schemes.add(load.scheme)
        self.pods.add(load.process.pod_uid or load.process.place)
        if load.outcome == "success":
            self.slowest = max(self.slowest, load.elapsed)
        if self._key is not None:
            self.groups.setdefault(self._key(load), Group()).add(load.outcome, load.seconds)
        for attempt in load.attempts:
            peer = self.peers.setdefault(attempt.peer or "unknown", Group())
            received = [span.seconds for span in attempt.phases if span.name == "receive"]
            result = "success" if attempt.succeeded else attempt.result or "open"
            peer.add(result, received[-1] if received else attempt.seconds)
            if attempt.seconds is None:
                self.hanging[attempt.peer or "unknown"] += 1
        self._keep(load)

    def worst(self) -> list[Load]:
        """Those that were kept: running ones, then those that came to a bad end, then the
        slowest."""
        return [load for _, _, load in sorted(self._worst, reverse=True)]

    def _keep(self, load: Load) -> None:
        entry = (_weight(load), next(self._number), load)
        if self._most is None or len(self._worst) < self._most:
            heapq.heappush(self._worst, entry)
            return
        (_, _, left) = heapq.heappushpop(self._worst, entry) if self._most else entry
        if not self.left:
            self.left = [left.elapsed, left.elapsed]
        self.left = [min(self.left[0], left.elapsed), max(self.left[1], left.elapsed)]


_RANKS = {"running": 3, "killed": 2, "unknown": 2, "error": 1, "success": 0}


def _weight(load: Load) -> tuple[Any, ...]:
    """The more, the sooner a load is shown; the same whatever the order of reading."""
    known = (load.began, load.process.proc, load.first_seq)
    return (_RANKS[load.outcome], load.elapsed, *known)
