"""The recordings of one model load, as the client (0.7.0) makes them when a peer serves it.

22 calls: ten that record one thing, and twelve timers. They go to whatever has the client's
recorders, ours or its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

POLICY = "load_aware"
ENGINE = "vllm"
MODEL = "deepseek-ai/DeepSeek-V3"
STAGES = ("listed", "rank_matched", "accelerator_matched")
ATTEMPT_PHASES = (
    "metadata", "prepare", "register", "handshake", "receive", "finalize", "release",
)  # fmt: skip


class Peer(NamedTuple):
    """A candidate as the client's protobuf message has it."""

    worker_id: str
    source_load: float

    def HasField(self, name: str) -> bool:
        return name == "source_load"


PEERS: Sequence[Peer] = (Peer("0c5c9be1", 0.25), Peer("77ab03f2", 0.5))


def load(m: Any) -> None:
    """Make the recordings of one load on ``m``, at once."""
    with m.time_load(ENGINE, MODEL, "main"):
        with m.time_load_phase(ENGINE, MODEL, "artifact_install"):
            pass
        with m.time_load_phase(ENGINE, MODEL, "model_init"):
            pass
        with m.time_load_phase(ENGINE, MODEL, "chain"):
            m.record_list_sources(POLICY, "ok")
            for stage in STAGES:
                m.observe_candidates(POLICY, stage, 2)
            m.observe_selection_seconds(POLICY, 0.00012)
            m.observe_candidate_loads(PEERS)
            m.record_selection(POLICY, PEERS[0].worker_id)
            for phase in ATTEMPT_PHASES:
                with m.time_source_attempt_phase(POLICY, phase):
                    pass
            m.record_nixl_receive("complete")
            m.observe_transfer_seconds(POLICY, "success", 11.9)
            m.record_attempt(POLICY, "success")
        with m.time_load_phase(ENGINE, MODEL, "publish"):
            pass
