"""A thousand loads, as the timeline tells of them and as SQL does that knows nothing of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mx_exporter
from mx_demo.loads import SCENARIOS
from mx_exporter.analysis.summary import Summary
from mx_exporter.loads.as_json import as_dict
from mx_exporter.loads.model import Load
from mx_exporter.loads.starts import pod_starts
from tests.benchmarks.loads_duckdb import Loads
from tests.support.simulated_loads import failed, in_order, side_by_side, simulate, spread

_RANKS = 8

QUANTILES = (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)

#: What can be told of a load of which events are missing.
KEPT = (
    "pod", "namespace", "node", "rank", "model", "role", "scheme", "version", "ended",
    "seconds", "outcome", "error", "error_type",
)  # fmt: skip


def ranks(count: int, seed: int = 0) -> Iterator[list[bytes]]:
    """The lines of ranks that load four times, or die before; of some every load fails, some load
    two models at the same time."""
    dice = random.Random(seed)

    def rank(number: int) -> list[bytes]:
        return simulate(
            dice.choices(list(SCENARIOS), k=4),
            seed=dice.getrandbits(32),
            rank=number % _RANKS,
            pod=f"pod-{number // _RANKS}",
            node=f"node-{number % 3}",
            engine=dice.choice(["vllm", "sglang"]),
            model=dice.choice(["a/large", "b/small"]),
            release=dice.choice(["0.6.0", "0.7.0"]),
            scheme=dice.choice(["", "v1", "v2"]),
            start=1_767_225_600 + 30.25 * number,
            dies_after=dice.choice([None, None, dice.randrange(60)]),
        ).lines

    for number in range(count):
        lines = rank(number)
        if number % 7 == 0:
            lines = side_by_side(lines, rank(number))
        if number % 5 == 0:
            lines = [failed(line) for line in lines]
        yield lines


def write(place: Path, processes: Iterator[list[bytes]], seed: int = 0) -> None:
    dice = random.Random(seed)
    for number, lines in enumerate(processes):
        spread(place, lines, dice, segments=1 + number % 3, doubles=number % 4)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("logs")
    write(place, ranks(360))
    return place


@pytest.fixture(scope="module")
def oracle(logs: Path) -> Loads:
    return Loads(str(logs))


@pytest.fixture(scope="module")
def loads(logs: Path) -> list[Load]:
    return in_order(mx_exporter.timeline(str(logs), jobs=1))


def differing(found: Any, said: Any, where: str = "") -> list[str]:
    """Where two values differ. Numbers are those of the log, or sums and differences of such, which
    are taken in another order there."""
    if isinstance(found, dict) and isinstance(said, dict):
        if found.keys() != said.keys():
            return [f"{where}: {sorted(found)} and {sorted(said)}"]
        return [
            each for key in found for each in differing(found[key], said[key], f"{where}.{key}")
        ]
    if isinstance(found, list) and isinstance(said, list) and len(found) == len(said):
        pairs = enumerate(zip(found, said, strict=True))
        return [each for at, pair in pairs for each in differing(*pair, f"{where}[{at}]")]
    if isinstance(found, float) and isinstance(said, float) and abs(found - said) < 1e-5:
        return []
    return [] if found == said else [f"{where}: {found!r} and {said!r}"]


def told(load: Load) -> dict[str, Any]:
    given = json.loads(json.dumps(as_dict(load)))
    del given["why"]
    for gap in given["gaps"]:
        del gap["what"]
    return given


def test_a_thousand_loads_agree_in_every_field(loads: list[Load], oracle: Loads) -> None:
    expected = oracle.objects()
    assert len(loads) == len(expected) >= 1000
    for load, said in zip(loads, expected, strict=True):
        assert differing(told(load), said, load.load_id or "") == []
    outcomes = Counter(load.outcome for load in loads)
    assert min(outcomes[each] for each in ("success", "error", "killed")) > 50


@pytest.mark.parametrize("by", ["pod", "node", "model", "scheme", "version"])
def test_quantiles_agree(loads: list[Load], oracle: Loads, by: str) -> None:
    summary = Summary(by=by)
    for load in loads:
        summary.add(load)
    found = {
        name: (group.total, group.outcomes["success"], *map(group.quantile, QUANTILES))
        for name, group in summary.groups.items()
    }
    said = {name or "none": values for name, *values in oracle.quantiles(by, QUANTILES)}
    assert found.keys() == said.keys()
    for name, values in found.items():
        assert values == pytest.approx(tuple(said[name]))


def test_peers_agree(loads: list[Load], oracle: Loads) -> None:
    summary = Summary()
    for load in loads:
        summary.add(load)
    found = {
        name: (group.total, group.outcomes["success"], group.quantile(0.5))
        for name, group in summary.peers.items()
        if name != "unknown"
    }
    said = {name: tuple(values) for name, *values in oracle.peers()}
    assert len(said) > 3
    assert found == said


def test_slowest_ranks_of_starts_agree(loads: list[Load], oracle: Loads) -> None:
    whole = [load for load in loads if load.outcome == "success" and load.first_seq == 1]
    found = {
        (start.place, start.slowest.rank, start.slowest.seconds, start.median)
        for start in pod_starts(whole)
    }
    assert found == {tuple(row) for row in oracle.first_starts()}


def test_loads_some_of_whose_events_are_lost_agree_in_what_is_left(tmp_path: Path) -> None:
    dice = random.Random(1)
    left = ([line for line in lines if dice.random() > 0.1] for lines in ranks(40, seed=1))
    write(tmp_path, left)
    found = [told(load) for load in in_order(mx_exporter.timeline(str(tmp_path), jobs=1))]
    said = {(each["proc"], each["load_id"]): each for each in Loads(str(tmp_path)).objects()}
    assert len(found) == len(said) > 100
    for load in found:
        other = said[load["proc"], load["load_id"]]
        assert {key: load[key] for key in KEPT} == {key: other[key] for key in KEPT}
