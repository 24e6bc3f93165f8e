"""Loads that a test makes by hand."""

from __future__ import annotations

from typing import Any

from mx_exporter.loads.model import (
    Artifact,
    Attempt,
    Candidate,
    Load,
    Process,
    Record,
    Selection,
    Span,
)

BEGAN = "2026-07-01T22:52:58.000000Z"


def a_load(number: int = 0, **fields: Any) -> Load:
    """A load of ten seconds that went well, or with other fields."""
    given: dict[str, Any] = {
        "load_id": f"load-{number}",
        "process": Process(proc=f"{number:012x}", pod="pod-1", node="node-1", version="0.7.0"),
        "rank": number,
        "engine": "vllm",
        "model": "example/model",
        "role": "main",
        "scheme": "v1",
        "began": BEGAN,
        "ended": "2026-07-01T22:53:08.000000Z",
        "last": "2026-07-01T22:53:08.000000Z",
        "seconds": 10.0,
        "outcome": "success",
        "phases": (
            Span(name="model_init", at=0.0, seconds=4.0),
            Span(name="chain", at=4.0, seconds=6.0),
        ),
        "attempts": (an_attempt(at=4.0, seconds=6.0),),
        "first_seq": 1,
        "last_seq": 20,
    }
    return Load(**given | fields)


def an_attempt(**fields: Any) -> Attempt:
    """An attempt that gave the weights, or with other fields."""
    given: dict[str, Any] = {
        "policy": "load_aware",
        "peer": "worker-1",
        "result": "success",
        "at": 0.0,
        "seconds": 1.0,
        "phases": (Span(name="receive", at=fields.get("at", 0.0), seconds=1.0),),
    }
    return Attempt(**given | fields)


def a_load_of(text: str, **fields: Any) -> Load:
    """A load that has a text in each field that may hold one."""
    span = Span(name=text, at=0.0, seconds=5.0, error_type=text, error=text)
    attempt = an_attempt(
        policy=text,
        peer=text,
        result=text,
        at=5.0,
        seconds=5.0,
        phases=(span,),
        error_type=text,
        error=text,
        failures=(text,),
        received=text,
    )
    selection = Selection(
        policy=text, at=0.0, result=text, counts={text: 1.0}, candidates=(Candidate(text, 0.5),)
    )
    artifact = Artifact(artifact=text, archive=text, at=0.0, steps=(span,), size=1.0)
    record = Record(at=0.0, level=text, logger=text, message=text, error_type=text, error=text)
    process = Process(
        proc=text,
        pod=text,
        pod_uid=text,
        namespace=text,
        node=text,
        hostname=text,
        version=text,
        identity={text: text},
    )
    given: dict[str, Any] = {
        "load_id": text,
        "process": process,
        "engine": text,
        "model": text,
        "role": text,
        "scheme": text,
        "error_type": text,
        "error": text,
        "phases": (span,),
        "attempts": (attempt,),
        "selections": (selection,),
        "artifacts": (artifact,),
        "records": (record,),
        "others": {text: 1},
    }
    return a_load(**given | fields)
