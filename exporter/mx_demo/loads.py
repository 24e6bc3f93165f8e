"""Simulated loads: the recorders that a client calls while it loads a model, in its order.

Who records, and what time it is, is given: `rank` has the emitter and the clock on the wall,
`simulated` a log and a clock of its own. Durations are those of real loads, in seconds.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, NamedTuple, NoReturn, Protocol

POLICY = "load_aware"

#: What a load may come to.
SCENARIOS = {
    "alone": "the first pod of a deployment finds no peer, and reads the disk",
    "peer": "the weights come from a peer",
    "artifacts": "compile caches are installed, too",
    "retry": "the first peer does not answer in time, the second does",
    "miss": "the first peer has left, the second has the weights",
    "fallback": "no peer answers in time: the disk is read",
    "partial": "not all weights arrive, and nothing says so but a counter",
    "hang": "the transfer never ends",
    "killed": "the rank is killed in the middle of its transfer",
}

#: What a rank that goes on draws its next load from.
USUAL = ["peer"] * 10 + ["artifacts"] * 4 + ["retry"] * 2 + ["miss"] * 2 + ["fallback", "alone"]


class Clock(Protocol):
    """The time of a rank."""

    def now(self) -> float:
        """Seconds since some moment."""

    def work(self, seconds: float) -> None:
        """Let so much time go by."""

    def stop(self, scenario: str) -> NoReturn:
        """Hang, or be killed: nothing comes after it."""


class Peer(NamedTuple):
    """A candidate as the client's protobuf message has it."""

    worker_id: str
    source_load: float
    published: bool = True

    def HasField(self, name: str) -> bool:
        return name == "source_load" and self.published


#: Chosen before all others, and publishing before it has all weights.
EARLY = Peer("worker-early", 0.01)


class TransferFailed(RuntimeError):
    """A source did not give its weights."""


class Loader:
    """Loads a model again and again.

    :param metrics: what the emitter's ``metrics`` are.
    :param slowness: how many times as long as usual its node takes.
    """

    def __init__(
        self,
        metrics: Any,
        clock: Clock,
        dice: random.Random,
        engine: str = "vllm",
        model: str = "example/model-70b",
        slowness: float = 1.0,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._dice = dice
        self._engine = engine
        self._model = model
        self._slowness = slowness

    def load(self, scenario: str) -> None:
        """One whole load; the phases are those of the engine's loader."""
        m, engine, model = self._metrics, self._engine, self._model
        with m.time_load(engine, model, "main"):
            with m.time_load_phase(engine, model, "artifact_install"):
                if scenario == "artifacts":
                    self._install_artifacts()
            if engine == "vllm":  # SGLang is handed a model that is made already
                with m.time_load_phase(engine, model, "model_init"):
                    self._work(9)
            with m.time_load_phase(engine, model, "chain"):
                try:
                    self._from_peers(scenario)
                except TransferFailed:
                    self._work(75)  # the chain's next strategy reads the disk
            with m.time_load_phase(engine, model, "publish"):
                self._work(0.05)

    def _work(self, typical: float) -> None:
        """Take about ``typical`` seconds."""
        self._clock.work(typical * self._slowness * self._dice.uniform(0.8, 1.3))

    def _install_artifacts(self) -> None:
        m = self._metrics
        for artifact, archive, size in (
            ("torch_compile_cache", "primary", 412_000_000),
            ("triton_cache", "primary", 61_000_000),
        ):
            with m.time_artifact_install_step(artifact, archive, "validate"):
                self._work(0.7)
            with m.time_artifact_install_step(artifact, archive, "extract"):
                self._work(size / 90e6)
            m.record_artifact_install_bytes(artifact, archive, size)

    def _peers(self, scenario: str) -> list[Peer]:
        """The candidates, best first."""
        peers = [Peer(f"worker-{n}", self._dice.uniform(0.05, 0.9), n != 3) for n in range(4)]
        peers.sort(key=lambda peer: (not peer.published, peer.source_load))
        return [EARLY, *peers] if scenario == "partial" else peers

    def _from_peers(self, scenario: str) -> None:
        """List, select, and try one source after the other."""
        m, clock = self._metrics, self._clock
        if scenario == "alone":
            m.record_list_sources(POLICY, "empty")
            for stage in ("listed", "rank_matched", "accelerator_matched"):
                m.observe_candidates(POLICY, stage, 0)
            raise TransferFailed("no source is ready")

        started = clock.now()
        peers = self._peers(scenario)
        clock.work(0.0002)
        ordered = clock.now() - started
        m.record_list_sources(POLICY, "ok")
        m.observe_candidates(POLICY, "listed", len(peers) * 8)
        m.observe_candidates(POLICY, "rank_matched", len(peers))
        m.observe_candidates(POLICY, "accelerator_matched", len(peers))
        m.observe_selection_seconds(POLICY, ordered)
        m.observe_candidate_loads(peers)

        failures = {"retry": 1, "fallback": 2}.get(scenario, 0)
        attempts = 2 if scenario in ("retry", "fallback", "miss") else 1
        for number, peer in enumerate(peers[:attempts]):
            last = number + 1 == attempts
            if scenario == "miss" and not last:
                with (
                    contextlib.suppress(LookupError),
                    m.time_source_attempt_phase(POLICY, "metadata"),
                ):
                    self._work(0.4)
                    raise LookupError(f"no metadata of {peer.worker_id}")
                m.record_metadata_failure(POLICY)
                m.record_attempt(POLICY, "metadata_miss")
                continue
            with m.time_source_attempt_phase(POLICY, "metadata"):
                self._work(0.03)
            m.record_selection(POLICY, peer.worker_id)
            started = clock.now()
            try:
                self._transfer(scenario, fails=number < failures)
            except TransferFailed:
                outcome = "fallback" if last else "retry"
                m.observe_transfer_seconds(POLICY, outcome, clock.now() - started)
                m.record_attempt(POLICY, f"transfer_{outcome}")
                if last:
                    raise
            except BaseException:
                m.observe_transfer_seconds(POLICY, "fallback", clock.now() - started)
                m.record_attempt(POLICY, "transfer_fallback")
                raise
            else:
                m.observe_transfer_seconds(POLICY, "success", clock.now() - started)
                m.record_attempt(POLICY, "success")
                return

    def _transfer(self, scenario: str, *, fails: bool) -> None:
        """Receive the weights from one source."""
        m = self._metrics
        with m.time_source_attempt_phase(POLICY, "prepare"):
            self._work(0.3)
        with m.time_source_attempt_phase(POLICY, "register"):
            self._work(1.8)
        with m.time_source_attempt_phase(POLICY, "handshake"):
            self._work(0.15)
        try:
            with m.time_source_attempt_phase(POLICY, "receive"):
                if scenario in ("hang", "killed"):
                    self._clock.stop(scenario)
                if fails:
                    self._work(30)
                    m.record_nixl_error("timeout")
                    raise TransferFailed("receive timed out")
                self._work(22)
                m.record_nixl_receive("partial" if scenario == "partial" else "complete")
        finally:
            with m.time_source_attempt_phase(POLICY, "release"):
                self._work(0.02)
        with m.time_source_attempt_phase(POLICY, "finalize"):
            self._work(1.2)
