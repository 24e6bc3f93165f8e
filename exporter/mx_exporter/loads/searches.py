"""The looks of a load for sources, from its events."""

from __future__ import annotations

from typing import Any

from .attempts import Attempts
from .model import Candidate, Selection
from .spans import number


class Searches:
    """Takes the events of looks for sources.

    :param attempts: those of the load: what is said of sources after one is of another look.
    """

    __slots__ = ("_attempts", "_searches")

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._searches: list[_Search] = []

    def told(self) -> tuple[Selection, ...]:
        """What is known of each."""
        return tuple(
            Selection(
                policy=each.policy,
                at=each.at,
                result=each.result,
                counts=each.counts,
                seconds=each.seconds,
                candidates=each.candidates,
            )
            for each in self._searches
        )

    # Each returns whether the event is told by it.

    def listed(self, event: Any, at: float) -> bool:
        self._search("result", event.policy, at).result = event.result
        return True

    def counted(self, event: Any, at: float) -> bool:
        count = number(event.count)
        if count is None:
            return False
        self._search(event.stage, event.policy, at).counts[event.stage] = count
        return True

    def ordered(self, event: Any, at: float) -> bool:
        self._search("seconds", event.policy, at).seconds = number(event.seconds)
        return True

    def seen(self, event: Any, at: float) -> bool:
        policy = self._searches[-1].policy if self._searches else ""
        self._search("candidates", policy, at).candidates = tuple(
            [Candidate(each.source_worker_id, number(each.load)) for each in event.loads]
        )
        return True

    def _search(self, said: str, policy: str, at: float) -> _Search:
        """The look that something is said of; another one if it was said already."""
        last = self._searches[-1] if self._searches else None
        attempts = len(self._attempts)
        if last is None or said in last.said or last.attempts != attempts:
            last = _Search(policy, at, attempts)
            self._searches.append(last)
        last.said.add(said)
        return last


class _Search:
    """A look for sources as its events come."""

    __slots__ = ("at", "attempts", "candidates", "counts", "policy", "result", "said", "seconds")

    def __init__(self, policy: str, at: float, attempts: int) -> None:
        self.policy = policy
        self.at = at
        #: Attempts that came before it.
        self.attempts = attempts
        #: What was said of it.
        self.said: set[str] = set()
        self.result: str | None = None
        self.counts: dict[str, float] = {}
        self.seconds: float | None = None
        self.candidates: tuple[Candidate, ...] = ()
