"""One log that holds what may become of a load, once each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.log_lines import Lines
from tests.support.simulated_loads import START, changed, failed, moved, side_by_side, simulate

#: Pieces of work after which a rank dies, so that it is in each of its phases once.
_DEATHS = {
    "artifact_install": 0,
    "model_init": 4,
    "metadata": 6,
    "prepare": 7,
    "register": 8,
    "handshake": 9,
    "receive": 10,
    "release": 11,
    "finalize": 12,
    "publish": 13,
}

_NAMED = {"engine": "vllm", "model": "example/model", "model_role": "main"}


def stories(place: Path) -> None:
    """Write the log: a pod a kind of story."""
    for number, (pod, lines) in enumerate(_processes()):
        proc = f"{number:012x}"
        out = b"".join(changed(line, proc=proc, **_named(line, proc, pod)) for line in lines)
        (place / f"events-{proc}-0.jsonl").write_bytes(out)


def _named(line: bytes, proc: str, pod: str) -> dict[str, Any]:
    record = json.loads(line)
    if "load_id" in record:
        return {"load_id": f"{record['load_id'][:8]}{proc[-4:]}"}
    return {"pod_name": pod} if "pod_name" in record else {}


def _processes() -> Iterator[tuple[str, list[bytes]]]:
    for rank, scenario in enumerate(("peer", "artifacts", "retry", "miss", "fallback", "partial")):
        yield "usual", _rank(scenario, rank)
    yield "first", _rank("alone", 0)
    for rank, (phase, moment) in enumerate(_DEATHS.items()):
        lines = _rank("artifacts", rank, dies_after=moment)
        assert json.loads(lines[-1]).get("phase", phase) == phase, (phase, lines[-1])
        yield "killed", lines
    yield "killed", _rank("hang", len(_DEATHS))
    yield "stopped", [failed(line) for line in _rank("fallback", 0)]
    for release, scheme, slowness in (("0.6.0", "old", 1.0), ("0.7.0", "new", 1.5)):
        for rank in range(2):
            yield release, _rank("peer", rank, release=release, scheme=scheme, slowness=slowness)
    yield "parallel", side_by_side(_rank("peer", 0), _rank("retry", 0, seed=1, start=START + 3))
    yield "nested", side_by_side(_rank("fallback", 0), _rank("peer", 0, seed=1, start=START + 60))
    yield "captured", _captured()
    yield "overlapping", _overlapping()
    yield "observed", _observed()
    yield "clock", _set_back(_rank("peer", 0), 3600.0, at=b'"receive"')
    yield "disorder", _shuffled(_rank("peer", 0))
    yield "lost", _without(_rank("peer", 0), lambda line: b'"source_selected"' in line)
    yield "lost", _without(_rank("peer", 1), lambda line: b'"load_started"' in line)
    twice = simulate(["peer", "peer"], rank=2).lines
    yield "lost", _without(twice, lambda line: b'"load_finished"' in line)
    yield "again", _rank("killed", 0)
    yield "again", _rank("peer", 0, start=START + 90)


def _rank(scenario: str, rank: int, **options: Any) -> list[bytes]:
    return simulate([scenario], rank=rank, **options).lines


def _captured() -> list[bytes]:
    """A peer that misses its metadata, with the client's own log."""
    log = Lines("c")
    lines = [log.header(), log("load_started", load_id="captured", **_NAMED)]
    for number, (worker, result) in enumerate((("w-1", "metadata_miss"), ("w-2", "success"))):
        said = f"Source attempt: source_attempt_index={number} source_worker_id={worker} of 2"
        lines.append(log("log_recorded", load_id="captured", logger="client", message=said))
        lines.append(_phase(log, "started", "metadata", "captured"))
        failure: dict[str, Any] = {"seconds": 1.0, "outcome": "ok"}
        if result != "success":
            failure |= {"outcome": "error", "error_type": "LookupError", "error": "it left"}
        lines.append(_phase(log, "finished", "metadata", "captured", **failure))
        if result == "success":
            lines.append(_selected(log, worker, "captured"))
        lines.append(log("source_attempted", load_id="captured", policy="random", result=result))
    lines.append(
        log("load_finished", load_id="captured", **_NAMED, outcome="success", seconds=11.0)
    )
    return lines


def _overlapping() -> list[bytes]:
    """Two attempts at once: which peer was whose nobody can say."""
    log = Lines("o")
    lines = [log.header(), log("load_started", load_id="overlaps", **_NAMED)]
    for worker in ("w-1", "w-2"):
        lines.append(_phase(log, "started", "receive", "overlaps"))
        lines.append(_selected(log, worker, "overlaps"))
    for _ in range(2):
        ended = {"seconds": 4.0, "outcome": "ok"}
        lines.append(_phase(log, "finished", "receive", "overlaps", **ended))
        lines.append(log("source_attempted", load_id="overlaps", policy="random", result="success"))
    lines.append(log("load_finished", load_id="overlaps", **_NAMED, outcome="success", seconds=9.0))
    return lines


def _observed() -> list[bytes]:
    """Loads of which an engine says no more than how long they took, and one that it cannot say."""
    log = Lines("d")
    named = {**_NAMED, "outcome": "success", "timed": False}
    return [log.header(), *(log("load_finished", **named, seconds=each) for each in (42.5, "NaN"))]


def _phase(log: Lines, event: str, name: str, load_id: str, **more: Any) -> bytes:
    event = f"source_attempt_phase_{event}"
    return log(event, load_id=load_id, policy="random", phase=name, **more)


def _selected(log: Lines, worker: str, load_id: str) -> bytes:
    return log("source_selected", load_id=load_id, policy="random", source_worker_id=worker)


def _set_back(lines: list[bytes], by: float, at: bytes) -> list[bytes]:
    """The clock is set back once an event was logged."""
    first = next(number for number, line in enumerate(lines) if at in line) + 1
    return [*lines[:first], *(moved(line, -by) for line in lines[first:])]


def _shuffled(lines: list[bytes]) -> list[bytes]:
    mixed = [*lines, *lines[5:9]]
    random.Random(0).shuffle(mixed)
    return mixed


def _without(lines: list[bytes], lost: Callable[[bytes], bool]) -> list[bytes]:
    return [line for line in lines if not lost(line)]
