"""A load as one object of JSON. Its keys are stable: scripts read them."""

from __future__ import annotations

from typing import Any

from .model import Artifact, Attempt, Load, Span
from .parts import parts, uncovered
from .why import why


def as_dict(load: Load) -> dict[str, Any]:
    """The load; null stands for what no event says. Seconds all through."""
    process, given = load.process, parts(load)
    return {
        "load_id": load.load_id,
        "proc": process.proc,
        "pod": process.pod,
        "namespace": process.namespace,
        "node": process.node,
        "rank": load.rank,
        "engine": load.engine or None,
        "model": load.model,
        "role": load.role or None,
        "scheme": load.scheme,
        "version": process.version,
        "began": load.began,
        "ended": load.ended,
        "seconds": load.seconds,
        "outcome": load.outcome,
        "error": load.error,
        "error_type": load.error_type,
        "phases": _phases(load.phases),
        "attempts": [_attempt(attempt) for attempt in load.attempts],
        "candidates": [
            {
                "policy": each.policy,
                "result": each.result,
                "counts": each.counts,
                "seconds": each.seconds,
                "loads": {candidate.peer: candidate.load for candidate in each.candidates},
            }
            for each in load.selections
        ],
        "artifacts": [_artifact(each) for each in load.artifacts],
        "gaps": [
            {"at": gap.at, "seconds": gap.seconds, "what": gap.name}
            for gap in uncovered(load, given)
        ],
        "why": why(load, given),
    }


def _phases(spans: tuple[Span, ...]) -> dict[str, float | None]:
    """Name to seconds, together where one comes more than once; null where one never ended."""
    found: dict[str, float | None] = {}
    for span in spans:
        before = found.get(span.name, 0.0)
        found[span.name] = None if before is None or span.seconds is None else before + span.seconds
    return found


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "peer": attempt.peer,
        "result": attempt.result,
        "seconds": attempt.seconds,
        "phases": _phases(attempt.phases),
        "error": attempt.error,
        "error_type": attempt.error_type,
    }


def _artifact(artifact: Artifact) -> dict[str, Any]:
    return {
        "artifact": artifact.artifact,
        "archive": artifact.archive,
        "steps": _phases(artifact.steps),
        "bytes": artifact.size,
    }
