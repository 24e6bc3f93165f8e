"""Fold a fleet on Ray: python on_ray.py STATES LOGS...

LOGS are a directory a pod, STATES is a new directory; both have the same names on all nodes, on
which mx-metrics is installed. The page goes to standard output.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ray

#: Directories that a task folds, and states that one merges.
LOGS_EACH, STATES_EACH = 50, 20


@ray.remote(num_cpus=1)
def fold(state: str, logs: list[str]) -> str:
    """The state of some logs."""
    command = ["mx-metrics", "replay", "--jobs", "1", *logs, "--save-state", state]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return state


@ray.remote(num_cpus=1)
def merge(state: str, *parts: str) -> str:
    """The state of some states."""
    command = ["mx-metrics", "merge", *parts, "--save-state", state]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return state


def cut(given: list[str], size: int) -> list[list[str]]:
    """Lists of so many."""
    return [given[at : at + size] for at in range(0, len(given), size)]


def main(place: Path, logs: list[str]) -> None:
    """Fold, merge as a tree, and print."""
    place.mkdir(parents=True, exist_ok=True)
    ray.init()
    states = [
        fold.remote(str(place / f"0-{at}.state"), some)
        for at, some in enumerate(cut(logs, LOGS_EACH))
    ]
    level = 0
    while len(states) > STATES_EACH:
        level += 1
        states = [
            merge.remote(str(place / f"{level}-{at}.state"), *some)
            for at, some in enumerate(cut(states, STATES_EACH))
        ]
    subprocess.run(["mx-metrics", "merge", *ray.get(states)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), [str(Path(log).resolve()) for log in sys.argv[2:]])
