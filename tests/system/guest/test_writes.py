"""What an event costs in system calls, counted by the kernel."""

from __future__ import annotations

from tests import support
from tests.support.emitting import Program

LOADS = 50

#: Of one load: ten recorders, and twelve timers that log a start and an end.
EVENTS = 10 + 2 * 12


def test_each_event_of_a_load_is_one_write(program: Program) -> None:
    process = program.run(
        """
import sys
from tests.benchmarks import one_load
from mx_emitter import metrics
def writes():
    with open("/proc/self/io") as io:
        return int(dict(line.split(": ") for line in io.read().splitlines())["syscw"])
one_load.load(metrics)
before = writes()
for _ in range(int(sys.argv[1])): one_load.load(metrics)
print(writes() - before)
""",
        str(LOADS),
        PYTHONPATH=str(support.ROOT),
    )
    assert int(process.output) == LOADS * EVENTS
    assert len(program.log.events()) == (LOADS + 1) * EVENTS
