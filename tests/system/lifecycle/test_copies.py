"""Segments that somebody copies into a directory that is served."""

from __future__ import annotations

from pathlib import Path

from tests import support
from tests.support import Lines, serving

#: Copies what it reads in pieces of a few bytes, each when it is told to.
COPY = """
import sys
source, target = sys.argv[1:]
data = open(source, "rb").read()
with open(target, "wb", buffering=0) as out:
    for at in range(0, len(data), 50):
        out.write(data[at : at + 50])
        print("written", flush=True)
        sys.stdin.readline()
"""


def test_a_segment_that_is_copied_in_slowly_loses_no_line(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    elsewhere, served = tmp_path / "elsewhere", tmp_path / "served"
    elsewhere.mkdir()
    served.mkdir()
    attempts = [("source_attempted", {"policy": "random", "result": "success"})] * 5
    source = Lines().segment(elsewhere, 0, attempts)
    exporter = serving.start(spawn, served)
    copy = spawn.python("-c", COPY, source, served / source.name, stdin=-1)
    pieces = -(-source.stat().st_size // 50)
    for piece in range(1, pieces + 1):
        support.wait_until(lambda n=piece: copy.output.count("written") == n)
        answer = exporter.get()
        assert answer.sample('mx_exporter_lines_rejected_total{reason="torn"}') == 0
        assert copy.stdin is not None
        copy.stdin.write(b"\n")
        copy.stdin.flush()
    assert copy.result() == 0, copy.error_output
    support.wait_until(lambda: exporter.get().sample('mx_exporter_segments{state="finished"}') == 1)
    answer = exporter.get()
    series = 'mx_p2p_source_attempts_total{policy="random",result="success",scheme=""}'
    assert answer.sample(series) == 5
    assert answer.sample("mx_exporter_events_lost") == 0
    assert answer.sample("mx_exporter_duplicates_total") == 0
