"""Two hundred children at once, forked by threads, as the exporter sees them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import support
from tests.support import compacting
from tests.support.pages import parse, replayed, total

CHILDREN = 200
EVENTS = 12

#: Four threads fork; each child waits until all are there, then all of them record at once. The
#: forking threads and two others record all the while, or nobody does before the last fork.
FORKS = f"""
import os, sys, threading, warnings
from mx_emitter import metrics
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: just what is tested
gate, opened = os.pipe()
stop = threading.Event()
counts = [0] * 6

def record(n):
    metrics.record_attempt("parent", str(n))
    counts[n] += 1

def go_on(n):
    while not stop.is_set(): record(n)

def fork(n):
    for _ in range({CHILDREN} // 4):
        if sys.argv[1] == "after": record(n)
        pid = os.fork()
        if pid == 0:
            os.close(opened)
            os.read(gate, 1)
            for _ in range({EVENTS}): metrics.record_attempt("child", "success")
            os._exit(0)
        children.append(pid)

children = []
others = [threading.Thread(target=go_on, args=(n,)) for n in (4, 5)]
if sys.argv[1] == "after":
    for thread in others: thread.start()
forking = [threading.Thread(target=fork, args=(n,)) for n in range(4)]
for thread in forking: thread.start()
for thread in forking: thread.join()
stop.set()
for thread in others:
    if sys.argv[1] == "after": thread.join()
os.close(opened)
codes = {{os.waitpid(pid, 0)[1] for pid in children}}
assert codes == {{0}}, codes
record(0)
print(sum(counts), len(children))
"""


@pytest.mark.parametrize("first", ["before", "after"])
def test_children_forked_before_and_after_the_first_event(
    first: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    env = {
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(log),
        "MX_METRICS_SEGMENT_BYTES": "1500",
        "MX_METRICS_MAX_BYTES": str(1 << 30),
    }
    exporter = compacting.start(spawn, log)
    parent = spawn.python("-c", FORKS, first, env=env)
    assert parent.result(120) == 0, parent.error_output
    recorded, children = map(int, parent.output.split())
    assert children == CHILDREN
    # A child's segment that was never seen with a lock is finished once it stayed as it is.
    open_ = 'mx_exporter_segments{state="open"}'
    support.wait_until(lambda: exporter.get().sample(open_) == 0)
    page = parse(exporter.get().text)
    name = "mx_p2p_source_attempts_total"
    assert total(page, name, policy="child") == CHILDREN * EVENTS
    assert total(page, name, policy="parent") == recorded
    assert total(page, "mx_exporter_lines_rejected_total") == 0
    checked = spawn.python("-m", "mx_exporter", "check", "--json", log)
    assert checked.result() == 0, checked.output
    books = json.loads(checked.output)["processes"]
    # No number twice, none left out: a number used again would be a duplicate, and not count.
    assert total(page, "mx_exporter_duplicates_total") == 0
    assert Counter(book["lost"] for book in books) == {0: CHILDREN + 1}
    assert exporter.derived() == replayed(spawn, log)
