"""What the time of a load went to: parts that follow each other and add up to all of it."""

from __future__ import annotations

from collections.abc import Iterable
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

#: The phase in which sources are attempted.
CHAIN = "chain"

#: Seconds; a shorter time between two parts belongs to the second of them.
_INSTANT = 0.001

#: Seconds; a shorter gap is what happens between two lines of code.
LEAST_GAP = 0.1


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
    length = load.elapsed
    found = _cut(_of_phases(load), 0.0, length, NONE, "")
    return tuple(_merged(found))


def _of_phases(load: Load) -> Iterable[Part]:
    for span in load.phases:
        end = load.elapsed if span.seconds is None else span.at + span.seconds
        if span.name == CHAIN:
            kind = ALONE if span.seconds is not None or load.attempts else OPEN
            yield from _cut(_of_attempts(load), span.at, end, kind, span.name)
        else:
            kind = OPEN if span.seconds is None else _PHASES.get(span.name, OTHER)
            yield Part(kind, span.name, span.at, end - span.at)
    if not any(span.name == CHAIN for span in load.phases):
        yield from _of_attempts(load)


def _of_attempts(load: Load) -> Iterable[Part]:
    for attempt in load.attempts:
        seconds = attempt.seconds
        if seconds is None:
            yield Part(OPEN, attempt.peer or "", attempt.at, load.elapsed - attempt.at)
        else:
            kind = PEER if attempt.succeeded else FAILED
            yield Part(kind, attempt.peer or "", attempt.at, seconds)


def _cut(
    given: Iterable[Part], first: float, last: float, between: str, name: str
) -> Iterable[Part]:
    """Parts within two positions, with parts of the kind ``between`` where there is none."""
    at = first
    for part in sorted(given, key=_at):
        begin, end = max(part.at, at), min(part.end, last)
        if end <= begin:
            continue
        if begin - at > _INSTANT:
            yield Part(between, name, at, begin - at)
            at = begin
        yield part._replace(at=at, seconds=end - at)
        at = end
    if last > at:
        yield Part(between, name, at, last - at)


def _merged(given: Iterable[Part]) -> Iterable[Part]:
    """Parts of one kind and name that follow each other are one."""
    last: Part | None = None
    for part in given:
        if last is not None and (part.kind, part.name) == (last.kind, last.name):
            last = last._replace(seconds=part.end - last.at)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


def _at(part: Part) -> float:
    return part.at


def uncovered(load: Load, given: Iterable[Part] | None = None) -> list[Span]:
    """Time within phases, attempts and between them that no event covers, longer than a tenth of a
    second; what can be said of each is its name.

    :param given: its `parts`, for who has them already.
    """
    said = {
        ALONE: "no event says what ran here: the chain went on without a peer",
        NONE: "no event says what ran here: no phase was open",
    }
    return [
        Span(name=said[part.kind], at=part.at, seconds=part.seconds)
        for part in (parts(load) if given is None else given)
        if part.kind in said and part.seconds > LEAST_GAP
    ]
