"""The attempts of a load at sources, from its events.

Attempts are joined to their peers by the order of events, which is that of one thread: a phase
``metadata``, then the choice of the peer, the other phases, the end. Two attempts that overlap
cannot be told apart, and then no event is held to say which peer was whose.
"""

from __future__ import annotations

from typing import Any

from .model import Attempt, Span
from .spans import Clock, Spans, number


class Attempts:
    """Takes the events of attempts."""

    __slots__ = ("_all", "_clock", "_running", "announced")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: list[_Attempt] = []
        #: Those of them that did not end.
        self._running: list[_Attempt] = []
        #: The peer that the client's own log names for the attempt that comes next.
        self.announced: str | None = None

    def __len__(self) -> int:
        return len(self._all)

    def told(self, *, over: bool) -> tuple[Attempt, ...]:
        """What is known of each. ``over``: the load is, so they are as well."""
        return tuple([each.told(ended=over or each not in self._running) for each in self._all])

    # Each returns whether the event is told by it.

    def phase_started(self, event: Any, at: float) -> bool:
        phase = event.phase
        attempt = self._attempt_for(phase, event.policy, at)
        attempt.phases.began[phase] = at
        attempt.latest = max(attempt.latest, at)
        return True

    def phase_finished(self, event: Any, at: float) -> bool:
        phase = event.phase
        within = [each for each in self._running if phase in each.phases.began]
        if len(within) == 1:
            attempt = within[0]
        else:
            began = at - (number(event.seconds) or 0.0)
            if within:
                attempt = min(within, key=lambda each: abs(each.phases.began[phase] - began))
            else:
                attempt = self._attempt_for(phase, event.policy, began)
        span = attempt.phases.end(phase, at, event)
        if event.outcome != "ok" or event.error_type is not None:
            attempt.failed = span
        attempt.latest = max(attempt.latest, at)
        return True

    def selected(self, event: Any, at: float) -> bool:
        attempt = self._running[-1] if self._running else None
        if attempt is None or attempt.selected:
            overlaps = attempt is not None and bool(attempt.phases.began)
            attempt = self._begin(event.policy, at, overlaps=overlaps)
        attempt.selected = True
        attempt.peer = event.source_worker_id
        attempt.latest = max(attempt.latest, at)
        return True

    def transferred(self, _: Any, at: float) -> bool:
        if not self._running:
            return False
        attempt = self._running[-1]
        attempt.latest = max(attempt.latest, at)
        return True

    def attempted(self, event: Any, at: float) -> bool:
        running = self._running
        # Of those that overlap, one that is in a phase still has not ended.
        over = [each for each in running if not each.phases.began] or running
        attempt = over[0] if over else self._begin(event.policy, at)
        attempt.result = event.result
        attempt.latest = max(attempt.latest, at)
        running.remove(attempt)
        return True

    def failed(self, event: Any, _: float) -> bool:
        if not self._running:
            return False
        self._running[-1].failures.append(event.kind)
        return True

    def received(self, event: Any, _: float) -> bool:
        if not self._running:
            return False
        self._running[-1].received = event.result
        return True

    def _attempt_for(self, phase: str, policy: str, at: float) -> _Attempt:
        """The attempt that a phase which begins is of."""
        if not self._running:
            return self._begin(policy, at)
        attempt = self._running[-1]
        phases = attempt.phases
        again = phase in phases.began
        follows = phase == "metadata" and (attempt.selected or phases.ended or phases.began)
        if again or follows:
            return self._begin(policy, at, overlaps=bool(phases.began))
        return attempt

    def _begin(self, policy: str, at: float, *, overlaps: bool = False) -> _Attempt:
        """A new attempt; those before it are over, but for such as it overlaps with."""
        new = _Attempt(policy, at, self.announced, Spans(self._clock))
        self.announced = None
        if overlaps:
            for attempt in self._running:
                attempt.overlaps = new.overlaps = True
        else:
            self._running.clear()
        self._all.append(new)
        self._running.append(new)
        return new


class _Attempt:
    """An attempt as its events come."""

    __slots__ = (
        "at",
        "failed",
        "failures",
        "latest",
        "overlaps",
        "peer",
        "phases",
        "policy",
        "received",
        "result",
        "selected",
    )

    def __init__(self, policy: str, at: float, peer: str | None, phases: Spans) -> None:
        self.policy = policy
        self.at = self.latest = at
        self.peer = peer
        self.selected = False
        self.result: str | None = None
        self.phases = phases
        self.failed: Span | None = None
        self.failures: list[str] = []
        self.received: str | None = None
        #: Another one ran at the same time.
        self.overlaps = False

    def told(self, *, ended: bool) -> Attempt:
        """What is known of it."""
        failed = self.failed
        return Attempt(
            policy=self.policy,
            peer=None if self.overlaps else self.peer,
            result=self.result,
            at=self.at,
            seconds=self.latest - self.at if ended else None,
            phases=self.phases.in_order(),
            error_type=failed.error_type if failed else None,
            error=failed.error if failed else None,
            failures=tuple(self.failures),
            received=self.received,
        )
