"""Where the events of a load lie in time, and what lies between a start and an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import repeat
from math import inf
from operator import attrgetter, sub
from typing import Any

from ..core.reducers import refusal
from .model import Span, moments

#: Seconds by which timestamps may differ from what durations say. More, and somebody set the clock.
CLOCK_TOLERANCE = 1.0

_timestamp = attrgetter("timestamp")

#: Where a span lies.
position = attrgetter("at")


def number(value: Any) -> float | None:
    """A duration or an amount as an event gives it; None for what is none."""
    if type(value) is float and 0.0 <= value < inf:
        return value
    if value is None or refusal(value) is not None or value < 0:
        return None
    return float(value)


class Clock:
    """Seconds since the load began, by timestamps that durations put right.

    :param began: the timestamp at which it began.
    """

    __slots__ = ("ahead", "began", "now", "stepped")

    def __init__(self, began: str) -> None:
        self.began = began
        self.stepped = False
        self.now = 0.0
        #: Seconds that the clock was set forward by since.
        self.ahead = 0.0

    def along(self, events: Sequence[Any]) -> Iterator[tuple[Any, float]]:
        """Events in the order in which they were logged, each with where it lies; none lies before
        the one before it."""
        zero, *times = moments([self.began, *map(_timestamp, events)])
        passed = map(timedelta.total_seconds, map(sub, times, repeat(zero)))
        for event, at in zip(events, passed, strict=True):
            if self.ahead:
                at -= self.ahead
            if at < self.now:
                self._set(self.now - at)
                at = self.now
            self.now = at
            yield event, at

    def check(self, should: float) -> float:
        """The event just met lies at ``should`` by a duration; returns where it lies."""
        if abs(self.now - should) > CLOCK_TOLERANCE:
            self._set(should - self.now)
            self.now = max(0.0, should)
        return self.now

    def _set(self, by: float) -> None:
        self.ahead -= by
        self.stepped = self.stepped or abs(by) > CLOCK_TOLERANCE


class Spans:
    """What has started and not ended, by name, and what ended."""

    __slots__ = ("_clock", "began", "ended")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Name of what runs -> where it began.
        self.began: dict[str, float] = {}
        self.ended: list[Span] = []

    def end(self, name: str, at: float, event: Any, *, timed: bool = True) -> Span:
        """The span that an event ends, which a timer logged, or somebody who measured it."""
        began = self.began.pop(name, None) if timed else None
        seconds = number(event.seconds)
        if began is None:
            began = max(0.0, at - (seconds or 0.0))
            seconds = at - began if seconds is None else seconds
        elif seconds is None:
            seconds = at - began
        else:
            self._clock.check(began + seconds)
        span = Span(
            name=name, at=began, seconds=seconds, error_type=event.error_type, error=event.error
        )
        self.ended.append(span)
        return span

    def in_order(self, *, whole: bool = False) -> tuple[Span, ...]:
        """All of them, by where they began.

        :param whole: those that never ended are left out.
        """
        spans = self.ended
        if self.began and not whole:
            never = [Span(name=name, at=at, seconds=None) for name, at in self.began.items()]
            spans = [*spans, *never]
        return tuple(sorted(spans, key=position))
