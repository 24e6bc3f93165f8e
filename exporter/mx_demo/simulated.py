"""The log of a rank that never ran, with a clock of its own.

A log of hours has to be there at once, and in the past, which the emitter cannot do: it says what
time it is. So lines are composed here, by the contract of the log (`mx_log`), under the recorders'
names; a test holds them to what the emitter logs of the same loads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import orjson

from mx_log.files import SegmentName
from mx_log.schema import FORMAT, VERSION

from .loads import Peer

#: Event and fields of each recorder.
_RECORDERS = {
    "record_list_sources": ("sources_listed", "policy", "result"),
    "observe_candidates": ("candidates_counted", "policy", "stage", "count"),
    "observe_selection_seconds": ("sources_ordered", "policy", "seconds"),
    "record_selection": ("source_selected", "policy", "source_worker_id"),
    "record_attempt": ("source_attempted", "policy", "result"),
    "record_metadata_failure": ("metadata_lookup_failed", "policy"),
    "record_nixl_error": ("nixl_failed", "kind"),
    "record_nixl_receive": ("nixl_received", "result"),
    "observe_transfer_seconds": ("transfer_finished", "policy", "outcome", "seconds"),
    "record_artifact_install_bytes": ("artifact_extracted", "artifact", "archive", "bytes"),
}


class Stopped(BaseException):
    """The rank hangs, or was killed: it logs nothing any more."""


class SimulatedClock:
    """Seconds since 1970, which pass by work alone."""

    def __init__(self, start: float) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def work(self, seconds: float) -> None:
        self._now += seconds

    def stop(self, scenario: str) -> NoReturn:
        raise Stopped(scenario)


class SimulatedRank:
    """What the emitter's ``metrics`` are, for one process that is written down afterwards."""

    def __init__(
        self,
        clock: SimulatedClock,
        dice: random.Random,
        *,
        rank: int,
        scheme: str = "",
        release: str = "0.7.0",
        pod: str | None = None,
        uid: str | None = None,
        namespace: str | None = None,
        node: str | None = None,
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._rank = rank
        self._scheme = scheme
        self._proc = self._draw_id()
        self._load_id: str | None = None
        self._stopped = False
        self.lines: list[bytes] = []
        self._log(
            "process_started",
            segment=0,
            format=FORMAT,
            component="client",
            version=release,
            emitter_version=VERSION,
            pid=100 + rank,
            hostname=pod,
            pod_name=pod,
            pod_uid=uid,
            pod_namespace=namespace,
            node_name=node,
        )

    def write(self, folder: Path) -> Path:
        """Write the segment into a folder."""
        path = folder / str(SegmentName(self._proc, 0))
        path.write_bytes(b"".join(self.lines))
        return path

    def __getattr__(self, name: str) -> Any:
        event, *fields = _RECORDERS[name]
        return lambda *values: self._log(event, **dict(zip(fields, values, strict=True)))

    def observe_candidate_loads(self, ordered: list[Peer]) -> None:
        loads = [
            {"source_worker_id": p.worker_id, "load": p.source_load if p.published else None}
            for p in ordered
        ]
        self._log("candidate_loads_seen", loads=loads)

    @contextmanager
    def time_load(self, engine: str, model: str, model_role: str) -> Iterator[None]:
        self._load_id = self._draw_id()
        named = {"engine": engine, "model": model, "model_role": model_role}
        try:
            with self._timed("load", named, "success"):
                yield
        finally:
            self._load_id = None

    @contextmanager
    def time_load_phase(self, engine: str, model: str, phase: str) -> Iterator[None]:
        with self._timed("load_phase", {"engine": engine, "model": model, "phase": phase}):
            yield

    @contextmanager
    def time_source_attempt_phase(self, policy: str, phase: str) -> Iterator[None]:
        with self._timed("source_attempt_phase", {"policy": policy, "phase": phase}, "ok"):
            yield

    @contextmanager
    def time_artifact_install_step(self, artifact: str, archive: str, step: str) -> Iterator[None]:
        named = {"artifact": artifact, "archive": archive, "step": step}
        with self._timed("artifact_install_step", named):
            yield

    @contextmanager
    def _timed(self, what: str, named: dict[str, Any], good: str | None = None) -> Iterator[None]:
        """An event when the body begins and one when it ends; ``good`` is the outcome of a body
        that raises nothing, where the event has one."""
        self._log(f"{what}_started", **named)
        begun = self._clock.now()
        failure: dict[str, Any] = {}
        outcome = good
        try:
            yield
        except Stopped:
            self._stopped = True
            raise
        except Exception as error:
            outcome = good and "error"
            failure = {"error_type": type(error).__name__, "error": str(error)}
            raise
        finally:
            ended = {} if outcome is None else {"outcome": outcome}
            seconds = self._clock.now() - begun
            self._log(f"{what}_finished", **named, **ended, seconds=seconds, **failure)

    def _draw_id(self) -> str:
        return f"{self._dice.getrandbits(48):012x}"

    def _log(self, event: str, /, **fields: Any) -> None:
        if self._stopped:
            return
        now = self._clock.now()
        second = int(now)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        line = {
            "event": event,
            "timestamp": f"{stamp}.{int((now - second) * 1e6):06d}Z",
            "level": "info",
            "proc": self._proc,
            "seq": len(self.lines),
            "rank": self._rank,
            "scheme": self._scheme,
            **fields,
        }
        if self._load_id is not None:
            line["load_id"] = self._load_id
        self.lines.append(orjson.dumps(line) + b"\n")
