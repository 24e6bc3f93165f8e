"""A rank that makes the recordings of one load after the other, at a pace that a clock keeps.

It notes, in a file outside of the log, how many events of each name were logged by recorders that
have returned. The rank that follows it in its slot goes on from there.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: What each recorder logs; a timer when it starts and when it ends.
LOGGED = {
    "record_list_sources": ["sources_listed"],
    "observe_candidates": ["candidates_counted"],
    "observe_selection_seconds": ["sources_ordered"],
    "observe_candidate_loads": ["candidate_loads_seen"],
    "record_selection": ["source_selected"],
    "record_nixl_receive": ["nixl_received"],
    "observe_transfer_seconds": ["transfer_finished"],
    "record_attempt": ["source_attempted"],
    "time_load": ["load_started", "load_finished"],
    "time_load_phase": ["load_phase_started", "load_phase_finished"],
    "time_source_attempt_phase": [
        "source_attempt_phase_started",
        "source_attempt_phase_finished",
    ],
}

#: Names of events, in the order of their counts in the notes.
EVENTS = [event for events in LOGGED.values() for event in events]

#: Events of one load.
EVENTS_PER_LOAD = 34


class Noting:
    """The recorders, with each event noted once its recorder has returned."""

    def __init__(self, metrics: Any, notes: str) -> None:
        with open(notes, "r+b") as file:
            self._notes = mmap.mmap(file.fileno(), 0)
        self._counts = list(struct.unpack(f"<{len(EVENTS)}Q", self._notes[:]))
        for name, events in LOGGED.items():
            recorder = getattr(metrics, name)
            made = self._timer if len(events) == 2 else self._recorder
            setattr(self, name, made(recorder, *map(EVENTS.index, events)))

    def loads(self) -> int:
        """Loads that have finished."""
        return int(self._counts[EVENTS.index("load_finished")])

    def _note(self, at: int) -> None:
        self._counts[at] += 1
        self._notes[8 * at : 8 * at + 8] = struct.pack("<Q", self._counts[at])

    def _recorder(self, recorder: Any, at: int) -> Any:
        def record(*arguments: Any) -> None:
            recorder(*arguments)
            self._note(at)

        return record

    def _timer(self, timer: Any, started: int, finished: int) -> Any:
        @contextmanager
        def timed(*arguments: Any) -> Iterator[None]:
            with timer(*arguments):
                self._note(started)
                yield
            self._note(finished)

        return timed


def main(notes: str, slot: int, pause: float, began: float) -> None:
    """Make a load every ``pause`` seconds since ``began`` (monotonic), for ever; catch up."""
    from mx_emitter import enable_metrics, metrics
    from tests.benchmarks import one_load

    enable_metrics(rank=slot)
    noting = Noting(metrics, notes)
    while True:
        time.sleep(max(0.0, began + noting.loads() * pause - time.monotonic()))
        one_load.load(noting)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
