"""The loads that an exporter lists, as one object of JSON. Scripts read its keys: they stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .as_json import as_dict
from .model import Load
from .parts import parts
from .progress import phase_seconds, progress
from .steps import steps


class Kept(NamedTuple):
    """The loads that are kept.

    :ivar over: those that ended or whose process is gone.
    :ivar running: those in progress, the oldest first.
    :ivar before: loads that were forgotten for newer ones.
    :ivar compacted: events that only the snapshot stands for: their loads cannot be listed.
    """

    over: Sequence[Load] = ()
    running: Sequence[Load] = ()
    before: int = 0
    compacted: int = 0

    @classmethod
    def of(cls, loads: Sequence[Load], before: int, compacted: int) -> Kept:
        """The same of loads in the order in which they began."""
        over = [load for load in loads if load.outcome != "running"]
        running = [load for load in loads if load.outcome == "running"]
        return cls(over, running, before, compacted)


def listing(
    kept: Kept, now: float, load_id: str | None = None, between: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """The object.

    :param now: seconds since the epoch.
    :param load_id: list the loads of that id alone, each with its steps.
    :param between: called again and again meanwhile.
    """
    usual = phase_seconds(kept.over)

    def entry(load: Load) -> dict[str, Any]:
        between()
        found = as_dict(load)
        found["elapsed"] = load.elapsed
        found["parts"] = [
            {"kind": part.kind, "name": part.name, "at": part.at, "seconds": part.seconds}
            for part in parts(load)
        ]
        if load.outcome == "running":
            found["progress"] = progress(load, usual)._asdict()
        if load_id is not None:
            found["steps"] = [
                {"at": step.at, "seconds": step.took, "depth": step.depth, "text": step.text,
                 "kind": step.kind}
                for step in steps(load)
            ]  # fmt: skip
        return found

    def entries(loads: Sequence[Load]) -> list[dict[str, Any]]:
        return [entry(load) for load in loads if load_id is None or load.load_id == load_id]

    return {
        "now": now,
        "running": entries(kept.running),
        "loads": entries(kept.over),
        "not_listed": kept.before,
        "events_in_snapshot": kept.compacted,
    }
