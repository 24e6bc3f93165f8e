"""What the time of a load went to: parts that follow each other and add up to all of it."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from .model import Load, Span


class Kind(NamedTuple):
    """A kind of part."""

    #: By which a bar shows it.
    letter: str
    #: What it is called in a legend.
    doc: str


ARTIFACTS, INIT, PEER, FAILED, ALONE, PUBLISH, OTHER, NONE, OPEN = (
    "artifact_install",
    "model_init",
    "peer",
    "failed",
    "alone",
    "publish",
    "other",
    "none",
    "open",
)

KINDS = {
    ARTIFACTS: Kind("a", "artifact_install"),
    INIT: Kind("i", "model_init"),
    PEER: Kind("p", "from a peer"),
    FAILED: Kind("x", "failed attempt"),
    ALONE: Kind("d", "without a peer"),
    PUBLISH: Kind("u", "publish"),
    OTHER: Kind("o", "another phase"),
    NONE: Kind(".", "no phase"),
    OPEN: Kind(">", "never ended"),
}

_PHASES = {"artifact_install": ARTIFACTS, "model_init": INIT, "publish": PUBLISH}

#: What is said of time that no event covers.
_UNCOVERED = {
    ALONE: "no event says what ran here: the chain went on without a peer",
    NONE: "no event says what ran here: no phase was open",
}

#: The phase in which sources are attempted.
CHAIN = "chain"

#: Seconds; a shorter time between two parts belongs to the second of them.
_INSTANT = 0.001

#: Seconds; a shorter gap is what happens between two lines of code.
LEAST_GAP = 0.1


_at = attrgetter("at")


class Part(NamedTuple):
    """Time of a load that is of one kind, in seconds after it began."""

    kind: str
    name: str
    at: float
    seconds: float

    @property
    def end(self) -> float:
        """Where it ends."""
        return self.at + self.seconds


def parts(load: Load) -> tuple[Part, ...]:
    """A partition of `Load.elapsed`: parts in order, without gaps, that add up to it.

    What lies over another span's time belongs to the one that began first.
    """
    found: list[Part] = []
    last: Part | None = None
    for part in _cut(_of_phases(load), 0.0, load.elapsed, NONE, ""):
        # Those of one kind and name that follow each other are one.
        if last is not None and part.kind == last.kind and part.name == last.name:
            found.pop()
            part = Part(last.kind, last.name, last.at, part.end - last.at)
        found.append(part)
        last = part
    return tuple(found)


def _of_phases(load: Load) -> list[Part]:
    found: list[Part] = []
    attempted = False
    for span in load.phases:
        name, at, seconds = span.name, span.at, span.seconds
        end = load.elapsed if seconds is None else at + seconds
        if name == CHAIN:
            attempted = True
            kind = ALONE if seconds is not None or load.attempts else OPEN
            found += _cut(_of_attempts(load), at, end, kind, name)
        else:
            kind = OPEN if seconds is None else _PHASES.get(name, OTHER)
            found.append(Part(kind, name, at, end - at))
    return found if attempted else found + _of_attempts(load)


def _of_attempts(load: Load) -> list[Part]:
    found = []
    for attempt in load.attempts:
        at, seconds = attempt.at, attempt.seconds
        if seconds is None:
            kind, seconds = OPEN, load.elapsed - at
        else:
            kind = PEER if attempt.succeeded else FAILED
        found.append(Part(kind, attempt.peer or "", at, seconds))
    return found


def _cut(given: list[Part], first: float, last: float, between: str, name: str) -> list[Part]:
    """Parts within two positions, with parts of the kind ``between`` where there is none."""
    found = []
    at = first
    given.sort(key=_at)
    for kind, what, begin, seconds in given:
        end = min(begin + seconds, last)
        begin = max(begin, at)
        if end <= begin:
            continue
        if begin - at > _INSTANT:
            found.append(Part(between, name, at, begin - at))
            at = begin
        found.append(Part(kind, what, at, end - at))
        at = end
    if last > at:
        found.append(Part(between, name, at, last - at))
    return found


def uncovered(load: Load, given: Iterable[Part] | None = None) -> list[Span]:
    """Time within phases, attempts and between them that no event covers, longer than a tenth of a
    second; what can be said of each is its name.

    :param given: its `parts`, for who has them already.
    """
    return [
        Span(name=_UNCOVERED[part.kind], at=part.at, seconds=part.seconds)
        for part in (parts(load) if given is None else given)
        if part.kind in _UNCOVERED and part.seconds > LEAST_GAP
    ]
