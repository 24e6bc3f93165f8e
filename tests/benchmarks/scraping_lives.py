"""So many processes live one after the other, and each makes one load:

    scraping_lives.py client|ours COUNT

``client`` is the published client on the path, in its multiprocess mode, whose directory the
environment names; ``ours`` is the emitter. They are forked from one parent that has imported
everything and recorded nothing, since that many interpreters would take minutes to start: each
draws a name and makes files of its own. The timers read a clock that gives both sides the same
spans.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks import one_load


def main(side: str, count: int) -> None:
    time.perf_counter = itertools.count(1000.375, 0.375).__next__
    if side == "client":
        import prometheus_client  # noqa: F401 - the client imports it late, in each child
        from modelexpress.metrics import (  # type: ignore[import-not-found]
            enable_metrics,
            metrics,
        )
    else:
        from mx_emitter import enable_metrics, metrics
    for _ in range(count):
        child = os.fork()
        if not child:
            live(enable_metrics, metrics)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"a child ended with {status}"


def live(enable_metrics: Callable[[], bool], metrics: Any) -> None:
    """The whole life of a child."""
    done = 1
    try:
        assert enable_metrics()
        one_load.load(metrics)
        done = 0
    finally:
        os._exit(done)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
