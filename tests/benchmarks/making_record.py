"""Log a few loads of the mix that `making` multiplies; the environment says where to.

Eight loads: one of them installs an artifact, one meets a source that fails first, one finds
nobody.
"""

from __future__ import annotations

from mx_emitter import enable_metrics, metrics
from tests.benchmarks import one_load

LOADS = 8


def install() -> None:
    """What a load does that finds a compile cache."""
    for step in ("validate", "extract"):
        with metrics.time_artifact_install_step("torch_compile_cache", "primary", step):
            pass
    metrics.record_artifact_install_bytes("torch_compile_cache", "primary", 123_456_789)


def retry() -> None:
    """What an attempt at a source logs that fails in the middle of its transfer."""
    metrics.record_metadata_failure(one_load.POLICY)
    metrics.record_attempt(one_load.POLICY, "metadata_miss")
    for phase in ("metadata", "prepare", "register", "handshake"):
        with metrics.time_source_attempt_phase(one_load.POLICY, phase):
            pass
    metrics.observe_source_attempt_phase_seconds(one_load.POLICY, "receive", "error", 30.0)
    metrics.record_nixl_error("timeout")
    metrics.record_nixl_receive("rejected")
    metrics.observe_transfer_seconds(one_load.POLICY, "retry", 30.0)
    metrics.record_attempt(one_load.POLICY, "transfer_retry")


def nobody() -> None:
    """What a load logs that finds no source."""
    metrics.record_list_sources(one_load.POLICY, "empty")
    metrics.observe_candidates(one_load.POLICY, "listed", 0)


def main() -> None:
    enable_metrics(0)
    for at in range(LOADS):
        also = {2: install, 4: retry, 6: nobody}.get(at)
        if also is not None:
            with metrics.time_load(one_load.ENGINE, one_load.MODEL, "draft"):
                also()
        one_load.load(metrics)


if __name__ == "__main__":
    main()
