"""Segments that somebody copies into a directory that is served."""

from __future__ import annotations

from pathlib import Path

from mx_exporter.directory.settling import SETTLE_SECONDS
from tests import support
from tests.support import Lines, serving

#: Copies what it reads in pieces of a few bytes, each when it is told to. At the end it says for
#: how long it paused at most between two of them.
COPY = """
import sys, time
source, target = sys.argv[1:]
data = open(source, "rb").read()
longest, last = 0.0, None
with open(target, "wb", buffering=0) as out:
    for at in range(0, len(data), 130):
        out.write(data[at : at + 130])
        now = time.monotonic()
        longest, last = max(longest, now - (last or now)), now
        print("written", flush=True)
        sys.stdin.readline()
print(longest)
"""

PIECE_BYTES, ATTEMPTS = 130, 5

TORN = 'mx_exporter_lines_rejected_total{reason="torn"}'
FINISHED = 'mx_exporter_segments{state="finished"}'

#: How often it is tried on a machine that is too busy to copy without long pauses.
TRIES = 20


def test_a_segment_that_is_copied_in_slowly_loses_no_line(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    elsewhere, served = tmp_path / "elsewhere", tmp_path / "served"
    elsewhere.mkdir()
    served.mkdir()
    exporter = serving.start(spawn, served)
    for n in range(TRIES):
        log = Lines(f"{n:012x}")
        attempt = ("source_attempted", {"policy": log.proc, "result": "success"})
        source = log.segment(elsewhere, 0, [attempt] * ATTEMPTS)
        torn = copy_in(spawn, exporter, source, served / source.name)
        if torn is not None:
            break
    else:
        raise AssertionError(f"each of {TRIES} copies paused for too long")
    assert torn == 0
    support.wait_until(lambda: exporter.get().sample(FINISHED) == n + 1)
    answer = exporter.get()
    series = f'mx_p2p_source_attempts_total{{policy="{log.proc}",result="success",scheme=""}}'
    assert answer.sample(series) == ATTEMPTS
    if n == 0:
        assert answer.sample(TORN) == 0
        assert answer.sample("mx_exporter_events_lost") == 0
        assert answer.sample("mx_exporter_duplicates_total") == 0


def copy_in(
    spawn: support.Spawner, exporter: serving.Exporter, source: Path, target: Path
) -> float | None:
    """Copy a segment in, with scrapes in the midst; how many lines were torn meanwhile. None when
    the copy paused for so long that it looks finished."""
    before = exporter.get().sample(TORN)
    copy = spawn.python("-c", COPY, source, target, stdin=-1)
    assert copy.stdin is not None
    torn = 0.0
    for piece in range(1, -(-source.stat().st_size // PIECE_BYTES) + 1):
        support.wait_until(lambda n=piece: copy.output.count("written") == n)
        torn = exporter.get().sample(TORN) - before
        copy.stdin.write(b"\n")
        copy.stdin.flush()
    assert copy.result() == 0, copy.error_output
    return torn if float(copy.output.split()[-1]) < SETTLE_SECONDS else None
