"""Figures of loads that never ran, drawn so that the ranks of one start have its node in common."""

from __future__ import annotations

import random

from mx_exporter.analysis.compare import Side
from mx_exporter.loads.measured import Measured
from mx_exporter.loads.starts import Began


def drawn(
    starts: int, seed: int, *, ranks: int = 4, receive: float = 1.0, name: str = "logs"
) -> Side:
    """Loads of so many starts.

    :param receive: how many times as long as usual the phase ``receive`` takes.
    """
    dice = random.Random(seed)
    loads = []
    for start in range(starts):
        node = dice.lognormvariate(0, 0.15)
        for rank in range(ranks):
            init = 9 * node * dice.lognormvariate(0, 0.15)
            received = 25 * receive * node * dice.lognormvariate(0, 0.15)
            moment = f"2026-01-01T{start // 60:02}:{start % 60:02}:00.000000Z"
            proc = f"{start:06x}{rank:06x}"
            loads.append(
                Measured(
                    began=Began(("", f"pod-{start}"), moment, proc, 1, rank, "m", "main"),
                    outcome="success",
                    seconds=init + received + 3,
                    engine="vllm",
                    scheme="",
                    version="0.7.0",
                    node=None,
                    phases={"model_init": init, "chain": received + 3},
                    attempt_phases={"register": [2.0], "receive": [received]},
                    parts={"model_init": init, "peer": received + 3},
                    attempts=[("worker-0", True)],
                )
            )
    return Side(name, loads)
