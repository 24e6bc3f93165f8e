"""From the events of one load to what became of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..core.decode import Event, name_of
from .artifacts import Artifacts
from .attempts import Attempts
from .model import Load, Process, Record, earlier
from .searches import Searches
from .spans import Clock, Spans, number

#: In a captured record of the client's own log: the peer that it tries next.
_TRIES = re.compile(r"source_attempt_index=\d+ source_worker_id=(\S+)")


class Story:
    """Takes the events of one load in the order of their numbers, and tells what they say.

    :param began: the timestamp at which it began.
    """

    def __init__(self, began: str) -> None:
        clock = self._clock = Clock(began)
        self._phases = Spans(clock)
        self._attempts = Attempts(clock)
        self._searches = Searches(self._attempts)
        self._artifacts = Artifacts(clock)
        self._records: list[Record] = []
        self._others: dict[str, int] = {}
        self._engine = ""
        self._model: str | None = None
        self._role = ""
        self._end: Any = None

    def take(self, events: Sequence[Any]) -> None:
        """The next events of the load."""
        tellers = self._tellers()
        for event, at in self._clock.along(events):
            tell = tellers.get(type(event).__name__)
            if tell is None or not tell(event, at):
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
            phases=self._phases.in_order(),
            selections=self._searches.told(),
            attempts=self._attempts.told(over=end is not None),
            artifacts=self._artifacts.told(over=end is not None),
            records=tuple(self._records),
            others=others,
            first_seq=first.seq,
            last_seq=last.seq,
            missing=missing,
            clock_stepped=self._clock.stepped,
            ahead=self._clock.ahead,
        )

    def _tellers(self) -> dict[str, Callable[[Any, float], bool]]:
        """What takes an event, by its name; it returns whether it tells it."""
        attempts, searches, artifacts = self._attempts, self._searches, self._artifacts
        return {
            "load_started": self._started,
            "load_finished": self._finished,
            "load_phase_started": self._phase_started,
            "load_phase_finished": self._phase_finished,
            "source_attempt_phase_started": attempts.phase_started,
            "source_attempt_phase_finished": attempts.phase_finished,
            "source_selected": attempts.selected,
            "transfer_finished": attempts.transferred,
            "source_attempted": attempts.attempted,
            "nixl_failed": attempts.failed,
            "nixl_received": attempts.received,
            "sources_listed": searches.listed,
            "candidates_counted": searches.counted,
            "sources_ordered": searches.ordered,
            "candidate_loads_seen": searches.seen,
            "artifact_install_step_started": artifacts.step_started,
            "artifact_install_step_finished": artifacts.step_finished,
            "artifact_extracted": artifacts.extracted,
            "log_recorded": self._recorded,
        }

    def _started(self, event: Any, _: float) -> bool:
        self._name(event)
        return True

    def _finished(self, event: Any, _: float) -> bool:
        if event.timed is False:
            return False
        self._name(event)
        self._end = event
        return True

    def _name(self, event: Any) -> None:
        self._engine, self._model, self._role = event.engine, event.model, event.model_role

    def _phase_started(self, event: Any, at: float) -> bool:
        self._phases.began[event.phase] = at
        return True

    def _phase_finished(self, event: Any, at: float) -> bool:
        self._engine = self._engine or event.engine
        self._model = self._model or event.model
        self._phases.end(event.phase, at, event, timed=event.timed is not False)
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
            self._attempts.announced = named[1]
        return True


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
