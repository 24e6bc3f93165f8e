"""A load as a list of steps, in the order of time: phases, what ran within them, and time that
nothing covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from .model import Attempt, Load, Selection, Span
from .parts import CHAIN, uncovered
from .why import error_of


class Step(NamedTuple):
    """One of them."""

    at: float
    #: None: it never ended, or there is no duration to it.
    took: float | None
    depth: int
    text: str
    #: Share of the load; of what others are a part of, 0.
    share: float = 0.0
    #: ``good``, ``bad``, ``open`` for what never ended, ``alone`` for what no event covers.
    kind: str = ""


def steps(load: Load) -> list[Step]:
    """The steps of a load."""
    found = [*_phases(load), *_selections(load), *_attempts(load), *_artifacts(load)]
    within = {CHAIN: 1}
    for gap in uncovered(load):
        inside = any(
            span.name in within and span.at <= gap.at + 0.001 and _end(load, span) >= gap.at
            for span in load.phases
        )
        found.append(
            Step(gap.at, gap.seconds, int(inside), gap.name, _share(load, gap.seconds), "alone")
        )
    return sorted(found, key=lambda row: round(row.at, 3))


def _phases(load: Load) -> Iterator[Step]:
    inside = {"artifact_install": bool(load.artifacts), CHAIN: bool(load.attempts)}
    for span in load.phases:
        gap = span.name == CHAIN and not load.attempts and span.seconds is not None
        leaf = not inside.get(span.name) and not gap
        yield _of_span(load, span, 0, span.name, leaf=leaf)


def _of_span(load: Load, span: Span, depth: int, text: str, *, leaf: bool = True) -> Step:
    kind = ""
    share = _share(load, span.seconds) if leaf else 0.0
    if span.seconds is None:
        text, kind = f"{text}   never ended", "open"
        share = _share(load, load.elapsed - span.at) if leaf else 0.0
    elif span.error_type or span.error:
        text, kind = f"{text}   {error_of(span)}", "bad"
    return Step(span.at, span.seconds, depth, text, share, kind)


def _selections(load: Load) -> Iterator[Step]:
    for each in load.selections:
        yield Step(each.at, None, 1, _listed(each))
        if each.candidates:
            loads = "   ".join(
                f"{candidate.peer} "
                + ("unpublished" if candidate.load is None else f"{candidate.load:.2f}")
                for candidate in each.candidates
            )
            yield Step(each.at, None, 2, loads)


def _listed(selection: Selection) -> str:
    if selection.result == "empty":
        return f"no source was listed; by {selection.policy}"
    counts = selection.counts
    told = []
    if "listed" in counts:
        told.append(f"{counts['listed']:.0f} listed")
    for stage, word in (
        ("rank_matched", "of this rank"),
        ("accelerator_matched", "of this accelerator"),
    ):
        if stage in counts:
            told.append(f"{counts[stage]:.0f} {word}")
    if selection.result not in (None, "ok"):
        told.append(f"result {selection.result}")
    if selection.seconds is not None:
        told.append(f"put in order in {selection.seconds * 1000:.1f} ms")
    return f"{', '.join(told) or 'sources'}; by {selection.policy or 'an unknown policy'}"


def _attempts(load: Load) -> Iterator[Step]:
    for number, attempt in enumerate(load.attempts, 1):
        kind = "good" if attempt.succeeded else "bad"
        peer = attempt.peer or "an unknown peer"
        text = f"attempt {number}: {peer}   {_result(load, attempt)}"
        yield Step(
            attempt.at,
            attempt.seconds,
            1,
            text,
            0.0 if attempt.phases else _share(load, attempt.seconds),
            "open" if attempt.seconds is None else kind,
        )
        for span in attempt.phases:
            yield _of_span(load, span, 2, span.name)


def _result(load: Load, attempt: Attempt) -> str:
    if attempt.seconds is None:
        return "runs" if load.outcome == "running" else "never ended"
    told = attempt.result or "no event says how it ended"
    if attempt.failures:
        counts = Counter(attempt.failures)
        told += (
            f" (nixl: {', '.join(f'{kind} x{n}' if n > 1 else kind for kind, n in counts.items())})"
        )
    if attempt.received and attempt.received != "complete":
        told += f", the receive was {attempt.received}"
    return told


def _artifacts(load: Load) -> Iterator[Step]:
    for each in load.artifacts:
        size = "" if each.size is None else f", {each.size / 1e6:.1f} MB"
        yield Step(each.at, None, 1, f"{each.artifact} ({each.archive}){size}")
        for step in each.steps:
            yield _of_span(load, step, 2, step.name)


def _share(load: Load, seconds: float | None) -> float:
    return 0.0 if not seconds or load.elapsed <= 0 else seconds / load.elapsed


def _end(load: Load, span: Span) -> float:
    return load.elapsed if span.seconds is None else span.at + span.seconds
