"""Run recorder calls in a process of its own, through the client's recorders or through ours.

    play.py client|ours CALLS.json

``CALLS.json`` is a list of [recorder, arguments, raises]. Timers read a clock that advances by a
known step at each look, so that both sides time the same spans.
"""

from __future__ import annotations

import itertools
import json
import sys
import time


class Candidate:
    """Has what a protobuf message of a source instance has."""

    def __init__(self, worker_id: str | None, load: float | None) -> None:
        self.worker_id = worker_id
        self.source_load = 0.0 if load is None else load
        self._published = load is not None

    def HasField(self, name: str) -> bool:
        assert name == "source_load"
        return self._published


def main(side: str, calls: str) -> None:
    time.perf_counter = itertools.count(1000.375, 0.375).__next__
    if side == "client":
        from modelexpress.metrics import enable_metrics, metrics
    else:
        from mx_emitter import enable_metrics, metrics
    assert enable_metrics()
    with open(calls) as file:
        played = json.load(file)
    for name, arguments, raises in played:
        recorder = getattr(metrics, name)
        if name == "observe_candidate_loads":
            recorder([Candidate(*pair) for pair in arguments[0]])
        elif name.startswith("time_"):
            try:
                with recorder(*arguments):
                    if raises:
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                assert raises
        else:
            recorder(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
