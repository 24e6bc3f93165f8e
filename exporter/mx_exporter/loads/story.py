"""From the events of one load to what became of it.

Attempts are joined to their peers by the order of events, which is that of one thread: a phase
``metadata``, then the choice of the peer, the other phases, the end. Two attempts that overlap
cannot be told apart, and then no event is held to say which peer was whose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from ..core.decode import Event, name_of
from ..core.reducers import refusal
from .model import (
    Artifact,
    Attempt,
    Candidate,
    Load,
    Process,
    Record,
    Selection,
    Span,
    earlier,
    microseconds,
)

#: Seconds by which timestamps may differ from what durations say. More, and somebody set the clock.
CLOCK_TOLERANCE = 1.0

#: In a captured record of the client's own log: the peer that it tries next.
_TRIES = re.compile(r"source_attempt_index=\d+ source_worker_id=(\S+)")


def number(value: Any) -> float | None:
    """A duration or an amount as an event gives it; None for what is none."""
    if type(value) is float and 0.0 <= value < inf:
        return value
    if value is None or refusal(value) is not None or value < 0:
        return None
    return float(value)


class Story:
    """Takes the events of one load in the order of their numbers, and tells what they say.

    :param began: the timestamp at which it began.
    """

    def __init__(self, began: str) -> None:
        self._clock = _Clock(began)
        self._load_phases = _Spans()
        self._phases: list[Span] = []
        self._selections: list[_Selection] = []
        self._attempts: list[_Attempt] = []
        self._artifacts: list[_Artifact] = []
        self._records: list[Record] = []
        self._others: dict[str, int] = {}
        self._engine = ""
        self._model: str | None = None
        self._role = ""
        self._end: Any = None
        #: The peer that the client's own log names for the attempt that comes next.
        self._announced: str | None = None

    def take(self, event: Any) -> None:
        """The next event of the load."""
        at = self._clock.at(event.timestamp)
        told = _TOLD.get(type(event).__name__)
        if told is None or not told(self, event, at):
            name = name_of(event)
            self._others[name] = self._others.get(name, 0) + 1

    def load(
        self,
        process: Process,
        first: Event,
        last: Event,
        outcome: str,
        *,
        missing: int,
        more: dict[str, int],
    ) -> Load:
        """What was told.

        :param first: its first event.
        :param last: its last one.
        :param outcome: what became of it, if no event says that it ended.
        :param missing: numbers between them that were not met.
        :param more: events of it that were counted only, by name.
        """
        end = self._end
        now = self._clock.now
        seconds = None
        if end is not None:
            seconds = number(end.seconds)
            seconds = now if seconds is None else seconds
            self._clock.check(seconds)
            outcome = "success" if end.outcome == "success" else "error"
        others = dict(self._others)
        for name, count in more.items():
            others[name] = others.get(name, 0) + count
        phases = [*self._phases, *self._load_phases.open()]
        return Load(
            load_id=last.load_id,
            process=process,
            rank=last.rank,
            engine=self._engine,
            model=self._model,
            role=self._role,
            scheme=last.scheme,
            began=self._clock.began,
            ended=None if end is None else end.timestamp,
            last=last.timestamp,
            seconds=seconds,
            outcome=outcome,
            error_type=None if end is None else end.error_type,
            error=None if end is None else end.error,
            phases=tuple(sorted(phases, key=_position)),
            selections=tuple(each.selection() for each in self._selections),
            attempts=tuple(each.attempt(over=end is not None) for each in self._attempts),
            artifacts=tuple(each.artifact(over=end is not None) for each in self._artifacts),
            records=tuple(self._records),
            others=others,
            first_seq=first.seq,
            last_seq=last.seq,
            missing=missing,
            clock_stepped=self._clock.stepped,
            ahead=self._clock.ahead,
        )

    # Each returns whether the event is told by it.

    def _load_started(self, event: Any, _: float) -> bool:
        self._name(event)
        return True

    def _load_finished(self, event: Any, _: float) -> bool:
        if event.timed is False:
            return False
        self._name(event)
        self._end = event
        return True

    def _name(self, event: Any) -> None:
        self._engine, self._model, self._role = event.engine, event.model, event.model_role

    def _phase_started(self, event: Any, at: float) -> bool:
        self._load_phases.start(event.phase, at)
        return True

    def _phase_finished(self, event: Any, at: float) -> bool:
        self._engine = self._engine or event.engine
        self._model = self._model or event.model
        timed = event.timed is not False
        self._phases.append(self._load_phases.end(event.phase, at, event, self._clock, timed=timed))
        return True

    def _attempt_phase_started(self, event: Any, at: float) -> bool:
        attempt = self._attempt_for(event.phase, event.policy, at)
        attempt.spans.start(event.phase, at)
        attempt.touched(at)
        return True

    def _attempt_phase_finished(self, event: Any, at: float) -> bool:
        phase = event.phase
        running = [each for each in self._attempts if not each.ended and phase in each.spans]
        if len(running) == 1:
            attempt = running[0]
        else:
            began = at - (number(event.seconds) or 0.0)
            if running:
                attempt = min(running, key=lambda each: abs(each.spans.began(event.phase) - began))
            else:
                attempt = self._attempt_for(event.phase, event.policy, began)
        span = attempt.spans.end(event.phase, at, event, self._clock)
        attempt.phases.append(span)
        if event.outcome != "ok" or event.error_type is not None:
            attempt.failed = span
        attempt.touched(at)
        return True

    def _selected(self, event: Any, at: float) -> bool:
        running = self._running()
        attempt = running[-1] if running else None
        if attempt is None or attempt.selected:
            attempt = self._begin(event.policy, at, overlaps=bool(attempt and len(attempt.spans)))
        attempt.selected = True
        attempt.peer = event.source_worker_id
        attempt.touched(at)
        return True

    def _transferred(self, _: Any, at: float) -> bool:
        running = self._running()
        if not running:
            return False
        running[-1].touched(at)
        return True

    def _attempted(self, event: Any, at: float) -> bool:
        running = self._running()
        # Of those that overlap, one that is in a phase still has not ended.
        over = [each for each in running if not len(each.spans)] or running
        attempt = over[0] if over else self._begin(event.policy, at)
        attempt.result = event.result
        attempt.touched(at)
        attempt.ended = True
        return True

    def _nixl_failed(self, event: Any, _: float) -> bool:
        running = self._running()
        if not running:
            return False
        running[-1].failures.append(event.kind)
        return True

    def _nixl_received(self, event: Any, _: float) -> bool:
        running = self._running()
        if not running:
            return False
        running[-1].received = event.result
        return True

    def _listed(self, event: Any, at: float) -> bool:
        self._selection("result", event.policy, at).result = event.result
        return True

    def _counted(self, event: Any, at: float) -> bool:
        count = number(event.count)
        if count is None:
            return False
        self._selection(event.stage, event.policy, at).counts[event.stage] = count
        return True

    def _ordered(self, event: Any, at: float) -> bool:
        self._selection("seconds", event.policy, at).seconds = number(event.seconds)
        return True

    def _seen(self, event: Any, at: float) -> bool:
        policy = self._selections[-1].policy if self._selections else ""
        self._selection("candidates", policy, at).candidates = tuple(
            Candidate(each.source_worker_id, number(each.load)) for each in event.loads
        )
        return True

    def _step_started(self, event: Any, at: float) -> bool:
        self._artifact(event, at).spans.start(event.step, at)
        return True

    def _step_finished(self, event: Any, at: float) -> bool:
        artifact = self._artifact(event, at - (number(event.seconds) or 0.0))
        artifact.steps.append(artifact.spans.end(event.step, at, event, self._clock))
        return True

    def _extracted(self, event: Any, at: float) -> bool:
        self._artifact(event, at).size = number(event.bytes)
        return True

    def _recorded(self, event: Any, at: float) -> bool:
        message = event.message
        self._records.append(
            Record(
                at=at,
                level=event.level,
                logger=event.logger,
                message=message,
                error_type=event.error_type,
                error=event.error,
            )
        )
        named = _TRIES.search(message or "")
        if named:
            self._announced = named[1]
        return True

    def _running(self) -> list[_Attempt]:
        return [attempt for attempt in self._attempts if not attempt.ended]

    def _attempt_for(self, phase: str, policy: str, at: float) -> _Attempt:
        """The attempt that a phase which begins is of."""
        running = self._running()
        if not running:
            return self._begin(policy, at)
        attempt = running[-1]
        again = phase in attempt.spans
        follows = phase == "metadata" and (attempt.selected or attempt.phases or attempt.spans)
        if again or follows:
            return self._begin(policy, at, overlaps=again or len(attempt.spans) > 0)
        return attempt

    def _begin(self, policy: str, at: float, *, overlaps: bool = False) -> _Attempt:
        """A new attempt; those before it are over, but for such as it overlaps with."""
        running = self._running()
        new = _Attempt(policy, at, self._announced)
        self._announced = None
        for attempt in running:
            if overlaps:
                attempt.overlaps = new.overlaps = True
            else:
                attempt.ended = True
        self._attempts.append(new)
        return new

    def _selection(self, said: str, policy: str, at: float) -> _Selection:
        """The look for sources that something is said of; another one if it was said already."""
        last = self._selections[-1] if self._selections else None
        if last is None or said in last.said or last.attempts != len(self._attempts):
            last = _Selection(policy, at, len(self._attempts))
            self._selections.append(last)
        last.said.add(said)
        return last

    def _artifact(self, event: Any, at: float) -> _Artifact:
        for each in self._artifacts:
            if (each.artifact_name, each.archive) == (event.artifact, event.archive):
                return each
        new = _Artifact(event.artifact, event.archive, at)
        self._artifacts.append(new)
        return new


#: event -> what tells it
_TOLD: dict[str, Callable[[Story, Any, float], bool]] = {
    "load_started": Story._load_started,
    "load_finished": Story._load_finished,
    "load_phase_started": Story._phase_started,
    "load_phase_finished": Story._phase_finished,
    "source_attempt_phase_started": Story._attempt_phase_started,
    "source_attempt_phase_finished": Story._attempt_phase_finished,
    "source_selected": Story._selected,
    "transfer_finished": Story._transferred,
    "source_attempted": Story._attempted,
    "nixl_failed": Story._nixl_failed,
    "nixl_received": Story._nixl_received,
    "sources_listed": Story._listed,
    "candidates_counted": Story._counted,
    "sources_ordered": Story._ordered,
    "candidate_loads_seen": Story._seen,
    "artifact_install_step_started": Story._step_started,
    "artifact_install_step_finished": Story._step_finished,
    "artifact_extracted": Story._extracted,
    "log_recorded": Story._recorded,
}


def observed(event: Any, process: Process) -> Load:
    """A load of which nothing is known but that it ended, and how long it took."""
    seconds = number(event.seconds)
    return Load(
        load_id=None,
        process=process,
        rank=event.rank,
        engine=event.engine,
        model=event.model,
        role=event.model_role,
        scheme=event.scheme,
        began=earlier(event.timestamp, seconds or 0.0),
        ended=event.timestamp,
        last=event.timestamp,
        seconds=seconds,
        outcome="success" if event.outcome == "success" else "error",
        error_type=event.error_type,
        error=event.error,
        first_seq=event.seq,
        last_seq=event.seq,
    )


class _Clock:
    """Seconds since the load began, by timestamps that durations put right."""

    def __init__(self, began: str) -> None:
        self.began = began
        self.stepped = False
        self.now = 0.0
        self._zero = microseconds(began)
        #: The timestamp met last without its fraction, and microseconds from the begin to it.
        self._second = ""
        self._begin = 0
        #: Seconds that the clock was set forward by since.
        self.ahead = 0.0

    def at(self, timestamp: str) -> float:
        """Where an event lies; none lies before the one that was logged before it."""
        if timestamp[:20] != self._second:  # which many events share
            self._second = timestamp[:20]
            self._begin = microseconds(self._second + "000000Z") - self._zero
        at = (self._begin + int(timestamp[20:26])) / 1e6 - self.ahead
        if at < self.now:
            self._set(self.now - at)
            at = self.now
        self.now = at
        return at

    def check(self, should: float) -> float:
        """The event just met lies at ``should`` by a duration; returns where it lies."""
        if abs(self.now - should) > CLOCK_TOLERANCE:
            self._set(should - self.now)
            self.now = max(0.0, should)
        return self.now

    def _set(self, by: float) -> None:
        self.ahead -= by
        self.stepped = self.stepped or abs(by) > CLOCK_TOLERANCE


class _Spans:
    """What has started and not ended: name to where it began."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def __len__(self) -> int:
        return len(self._open)

    def start(self, name: str, at: float) -> None:
        self._open[name] = at

    def began(self, name: str) -> float:
        return self._open[name]

    def end(self, name: str, at: float, event: Any, clock: _Clock, *, timed: bool = True) -> Span:
        """The span that an event ends, which a timer logged, or somebody who measured it."""
        began = self._open.pop(name, None) if timed else None
        seconds = number(event.seconds)
        if began is None:
            began = max(0.0, at - (seconds or 0.0))
            seconds = at - began if seconds is None else seconds
        elif seconds is None:
            seconds = at - began
        else:
            clock.check(began + seconds)
        error_type, error = event.error_type, event.error
        return Span(name=name, at=began, seconds=seconds, error_type=error_type, error=error)

    def open(self) -> Iterable[Span]:
        """Those that never ended."""
        return [Span(name=name, at=at, seconds=None) for name, at in self._open.items()]


