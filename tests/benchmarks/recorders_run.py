"""Times recorders in a process of its own: recorders_run.py on|off

``on``: ours, the published client's, which is on the path and whose multiprocess directory the
environment names; the floor: `orjson.dumps` of the very line that ours logged, and `os.write` of
it to a file beside ours; and structlog as its documentation has it. ``off``: ours while metrics
are off, and an empty method. One line of JSON for each comparison: who, against what, seconds a
call of either in each round.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import structlog

from mx_emitter import enable_metrics, metrics
from mx_log.files import parse_segment_name
from mx_log.schema import RESERVED_KEYS
from tests.benchmarks import one_load
from tests.benchmarks.measuring import alternating, seconds

#: One call of each recorder that writes one line, on a recorders' object ``m``.
RECORDERS = {
    "record_selection": "m.record_selection('load_aware', '0c5c9be1')",
    "record_attempt": "m.record_attempt('load_aware', 'success')",
    "record_metadata_failure": "m.record_metadata_failure('load_aware')",
    "record_list_sources": "m.record_list_sources('load_aware', 'ok')",
    "record_nixl_error": "m.record_nixl_error('timeout')",
    "record_nixl_receive": "m.record_nixl_receive('complete')",
    "observe_candidates": "m.observe_candidates('load_aware', 'listed', 2)",
    "observe_selection_seconds": "m.observe_selection_seconds('load_aware', 0.00012)",
    "observe_candidate_loads": "m.observe_candidate_loads(peers)",
    "observe_transfer_seconds": "m.observe_transfer_seconds('load_aware', 'success', 11.9)",
    "observe_source_attempt_phase_seconds": (
        "m.observe_source_attempt_phase_seconds('load_aware', 'receive', 'ok', 9.75)"
    ),
    "observe_load_seconds": (
        "m.observe_load_seconds('vllm', 'deepseek-ai/DeepSeek-V3', 'main', 'success', 41.5)"
    ),
    "observe_load_phase_seconds": (
        "m.observe_load_phase_seconds('vllm', 'deepseek-ai/DeepSeek-V3', 'chain', 30.25)"
    ),
    "observe_artifact_install_step_seconds": (
        "m.observe_artifact_install_step_seconds('triton_cache', 'primary', 'extract', 1.5)"
    ),
    "record_artifact_install_bytes": (
        "m.record_artifact_install_bytes('triton_cache', 'primary', 73400320)"
    ),
}

#: One span of each timer.
TIMERS = {
    "time_source_attempt_phase": (
        "with m.time_source_attempt_phase('load_aware', 'receive'): pass"
    ),
    "time_load": "with m.time_load('vllm', 'deepseek-ai/DeepSeek-V3', 'main'): pass",
    "time_load_phase": "with m.time_load_phase('vllm', 'deepseek-ai/DeepSeek-V3', 'chain'): pass",
    "time_artifact_install_step": (
        "with m.time_artifact_install_step('triton_cache', 'primary', 'extract'): pass"
    ),
}

#: Calls in each run, loads in each run, and rounds.
CALLS, LOADS, ROUNDS = 4000, 200, 31

#: While metrics are off, a call takes little more than the loop around it: ten are in each turn.
TURNS, IN_A_TURN = 20_000, 10


def on() -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Ours against the client and the floor."""
    from modelexpress.metrics import (  # type: ignore[import-not-found]
        enable_metrics as enable_client,
    )
    from modelexpress.metrics import metrics as client

    assert enable_metrics()
    assert enable_client()
    place = Path(os.environ["MX_METRICS_DIR"])
    floor = os.open(place.parent / "floor", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def ours(statement: str, times: int) -> Callable[[], float]:
        run = _timer(statement, times, m=metrics)
        return lambda: _then(run(), lambda: _remove_all_but_the_newest(place))

    whole = "load(m)"
    yield (
        "load",
        "client",
        *alternating(ours(whole, LOADS), _timer(whole, LOADS, m=client), ROUNDS),
    )
    for name, statement in {**RECORDERS, **TIMERS}.items():
        mine, theirs = ours(statement, CALLS), _timer(statement, CALLS, m=client)
        yield name, "client", *alternating(mine, theirs, ROUNDS)
    for name, statement in RECORDERS.items():
        _timer(statement, 1, m=metrics)()
        line = orjson.loads(_segments(place)[-1].read_bytes().splitlines()[-1])
        bare = _timer(
            "write(fd, dumps(line, None, newline))",
            CALLS,
            write=os.write,
            fd=floor,
            dumps=orjson.dumps,
            line=line,
            newline=orjson.OPT_APPEND_NEWLINE,
        )
        least: Callable[[], float] = lambda: _then(bare(), lambda: os.ftruncate(floor, 0))  # noqa: B023, E731
        yield name, "floor", *alternating(ours(statement, CALLS), least, ROUNDS)
    os.close(floor)
    with open(place.parent / "structlog", "ab") as file:
        logger = as_documented(file)
        for name, statement in RECORDERS.items():
            fields = _fields_of(statement, place)
            theirs = _timer("log.info(event, **fields)", CALLS, log=logger, **fields)
            logs: Callable[[], float] = lambda: _then(theirs(), lambda: file.truncate(0))  # noqa: B023, E731
            yield name, "structlog", *alternating(ours(statement, CALLS), logs, ROUNDS)
    logged = b"".join(segment.read_bytes() for segment in _segments(place))
    assert b'"events_dropped"' not in logged


def as_documented(file: BinaryIO) -> Any:
    """A logger that is set up for speed as structlog's documentation has it."""
    return structlog.wrap_logger(
        structlog.BytesLogger(file),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    ).bind()


def _fields_of(statement: str, place: Path) -> dict[str, Any]:
    """What a recorder's event says of itself."""
    _timer(statement, 1, m=metrics)()
    line = orjson.loads(_segments(place)[-1].read_bytes().splitlines()[-1])
    fields = {name: value for name, value in line.items() if name not in RESERVED_KEYS}
    return {"event": line["event"], "fields": fields}


def off() -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Ours while metrics are off, against an empty method of as many arguments."""
    assert not enable_metrics()
    for name, statement in RECORDERS.items():
        given = statement.partition("(")[2]
        count = 1 if given == "peers)" else len(eval(f"({given[:-1]},)"))
        names = ", ".join("abcde"[:count])
        space: dict[str, Any] = {}
        exec(f"class Empty:\n    def method(self, {names}): pass", space)
        empty = _timer(
            "; ".join([f"m.method({given}"] * IN_A_TURN), TURNS, IN_A_TURN, m=space["Empty"]()
        )
        mine = _timer("; ".join([statement] * IN_A_TURN), TURNS, IN_A_TURN, m=metrics)
        yield name, "empty", *alternating(mine, empty, ROUNDS)


def _timer(statement: str, times: int, calls: int = 1, **names: object) -> Callable[[], float]:
    """What gives the seconds that a call takes, over so many turns of that many calls."""
    known = {"peers": one_load.PEERS, "load": one_load.load, **names}
    timer = timeit.Timer(statement, globals=known)
    timer.timeit(min(times, 100))
    return lambda: seconds(lambda: timer.timeit(times)) / times / calls


def _then(value: float, action: Callable[[], object]) -> float:
    action()
    return value


def _segments(place: Path) -> list[Path]:
    """By number."""
    named = {parse_segment_name(path.name): path for path in place.glob("events-*")}
    return [named[name] for name in sorted(filter(None, named))]


def _remove_all_but_the_newest(place: Path) -> None:
    """What was finished would fill the memory that the folder lies in."""
    for segment in _segments(place)[:-1]:
        segment.unlink()


if __name__ == "__main__":
    for found in {"on": on, "off": off}[sys.argv[1]]():
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
