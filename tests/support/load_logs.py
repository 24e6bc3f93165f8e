"""Logs of ranks that load models, written without the emitter."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support import Lines
from tests.support.log_lines import finished


def loads(log: Lines, count: int, rng: random.Random, *, end: bool = True) -> Iterator[bytes]:
    """The lines of ``count`` loads; without ``end`` the last one stays in its phase."""
    for number in range(count):
        common = {"engine": "vllm", "model": "acme/große-7b", "load_id": f"{log.proc}-{log.seq}"}
        last = number == count - 1
        yield log("load_started", model_role="main", **common)
        yield log("load_phase_started", phase="chain", **common)
        yield log("sources_listed", policy="random", result=rng.choice(["ok", "empty"]))
        yield log("source_selected", policy="random", source_worker_id=f"w{rng.randrange(3)}")
        yield log(
            "candidate_loads_seen",
            loads=[{"source_worker_id": f"w{at}", "load": rng.random()} for at in range(2)],
        )
        yield log(
            "transfer_finished", policy="random", outcome="success", seconds=rng.expovariate(1)
        )
        if last and not end:
            return
        yield log("load_phase_finished", phase="chain", seconds=rng.expovariate(1), **common)
        yield log(
            "load_finished",
            model_role="main",
            outcome="success",
            seconds=rng.expovariate(0.1),
            **common,
        )


def ranks(
    directory: Path, *, processes: int = 3, segments: int = 2, count: int = 3, end: bool = True
) -> list[Path]:
    """Write the segments of some processes, a minute ago if they end; returns their paths."""
    directory.mkdir(exist_ok=True)
    rng = random.Random(7)
    paths = []
    for rank in range(processes):
        log = Lines(f"{rank:012x}", rank=rank, scheme="test", start=Lines.START + rank / 7)
        for n in range(segments):
            final = n == segments - 1
            lines = loads(log, count, rng, end=end or not final)
            path = segment(log, directory, n, lines)
            paths.append(finished(path) if end else path)
    return paths


def segment(log: Lines, directory: Path, n: int, lines: Iterable[bytes], **header: Any) -> Path:
    """Write a finished segment: its header, then ``lines``, which are made after it when they
    come from a generator."""
    path = directory / f"events-{log.proc}-{n}.jsonl"
    path.write_bytes(log.header(n, **header) + b"".join(lines))
    return path


def lines_of(paths: list[Path]) -> list[bytes]:
    """The lines of files, without their newlines."""
    return [line for path in paths for line in path.read_bytes().splitlines()]
