"""A load as a list of steps, in the order of time: what `explain` shows.

A step stands below the one that it is a part of: phases of the load at the top, what went on in
them below, and the phases of an attempt below that.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from .model import Artifact, Attempt, Load, Selection, Span


class Step(Struct, frozen=True, kw_only=True, gc=False):
    """One line of it."""

    #: 0 at the top.
    depth: int
    at: float
    #: None: it never ended, or no event says how long it took.
    seconds: float | None
    text: str
    error: str = ""


def steps(load: Load) -> list[Step]:
    """The steps of a load. What no event covers is no step: see `parts.uncovered`."""
    phases = sorted(load.phases, key=lambda span: span.at)
    inner = sorted(_inner(load), key=lambda block: block[0].at)
    found: list[Step] = []
    number = 0
    for position, phase in enumerate(phases):
        found.append(_span(phase, 0))
        # What began before the next phase did is a part of this one.
        later = phases[position + 1].at if position + 1 < len(phases) else float("inf")
        while number < len(inner) and inner[number][0].at < later:
            found += inner[number]
            number += 1
    for block in inner[number:]:
        found += block
    return found


def _inner(load: Load) -> Iterator[list[Step]]:
    for selection in load.selections:
        yield [_selection(selection)]
    for number, attempt in enumerate(load.attempts, 1):
        yield [_attempt(attempt, number), *(_span(span, 2) for span in attempt.phases)]
    for artifact in load.artifacts:
        yield [_artifact(artifact), *(_span(span, 2) for span in artifact.steps)]


def _span(span: Span, depth: int) -> Step:
    return Step(
        depth=depth, at=span.at, seconds=span.seconds, text=span.name, error=error_text(span)
    )


def _selection(selection: Selection) -> Step:
    counts = ", ".join(f"{count:g} {stage}" for stage, count in selection.counts.items())
    order = ", ".join(
        f"{one.peer} {'unpublished' if one.load is None else f'{one.load:.2f}'}"
        for one in selection.candidates
    )
    parts = [f"sources {selection.result or ''}".strip(), counts, order and f"order: {order}"]
    return Step(
        depth=1,
        at=selection.at,
        seconds=selection.seconds,
        text="; ".join(filter(None, parts)) + f"; by {selection.policy}",
    )


def _attempt(attempt: Attempt, number: int) -> Step:
    said = [f"attempt {number}: {attempt.peer or 'a peer that no event names'}"]
    said.append(attempt.result or ("never ended" if attempt.seconds is None else ""))
    if attempt.received and attempt.received != "complete":
        said.append(f"received {attempt.received}")
    said += attempt.failures
    return Step(depth=1, at=attempt.at, seconds=attempt.seconds, text=", ".join(filter(None, said)))


def _artifact(artifact: Artifact) -> Step:
    size = "" if artifact.size is None else f", {artifact.size / 1e6:.0f} MB"
    ended = [span.seconds for span in artifact.steps if span.seconds is not None]
    return Step(
        depth=1,
        at=artifact.at,
        seconds=sum(ended) if ended else None,
        text=f"{artifact.artifact} of {artifact.archive}{size}",
    )


def error_text(failed: Span | Attempt | Load) -> str:
    """The exception in which it ended, empty where it did not."""
    return ": ".join(filter(None, (failed.error_type, failed.error)))
