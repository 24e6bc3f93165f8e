"""One simulated rank, a process of its own: ``python -m mx_demo.rank SCENARIOS``.

Its log is the emitter's, its clock the one on the wall. With ``--speed 60`` what takes a minute
elsewhere takes a second, and its log says a second: timestamps and durations are of one time. It
needs what an engine has, and nothing of the exporter. ``receiving`` on standard output says that it
is in the middle of a transfer in which it hangs, or is about to kill itself.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NoReturn

from .loads import SCENARIOS, USUAL, Loader


class WallClock:
    """Real time, in which work takes ``speed`` times as short as it says."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.perf_counter()

    def work(self, seconds: float) -> None:
        time.sleep(seconds / self._speed)

    def stop(self, scenario: str) -> NoReturn:
        sys.stdout.write("receiving\n")
        sys.stdout.flush()
        if scenario == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()
        raise AssertionError


def pretend_release(release: str, place: Path) -> None:
    """Have this process find a release of the client, of which there is the name alone."""
    (place / f"modelexpress-{release}.dist-info").mkdir()
    sys.path.append(str(place))


def _leave(*_: object) -> NoReturn:
    sys.exit(143)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mx_demo.rank", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--forever", action="store_true", help="then go on with usual loads")
    parser.add_argument("--speed", type=float, default=60.0, help="default: 60 times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--model", default="example/model-70b")
    parser.add_argument("--release", help="of the client, to be found by its name")
    options = parser.parse_args()
    for scenario in options.scenarios:
        if scenario not in SCENARIOS:
            parser.error(f"{scenario} is none of {', '.join(SCENARIOS)}")

    # An engine that is told to stop unwinds: its load ends with an error.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's to handle
    with tempfile.TemporaryDirectory(prefix="mx-demo-") as place:
        if options.release:
            pretend_release(options.release, Path(place))
        from mx_emitter.api import enable_metrics, metrics

        enable_metrics()
    dice = random.Random(options.seed)
    clock = WallClock(options.speed)
    loader = Loader(metrics, clock, dice, options.engine, options.model)
    for scenario in options.scenarios:
        loader.load(scenario)
    while options.forever:
        clock.work(dice.uniform(60, 300))
        loader.load(dice.choice(USUAL))


if __name__ == "__main__":
    main()
