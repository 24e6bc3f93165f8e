"""Memory of the fold: what it has seen before costs nothing more, and a block a bounded amount.

Bytes and blocks of memory are counted, which is the same on any machine; seconds are not.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.segments import BLOCK_BYTES, Segment
from mx_log.files import SegmentName
from tests.support import Lines

ENGINE = {"engine": "vllm", "model": "m"}
POLICY = {"policy": "load_aware"}
ATTEMPT_PHASES = ("metadata", "prepare", "register", "handshake", "receive", "finalize", "release")

#: Loads of a warm-up, and of what is measured.
LOADS = 600


def load(log: Lines, number: int) -> Iterator[bytes]:
    """The lines of one load that a peer served."""
    known = {"load_id": f"load-{number}"}
    took = {"seconds": (number % 97) / 7}

    def timed(name: str, **fields: object) -> Iterator[bytes]:
        yield log(f"{name}_started", **fields, **known)
        yield log(f"{name}_finished", **fields, **took, outcome="success", **known)

    yield log("load_started", **ENGINE, model_role="main", **known)
    for phase in ("artifact_install", "model_init"):
        yield from timed("load_phase", **ENGINE, phase=phase)
    yield log("sources_listed", **POLICY, result="ok", **known)
    for stage in ("listed", "rank_matched", "accelerator_matched"):
        yield log("candidates_counted", **POLICY, stage=stage, count=number % 5, **known)
    yield log("sources_ordered", **POLICY, **took, **known)
    peers = [{"source_worker_id": f"w{n}", "load": number % 9 / 9} for n in range(2)]
    yield log("candidate_loads_seen", loads=peers, **known)
    yield log("source_selected", **POLICY, source_worker_id="w0", **known)
    for phase in ATTEMPT_PHASES:
        yield from timed("source_attempt_phase", **POLICY, phase=phase)
    yield log("nixl_received", result="complete", **known)
    yield log("transfer_finished", **POLICY, outcome="success", **took, **known)
    yield log("source_attempted", **POLICY, result="success", **known)
    yield log("load_finished", **ENGINE, model_role="main", outcome="success", **took, **known)


def blocks(log: Lines, first: int) -> list[bytes]:
    """So many loads as they are read from a file."""
    data = b"".join(b"".join(load(log, number)) for number in range(first, first + LOADS))
    return [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def in_use() -> tuple[int, int]:
    """Bytes and blocks of memory that are held; what the interpreter keeps for reuse is not."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()


@pytest.mark.long
@pytest.mark.usefixtures("traced")
def test_events_of_known_shapes_leave_nothing_behind() -> None:
    fold, log = Fold(CATALOG), Lines(step=1e-4)
    segment = Segment(SegmentName(log.proc, 0), inode=1)
    known, new = blocks(log, 0), blocks(log, LOADS)
    for block in known:
        segment.feed(fold, block)
    assert fold.state.events["load_finished"] == LOADS
    size, count = in_use()
    most = 0
    for block in new:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        segment.feed(fold, block)
        most = max(most, tracemalloc.get_traced_memory()[1] - before)
    assert fold.state.events["load_finished"] == 2 * LOADS
    events = sum(fold.state.events.values()) / 2
    grown, more = (now - then for now, then in zip(in_use(), (size, count), strict=True))
    assert grown < 0.2 * events, f"{grown / events:.2f} bytes an event"
    assert more < 0.01 * events, f"{more / events:.3f} blocks of memory an event"
    # The parser alone takes some eighteen times of what it is given.
    assert most < 32 * BLOCK_BYTES, f"{most / BLOCK_BYTES:.1f} bytes for each of a block"
