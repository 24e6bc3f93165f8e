"""Loads that never ran: the lines of a rank that loads a model, by scenario."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from mx_demo.loads import Loader
from mx_demo.simulated import SimulatedClock, SimulatedRank, Stopped
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Event
from mx_exporter.loads.model import Load
from mx_exporter.loads.timeline import Timeline

#: 2026-01-01T00:00:00Z
START = 1_767_225_600.0


class Clock(SimulatedClock):
    """A clock on which a rank dies after so many pieces of work; None: it does not."""

    def __init__(self, start: float, dies_after: int | None = None) -> None:
        super().__init__(start)
        self._left = dies_after

    def work(self, seconds: float) -> None:
        if self._left == 0:
            self.stop("killed")
        if self._left is not None:
            self._left -= 1
        super().work(seconds)

    def stop(self, scenario: str) -> NoReturn:
        self._now += 1.0
        super().stop(scenario)


def simulate(
    scenarios: Iterable[str],
    *,
    seed: int = 0,
    rank: int = 0,
    pod: str | None = "pod-0",
    node: str | None = "node-0",
    release: str = "0.7.0",
    scheme: str = "",
    model: str = "example/model",
    engine: str = "vllm",
    start: float = START,
    slowness: float = 1.0,
    dies_after: int | None = None,
) -> SimulatedRank:
    """A rank that loads once a scenario, one after the other."""
    dice = random.Random(f"{seed} {rank} {pod}")
    clock = Clock(start, dies_after)
    process = SimulatedRank(
        clock,
        dice,
        rank=rank,
        scheme=scheme,
        release=release,
        pod=pod,
        uid=None,
        namespace="models",
        node=node,
    )
    loader = Loader(process, clock, dice, engine=engine, model=model, slowness=slowness)
    with contextlib.suppress(Stopped):
        for scenario in scenarios:
            with contextlib.suppress(RuntimeError):
                loader.load(scenario)
            clock.work(5)
    return process


def events(lines: Iterable[bytes]) -> list[Event]:
    """The events of good lines."""
    found = CATALOG.decoder.decode([line.rstrip(b"\n") for line in lines])
    assert all(isinstance(event, Event) for event in found)
    return found  # type: ignore[return-value]


def loads_of(
    *lines: bytes, alive: Iterable[str] = (), gone: Iterable[str] | None = None
) -> list[Load]:
    """The loads that lines tell of, in the order in which they began.

    :param gone: None: all that are not alive.
    """
    timeline = Timeline()
    found = timeline.feed(events(lines))
    known = {json.loads(line)["proc"] for line in lines}
    live = set(alive)
    found += timeline.finish(live, known - live if gone is None else set(gone))
    return in_order(found)


def in_order(loads: Iterable[Load]) -> list[Load]:
    """Loads as they began."""
    return sorted(loads, key=lambda load: (load.began, load.process.proc, load.first_seq))


def changed(line: bytes, **fields: Any) -> bytes:
    """A line with other values; a field that is None is left out."""
    record = {**json.loads(line), **fields}
    record = {key: value for key, value in record.items() if value is not None or key not in fields}
    return json.dumps(record).encode() + b"\n"


def moved(line: bytes, by: float) -> bytes:
    """A line as it were had the clock been set so many seconds forward."""
    stamp = datetime.fromisoformat(json.loads(line)["timestamp"][:-1]) + timedelta(seconds=by)
    return changed(line, timestamp=stamp.isoformat(timespec="microseconds") + "Z")


def failed(line: bytes) -> bytes:
    """A line as it were if its load had ended in an error."""
    wrong = {"error_type": "SystemExit", "error": "143"}
    if b'"load_finished"' in line:
        return changed(line, outcome="error", **wrong)
    return (
        changed(line, **wrong) if b'"load_phase_finished"' in line and b'"chain"' in line else line
    )


def side_by_side(first: list[bytes], second: list[bytes]) -> list[bytes]:
    """The lines of two processes as if one had loaded what both did, at the same time."""
    header, *rest = first
    proc = json.loads(header)["proc"]
    told = sorted([*rest, *second[1:]], key=lambda line: json.loads(line)["timestamp"])
    return [header, *(changed(line, proc=proc, seq=at) for at, line in enumerate(told, 1))]


def spread(
    place: Path, lines: list[bytes], dice: random.Random, *, segments: int, doubles: int
) -> None:
    """Write the lines of a process, some of them twice, in any order into so many segments."""
    proc = json.loads(lines[0])["proc"]
    parts: list[list[bytes]] = [[] for _ in range(segments)]
    for line in [*lines, *dice.choices(lines, k=doubles)]:
        dice.choice(parts).append(line)
    for number, part in enumerate(parts):
        dice.shuffle(part)
        (place / f"events-{proc}-{number}.jsonl").write_bytes(b"".join(part))
