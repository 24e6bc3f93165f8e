"""Lines of log and their segments, written without the emitter."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Lines:
    """The lines of one writer: counts ``seq`` up and the clock on, a second a line.

    >>> log = Lines("0123456789ab", rank=3)
    >>> log.header(), log("source_attempted", policy="random", result="success")
    """

    #: 2026-01-01T00:00:00Z, so that expected pages can be written down.
    START = 1_767_225_600

    def __init__(
        self,
        proc: str = "aaaaaaaaaaaa",
        *,
        rank: int | None = 0,
        scheme: str = "",
        seq: int = 0,
        start: float = START,
        step: float = 1.0,
    ) -> None:
        self.proc = proc
        self.rank = rank
        self.scheme = scheme
        self.seq = seq
        self.time = start
        self.step = step

    def record(self, event: str, **fields: Any) -> dict[str, Any]:
        """The next event as a dict, with the reserved keys; ``fields`` may replace them."""
        whole = int(self.time)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        record = {
            "event": event,
            "timestamp": f"{stamp}.{round((self.time - whole) * 1e6):06d}Z",
            "level": "info",
            "proc": self.proc,
            "seq": self.seq,
            "rank": self.rank,
            "scheme": self.scheme,
            **fields,
        }
        self.seq += 1
        self.time += self.step
        return record

    def __call__(self, event: str, **fields: Any) -> bytes:
        """The next event as a line, its newline included."""
        return json.dumps(self.record(event, **fields), separators=(",", ":")).encode() + b"\n"

    def header(self, segment: int = 0, **fields: Any) -> bytes:
        """The line that opens a segment."""
        event = "segment_continued" if segment else "process_started"
        given = {
            "segment": segment,
            "format": 1,
            "component": "client",
            "version": "0.7.0",
            "emitter_version": "0.1.0",
            "pid": 4711,
            "hostname": "pod-0",
            "pod_name": None,
            "pod_uid": None,
            "pod_namespace": None,
            "node_name": None,
        }
        return self(event, **{**given, **fields})

    def segment(
        self, directory: Path, n: int, events: Iterable[tuple[str, dict[str, Any]]], **header: Any
    ) -> Path:
        """Write a segment that was finished a minute ago: its header, then ``(event, fields)`` for
        each line."""
        path = directory / f"events-{self.proc}-{n}.jsonl"
        first = self.header(n, **header)
        path.write_bytes(first + b"".join(self(event, **fields) for event, fields in events))
        return finished(path)


def finished(path: Path) -> Path:
    """``path``, last written a minute ago: nobody waits for more of it, though nobody locks it."""
    then = time.time() - 60
    os.utime(path, (then, then))
    return path


def segments_in(directory: Path) -> list[str]:
    """The names of the segments of a directory, sorted."""
    return sorted(path.name for path in directory.glob("events-*.jsonl"))


def size_of(directory: Path) -> int:
    """Bytes of the segments of a directory."""
    return sum((directory / name).stat().st_size for name in segments_in(directory))
