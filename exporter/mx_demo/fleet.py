"""Logs of a fleet of pods that never ran, to try commands on: ``mx-metrics demo --pods N``."""

from __future__ import annotations

import contextlib
import random
import uuid
from pathlib import Path
from typing import NamedTuple

from .loads import USUAL, Loader
from .simulated import SimulatedClock, SimulatedRank, Stopped

#: Ranks of a pod, and pods of a node.
RANKS, PODS_OF_A_NODE = 4, 3

#: Seconds between the starts of two pods.
APART = 20.0

#: The second half of the pods has the newer one.
RELEASES = ("0.7.0", "0.7.1")

#: How many times as long as elsewhere a load takes on the last node that is full.
SLOWNESS = 2.5

#: What happens to single ranks, by the number of the pod from the end.
TROUBLE = {1: "hang", 2: "killed", 3: "partial", 4: "fallback"}


class Fleet(NamedTuple):
    """What was written."""

    pods: int
    ranks: int
    loads: int
    size: int


def duration(pods: int) -> float:
    """Seconds in which all of them have loaded."""
    return pods * APART + 600


def write_fleet(out: Path, pods: int, *, start: float, seed: int = 0) -> Fleet:
    """Write the logs of ``pods`` pods, a folder each, into ``out``.

    They start one after the other from ``start`` on, in seconds since 1970; the first finds no
    peer. The rest is drawn by ``seed``: the same arguments give the same bytes.
    """
    loads = size = 0
    slow = max(0, pods // PODS_OF_A_NODE - 1)
    for number in range(pods):
        dice = random.Random(f"{seed} {number}")
        node = number // PODS_OF_A_NODE
        name = f"engine-{number}"
        uid = str(uuid.UUID(int=dice.getrandbits(128), version=4))
        (out / name).mkdir(parents=True)
        for rank in range(RANKS):
            clock = SimulatedClock(start + number * APART + dice.uniform(0, 2))
            process = SimulatedRank(
                clock,
                dice,
                rank=rank,
                scheme="demo",
                release=RELEASES[2 * number >= pods],
                pod=name,
                uid=uid,
                namespace="models",
                node=f"node-{node}",
            )
            slowness = SLOWNESS if node == slow and slow else 1.0
            loader = Loader(process, clock, dice, slowness=slowness)
            clock.work(15)  # the engine starts
            with contextlib.suppress(Stopped):
                loader.load(_scenario(dice, number, rank, pods))
            loads += 1
            size += process.write(out / name).stat().st_size
    return Fleet(pods, pods * RANKS, loads, size)


def _scenario(dice: random.Random, number: int, rank: int, pods: int) -> str:
    if number == 0:
        return "alone"
    if rank == 0 and pods - number in TROUBLE:
        return TROUBLE[pods - number]
    return dice.choice([one for one in USUAL if one != "alone"])
