"""One simulated rank: calls the recorders as the client does while it loads a model.

The order of the calls and the magnitudes of the durations are those of real loads; the clock
runs ``--speed`` times as fast, so that a load of a minute takes a second and still shows as a
minute. ``receiving`` on standard output says that a rank which is to hang, or to be killed, is
in the middle of its transfer.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import threading
import time
from typing import Any, NamedTuple, NoReturn

POLICY = "load_aware"


class Peer(NamedTuple):
    """A candidate as the client's protobuf message has it."""

    worker_id: str
    source_load: float
    published: bool = True

    def HasField(self, name: str) -> bool:
        return name == "source_load" and self.published


class TransferFailed(RuntimeError):
    pass


class Rank:
    """Runs scenarios. Durations are simulated seconds."""

    def __init__(self, speed: float, seed: int, engine: str, model: str) -> None:
        self.speed = speed
        self.dice = random.Random(seed)
        self.engine = engine
        self.model = model
        # Before the emitter is imported, which may take the function by name.
        real, start = time.perf_counter, time.perf_counter()
        time.perf_counter = lambda: start + (real() - start) * speed
        from mx_emitter import enable_metrics, metrics

        self.metrics: Any = metrics
        enable_metrics()

    def work(self, typical: float) -> None:
        """Take about ``typical`` seconds."""
        time.sleep(typical * self.dice.uniform(0.8, 1.3) / self.speed)

    # -- the parts of a load -----------------------------------------------------------

    def load(self, scenario: str) -> None:
        """One whole load; the phases are those of the engine's loader."""
        m, engine, model = self.metrics, self.engine, self.model
        with m.time_load(engine, model, "main"):
            with m.time_load_phase(engine, model, "artifact_install"):
                if scenario == "artifacts":
                    self.install_artifacts()
            if engine == "vllm":  # SGLang is handed a model that is made already
                with m.time_load_phase(engine, model, "model_init"):
                    self.work(9)
            with m.time_load_phase(engine, model, "chain"):
                try:
                    self.from_peers(scenario)
                except TransferFailed:
                    self.work(75)  # the chain's next strategy reads the disk
            with m.time_load_phase(engine, model, "publish"):
                self.work(0.05)

    def install_artifacts(self) -> None:
        m = self.metrics
        for artifact, archive, size in (
            ("torch_compile_cache", "primary", 412_000_000),
            ("triton_cache", "primary", 61_000_000),
        ):
            with m.time_artifact_install_step(artifact, archive, "validate"):
                self.work(0.7)
            with m.time_artifact_install_step(artifact, archive, "extract"):
                self.work(size / 90e6)
            m.record_artifact_install_bytes(artifact, archive, size)

    def from_peers(self, scenario: str) -> None:
        """List, select, and try one source after the other."""
        m = self.metrics
        if scenario == "alone":
            m.record_list_sources(POLICY, "empty")
            for stage in ("listed", "rank_matched", "accelerator_matched"):
                m.observe_candidates(POLICY, stage, 0)
            raise TransferFailed("no source is ready")

        peers = [Peer(f"worker-{n}", self.dice.uniform(0.05, 0.9), n != 3) for n in range(4)]
        started = time.perf_counter()
        peers.sort(key=lambda peer: (not peer.published, peer.source_load))
        m.record_list_sources(POLICY, "ok")
        m.observe_candidates(POLICY, "listed", len(peers) * 8)
        m.observe_candidates(POLICY, "rank_matched", len(peers))
        m.observe_candidates(POLICY, "accelerator_matched", len(peers))
        m.observe_selection_seconds(POLICY, (time.perf_counter() - started) / self.speed)
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
                    self.work(0.4)
                    raise LookupError(f"no metadata of {peer.worker_id}")
                m.record_metadata_failure(POLICY)
                m.record_attempt(POLICY, "metadata_miss")
                continue
            with m.time_source_attempt_phase(POLICY, "metadata"):
                self.work(0.03)
            m.record_selection(POLICY, peer.worker_id)
            started = time.perf_counter()
            try:
                self.transfer(scenario, fails=number < failures)
            except TransferFailed:
                outcome = "fallback" if last else "retry"
                m.observe_transfer_seconds(POLICY, outcome, time.perf_counter() - started)
                m.record_attempt(POLICY, f"transfer_{outcome}")
                if last:
                    raise
            except BaseException:
                m.observe_transfer_seconds(POLICY, "fallback", time.perf_counter() - started)
                m.record_attempt(POLICY, "transfer_fallback")
                raise
            else:
                m.observe_transfer_seconds(POLICY, "success", time.perf_counter() - started)
                m.record_attempt(POLICY, "success")
                return

    def transfer(self, scenario: str, *, fails: bool) -> None:
        """Receive the weights from one source."""
        m = self.metrics
        with m.time_source_attempt_phase(POLICY, "prepare"):
            self.work(0.3)
        with m.time_source_attempt_phase(POLICY, "register"):
            self.work(1.8)
        with m.time_source_attempt_phase(POLICY, "handshake"):
            self.work(0.15)
        try:
            with m.time_source_attempt_phase(POLICY, "receive"):
                if scenario in ("hang", "killed"):
                    print("receiving", flush=True)
                    threading.Event().wait()
                if fails:
                    self.work(30)
                    m.record_nixl_error("timeout")
                    raise TransferFailed("receive timed out")
                self.work(22)
                m.record_nixl_receive("complete")
        finally:
            with m.time_source_attempt_phase(POLICY, "release"):
                self.work(0.02)
        with m.time_source_attempt_phase(POLICY, "finalize"):
            self.work(1.2)


#: What a rank that goes on draws its next load from.
USUAL = ["peer"] * 10 + ["artifacts"] * 4 + ["retry"] * 2 + ["miss"] * 2 + ["fallback", "alone"]


def _leave(*_: object) -> NoReturn:
    sys.exit(143)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="loads to run, in order")
    parser.add_argument("--forever", action="store_true", help="then go on with usual loads")
    parser.add_argument("--speed", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--model", default="example/model-70b")
    options = parser.parse_args()

    # An engine that is told to stop unwinds: its load ends with an error.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's to handle
    rank = Rank(options.speed, options.seed, options.engine, options.model)
    for scenario in options.scenarios:
        rank.load(scenario)
    while options.forever:
        time.sleep(rank.dice.uniform(1, 5))
        rank.load(rank.dice.choice(USUAL))


if __name__ == "__main__":
    main()
