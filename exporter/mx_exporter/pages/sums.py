"""What a report says of all loads together, gathered load by load.

Memory grows with pods, peers, models and with eight bytes a duration, not with what loads say: the
worst loads are held in full, the others in sums.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from ..loads.model import Attempt, Load

#: Loads that are held in full.
WORST = 1000

#: Different messages of failures that are told apart; the others count as one.
MOST_MESSAGES = 500

#: How bad an outcome is.
_BADNESS = {"killed": 3, "error": 2, "unknown": 1, "running": 1, "success": 0}

#: In the place of further messages.
_OTHERS = "other messages"


class Pod:
    """The loads of a pod, in sums."""

    __slots__ = ("bad", "loads", "node", "slowest", "worst")

    def __init__(self, node: str | None) -> None:
        self.node = node
        self.loads = 0
        #: Loads that ended otherwise than well.
        self.bad = 0
        self.slowest = 0.0
        self.worst: tuple[int, float] = (0, 0.0)


class Peer:
    """The attempts at a peer."""

    __slots__ = ("attempts", "by_rank", "good", "lost", "receives")

    def __init__(self) -> None:
        self.attempts = 0
        self.good = 0
        #: Seconds of attempts that failed.
        self.lost = 0.0
        #: rank -> attempts, and those that succeeded
        self.by_rank: dict[int | None, tuple[int, int]] = {}
        #: Seconds of receives that went well.
        self.receives = array("d")


class Failure(NamedTuple):
    """Failures of one message."""

    message: str
    loads: int
    attempts: int
    seconds: float
    example: str


class Sums:
    """Gathers loads for a report."""

    def __init__(self, worst: int = WORST) -> None:
        self._most = worst
        self.loads = 0
        self.outcomes: Counter[str] = Counter()
        self.first = self.last = ""
        self.models: Counter[str] = Counter()
        self.engines: Counter[str] = Counter()
        self.schemes: Counter[str] = Counter()
        #: Seconds of loads that succeeded, in all and by node.
        self.seconds = array("d")
        self.by_node: dict[str, array[float]] = {}
        #: (model, phase) -> seconds of those that ended; the phase is empty for whole loads.
        self.phases: dict[tuple[str, str], array[float]] = {}
        self.pods: dict[str, Pod] = {}
        self.peers: dict[str, Peer] = {}
        self.attempts = self.failed_attempts = 0
        self._failures: dict[str, list[float]] = {}
        self._examples: dict[str, str] = {}
        self._heap: list[tuple[tuple[int, float], int, Load]] = []
        self._tie = count()

    def add(self, load: Load) -> None:
        """Take a load."""
        self.loads += 1
        self.outcomes[load.outcome] += 1
        self.first = min(self.first or load.began, load.began)
        self.last = max(self.last, load.last)
        model = load.model or "an unnamed model"
        self.models[model] += 1
        self.engines[load.engine] += 1
        self.schemes[load.scheme] += 1
        if load.outcome == "success":
            self.seconds.append(load.elapsed)
            self._durations(model, "").append(load.elapsed)
            self.by_node.setdefault(load.process.node or "", array("d")).append(load.elapsed)
        for span in load.phases:
            if span.seconds is not None:
                self._durations(model, span.name).append(span.seconds)
        self._add_to_pod(load)
        self._add_attempts(load)
        if load.outcome == "error":
            failure = self._failure(_error(load) or "no error was logged", load)
            failure[0] += 1
        key = (_BADNESS[load.outcome], load.elapsed)
        item = (key, next(self._tie), load)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)

    def add_all(self, loads: Iterable[Load]) -> None:
        """Take loads."""
        for load in loads:
            self.add(load)

    @property
    def worst(self) -> list[Load]:
        """The worst loads: those that did not end well, then the slowest."""
        return [load for _, _, load in sorted(self._heap, key=lambda item: item[:2], reverse=True)]

    @property
    def failures(self) -> list[Failure]:
        """Failures of loads and attempts by their message, the commonest first."""
        found = [
            Failure(message, int(loads), int(attempts), seconds, self._examples[message])
            for message, (loads, attempts, seconds) in self._failures.items()
        ]
        return sorted(found, key=lambda one: (-one.loads - one.attempts, one.message))

    def _durations(self, model: str, phase: str) -> array[float]:
        return self.phases.setdefault((model, phase), array("d"))

    def _add_to_pod(self, load: Load) -> None:
        pod = self.pods.get(load.process.place)
        if pod is None:
            pod = self.pods[load.process.place] = Pod(load.process.node)
        pod.loads += 1
        pod.bad += load.outcome != "success"
        pod.slowest = max(pod.slowest, load.elapsed)
        pod.worst = max(pod.worst, (_BADNESS[load.outcome], load.elapsed))

    def _add_attempts(self, load: Load) -> None:
        for attempt in load.attempts:
            self.attempts += 1
            seconds = attempt.seconds or 0.0
            if not attempt.succeeded:
                self.failed_attempts += 1
                said = _error(attempt) or attempt.result or "never ended"
                failure = self._failure(said, load)
                failure[1] += 1
                failure[2] += seconds
            if attempt.peer is None:
                continue
            peer = self.peers.setdefault(attempt.peer, Peer())
            peer.attempts += 1
            peer.good += attempt.succeeded
            peer.lost += 0.0 if attempt.succeeded else seconds
            tried, good = peer.by_rank.get(load.rank, (0, 0))
            peer.by_rank[load.rank] = (tried + 1, good + attempt.succeeded)
            peer.receives.extend(
                span.seconds
                for span in attempt.phases
                if span.name == "receive" and span.seconds is not None and not span.error_type
            )

    def _failure(self, message: str, load: Load) -> list[float]:
        if message not in self._failures and len(self._failures) >= MOST_MESSAGES:
            message = _OTHERS
        self._examples.setdefault(message, load.load_id or "")
        return self._failures.setdefault(message, [0.0, 0.0, 0.0])


def _error(failed: Load | Attempt) -> str:
    """The whole text of an error, by which failures are told apart."""
    return ": ".join(filter(None, (failed.error_type, failed.error)))