class _Attempt:
    """An attempt as its events come."""

    def __init__(self, policy: str, at: float, peer: str | None) -> None:
        self.policy = policy
        self.at = self.latest = at
        self.peer = peer
        self.selected = False
        self.result: str | None = None
        self.spans = _Spans()
        self.phases: list[Span] = []
        self.failed: Span | None = None
        self.failures: list[str] = []
        self.received: str | None = None
        self.ended = False
        #: Another one ran at the same time.
        self.overlaps = False

    def touched(self, at: float) -> None:
        if at > self.latest:
            self.latest = at

    def attempt(self, *, over: bool) -> Attempt:
        """What is known of it. ``over``: the load is, so it is as well."""
        failed = self.failed
        return Attempt(
            policy=self.policy,
            peer=None if self.overlaps else self.peer,
            result=self.result,
            at=self.at,
            seconds=self.latest - self.at if self.ended or over else None,
            phases=tuple(sorted([*self.phases, *self.spans.open()], key=_position)),
            error_type=failed.error_type if failed else None,
            error=failed.error if failed else None,
            failures=tuple(self.failures),
            received=self.received,
        )


class _Selection:
    """A look for sources as its events come."""

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

    def selection(self) -> Selection:
        return Selection(
            policy=self.policy,
            at=self.at,
            result=self.result,
            counts=self.counts,
            seconds=self.seconds,
            candidates=self.candidates,
        )


class _Artifact:
    """An archive as its events come."""

    def __init__(self, artifact: str, archive: str, at: float) -> None:
        self.artifact_name = artifact
        self.archive = archive
        self.at = max(0.0, at)
        self.size: float | None = None
        self.spans = _Spans()
        self.steps: list[Span] = []

    def artifact(self, *, over: bool) -> Artifact:
        steps = self.steps if over else [*self.steps, *self.spans.open()]
        return Artifact(
            artifact=self.artifact_name,
            archive=self.archive,
            at=self.at,
            steps=tuple(sorted(steps, key=_position)),
            size=self.size,
        )


def _position(span: Span) -> float:
    return span.at
