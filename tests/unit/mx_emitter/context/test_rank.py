"""The rank of a process: from the environment, from torch, or unknown."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import pytest

from mx_emitter import enable_metrics, metrics
from mx_emitter.context.rank import find_rank
from tests.support.emitting import Log


class Distributed:
    def __init__(self, rank: Any, initialized: bool = True) -> None:
        self.rank = rank
        self.initialized = initialized

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.initialized

    def get_rank(self) -> Any:
        if isinstance(self.rank, Exception):
            raise self.rank
        return self.rank


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, (None, "nowhere")),
        ({"RANK": "3", "LOCAL_RANK": "1"}, (3, "RANK")),
        ({"RANK": "x", "OMPI_COMM_WORLD_RANK": " 4 "}, (4, "OMPI_COMM_WORLD_RANK")),
        ({"RANK": "-1", "SLURM_PROCID": "0", "LOCAL_RANK": "1"}, (0, "SLURM_PROCID")),
        ({"RANK": "", "LOCAL_RANK": "1"}, (1, "LOCAL_RANK")),
        ({"RANK": "9" * 5000}, (None, "nowhere")),
        ({"RANK": "1_0", "LOCAL_RANK": "٣"}, (None, "nowhere")),
    ],
)
def test_rank_of_the_environment(environ: dict[str, str], found: object) -> None:
    assert find_rank(environ) == found


@pytest.mark.parametrize(
    ("distributed", "rank"),
    [
        (Distributed(5), 5),
        (Distributed(-1), 3),
        (Distributed(5, initialized=False), 3),
        (Distributed(RuntimeError("not in a group")), 3),
        (object(), 3),
    ],
    ids=["initialised", "in-no-group", "not-initialised", "raising", "half-imported"],
)
def test_rank_of_torch(distributed: object, rank: int, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert find_rank({"RANK": "3"})[0] == rank


def test_the_rank_is_looked_for_again_at_each_load(log: Log, monkeypatch: Any) -> None:
    monkeypatch.setenv("RANK", "3")
    metrics.record_nixl_receive("empty")
    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed(5))
    metrics.record_nixl_receive("empty")
    with metrics.time_load("vllm", "m", "main"):
        pass
    assert enable_metrics(rank=8)
    with metrics.time_load("vllm", "m", "main"):
        pass
    assert [line["rank"] for line in log.lines()] == [3, 3, 3, 5, 5, 8, 8]


@pytest.mark.parametrize("rank", ["3", -1, True, 2.0, 2**63, object()])
def test_what_is_no_rank_is_said_and_passed_over(
    rank: object, log: Log, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv("RANK", "4")
    assert enable_metrics(rank=rank) is True
    assert log.lines()[0]["rank"] == 4
    assert len(caplog.messages) == 1


def test_a_rank_that_cannot_be_asked_for_its_class(log: Log, caplog: Any) -> None:
    assert enable_metrics(rank=weakref.proxy(set())) is True
    assert log.lines()[0]["rank"] is None
    assert len(caplog.messages) == 1
