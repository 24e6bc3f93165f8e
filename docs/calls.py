"""The recorders and timers as they are: for the page that `generate` makes of them."""

from __future__ import annotations

import inspect
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from mx_emitter import enable_metrics, metrics
from mx_log.schema import EVENTS


class Call:
    """A recorder or timer, called once for real, each argument being its own name: so its events
    say what becomes of the arguments."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        method = getattr(type(metrics), name)
        self.doc = " ".join((inspect.getdoc(method) or "").split()).replace("``", "`")
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)
        found = inspect.signature(method).parameters.values()
        parameters = [each for each in found if each.kind in kinds]
        shown = [
            each.name if each.default is each.empty else f"{each.name}={each.default!r}"
            for each in parameters
        ]
        self.text = f"{name}({', '.join(shown)})"
        before = len(logged(log))
        given = getattr(metrics, name)(*(each.name for each in parameters))
        self.times = name.startswith("time_")
        if self.times:
            with given:
                pass
        lines = logged(log)[before:]
        self.events = [line["event"] for line in lines]
        #: What each argument is, as the events' fields have it.
        self.arguments = {each.name: _meaning(each.name, lines[-1]) for each in parameters}


def _meaning(argument: str, line: dict[str, Any]) -> str:
    fields = EVENTS[line["event"]].fields
    for field in fields:
        if line.get(field.name) == argument:
            return field.doc
    (field,) = fields  # the one that is made of the only argument
    return field.doc


def logged(log: Path) -> list[dict[str, Any]]:
    """The lines of the one process that logs there."""
    (segment,) = log.glob("events-*.jsonl")
    return [json.loads(line) for line in segment.read_bytes().splitlines()]


def calls() -> list[Call]:
    """All recorders and timers, in the order in which they are defined."""
    with tempfile.TemporaryDirectory() as log:
        os.environ.update(MX_METRICS_ENABLED="1", MX_METRICS_DIR=log)
        assert enable_metrics()
        names = [name for name in vars(type(metrics)) if not name.startswith("_")]
        return [Call(name, Path(log)) for name in names]
