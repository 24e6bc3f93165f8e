"""The archives of compile caches that a load installed, from its events."""

from __future__ import annotations

from typing import Any

from .model import Artifact
from .spans import Clock, Spans, number


class Artifacts:
    """Takes the events of archives."""

    __slots__ = ("_archives", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By kind of cache and name of the archive.
        self._archives: dict[tuple[str, str], _Archive] = {}

    def told(self, *, over: bool) -> tuple[Artifact, ...]:
        """What is known of each. ``over``: the load is, so their steps are as well."""
        return tuple(
            Artifact(
                artifact=artifact,
                archive=name,
                at=archive.at,
                steps=archive.steps.in_order(whole=over),
                size=archive.size,
            )
            for (artifact, name), archive in self._archives.items()
        )

    # Each returns whether the event is told by it.

    def step_started(self, event: Any, at: float) -> bool:
        self._archive(event, at).steps.began[event.step] = at
        return True

    def step_finished(self, event: Any, at: float) -> bool:
        archive = self._archive(event, at - (number(event.seconds) or 0.0))
        archive.steps.end(event.step, at, event)
        return True

    def extracted(self, event: Any, at: float) -> bool:
        self._archive(event, at).size = number(event.bytes)
        return True

    def _archive(self, event: Any, at: float) -> _Archive:
        key = (event.artifact, event.archive)
        archive = self._archives.get(key)
        if archive is None:
            archive = self._archives[key] = _Archive(max(0.0, at), Spans(self._clock))
        return archive


class _Archive:
    """One of them."""

    __slots__ = ("at", "size", "steps")

    def __init__(self, at: float, steps: Spans) -> None:
        self.at = at
        self.size: float | None = None
        self.steps = steps
