"""The page of one load, ``/loads/ID``: its timeline."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ..loads.model import Load
from ..loads.parts import parts
from ..loads.steps import Step, steps
from ..loads.why import error_of, why
from . import shown, site
from .bars import KEY, Bar, bar

#: Steps, and records of the client's log, of one load that are shown.
MOST_STEPS, MOST_RECORDS = 300, 50


class Explained(NamedTuple):
    """A load with its steps."""

    summary: str
    about: str
    bar: Bar
    steps: Sequence[Step]
    notes: Sequence[str]


def page(load_id: str, loads: Sequence[Load], directory: str) -> bytes:
    """The page of all loads of that id: one, as a rule; none where it is not kept."""
    name, path = shlex.quote(load_id), shlex.quote(directory)
    return site.page(
        "load.html.jinja",
        load_id=load_id,
        loads=[explained(load) for load in loads],
        kinds=KEY,
        commands=[
            f"mx-metrics explain {name} {path}",
            f"mx-metrics events --load {name} {path}",
        ],
        foot=directory,
    )


def explained(load: Load) -> Explained:
    """A load as it is explained."""
    lines = steps(load)
    rest = len(lines) - MOST_STEPS
    notes = []
    if rest > 0:
        notes.append(f"{rest} more steps are not shown.")
    if load.error_type or load.error:
        notes.append(f"It ended in {error_of(load)}.")
    if load.missing:
        notes.append(f"{load.missing} events of it are missing from the log.")
    if load.clock_stepped:
        notes.append("The clock was set meanwhile: durations are right, positions are not.")
    notes += [
        f"{record.at:.1f} s {record.level} {record.logger or ''}: {record.message or ''} "
        f"{': '.join(filter(None, (record.error_type, record.error)))}"
        for record in load.records[:MOST_RECORDS]
    ]
    if len(load.records) > MOST_RECORDS:
        notes.append(f"{len(load.records) - MOST_RECORDS} more records of the client's own log.")
    return Explained(
        summary=f"{load.outcome} after {shown.seconds(load.elapsed)} s: {why(load)}",
        about=_about(load),
        bar=bar(parts(load), load.elapsed),
        steps=lines[:MOST_STEPS],
        notes=notes,
    )


def _about(load: Load) -> str:
    process = load.process
    said = [
        f"{load.model or 'an unnamed model'} on {load.engine}, {load.role}",
        process.place if load.rank is None else f"{process.place} rank {load.rank}",
        f"on {process.node}" if process.node else "",
        f"scheme {load.scheme}" if load.scheme else "",
        f"client {process.version}" if process.version else "",
        f"process {process.proc}",
        f"from {load.began}",
    ]
    return " · ".join(filter(None, said))
