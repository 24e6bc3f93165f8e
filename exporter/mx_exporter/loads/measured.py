"""What a comparison needs of a load: its figures, without its story."""

from __future__ import annotations

from msgspec import Struct

from .model import Load
from .parts import parts
from .starts import Began, began
from .why import error_of


class Measured(Struct, frozen=True, kw_only=True, gc=False):
    """The figures of one load, in seconds."""

    began: Began
    outcome: str
    #: None unless it ended.
    seconds: float | None
    engine: str
    scheme: str
    version: str | None
    node: str | None
    #: Phases of the load that ended well, by name.
    phases: dict[str, float] = {}
    #: Phases of attempts that ended well, by name: one of each.
    attempt_phases: dict[str, list[float]] = {}
    #: Seconds by kind of part; they add up to `seconds`.
    parts: dict[str, float] = {}
    #: Peer, and whether the weights came from it, of each attempt.
    attempts: list[tuple[str | None, bool]] = []
    #: Attempts that never ended.
    unfinished: int = 0
    #: The text of its error.
    error: str | None = None

    @property
    def model(self) -> str | None:
        """The model that it loaded."""
        return self.began.model


def measured(load: Load) -> Measured:
    """The figures of a load."""
    phases: dict[str, float] = {}
    for span in load.phases:
        if span.seconds is not None and span.error_type is None:
            phases[span.name] = phases.get(span.name, 0.0) + span.seconds
    attempt_phases: dict[str, list[float]] = {}
    for attempt in load.attempts:
        for span in attempt.phases:
            if span.seconds is not None and span.error_type is None:
                attempt_phases.setdefault(span.name, []).append(span.seconds)
    found: dict[str, float] = {}
    for part in parts(load):
        found[part.kind] = found.get(part.kind, 0.0) + part.seconds
    return Measured(
        began=began(load),
        outcome=load.outcome,
        seconds=load.seconds,
        engine=load.engine,
        scheme=load.scheme,
        version=load.process.version,
        node=load.process.node,
        phases=phases,
        attempt_phases=attempt_phases,
        parts=found,
        attempts=[(attempt.peer, attempt.succeeded) for attempt in load.attempts],
        unfinished=sum(attempt.seconds is None for attempt in load.attempts),
        error=error_of(load) if load.outcome == "error" else None,
    )
