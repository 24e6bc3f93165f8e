"""Two sets of loads, compared."""

from __future__ import annotations

import random

import pytest

from mx_exporter.analysis.compare import Comparison, Side, compare
from mx_exporter.analysis.gates import judge, parse_gate
from mx_exporter.errors import UsageError
from mx_exporter.loads.compare import FASTER, SAME, SLOWER, TOO_FEW, Series, difference
from mx_exporter.loads.measured import measured
from mx_exporter.loads.quantiles import quantile
from tests.benchmarks.false_alarms import rate
from tests.support.measurements import drawn
from tests.support.simulated_loads import loads_of, simulate


def verdicts(found: Comparison) -> dict[str, str]:
    return {row.figure.name: row.differences[0].verdict for row in found.rows}


def test_a_set_differs_from_itself_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mx_exporter.loads.compare._DRAWS", 60)  # fewer are less sure
    for seed in range(200):
        side = drawn(8, seed)
        assert set(verdicts(compare(side, side, seed=seed)).values()) == {SAME}


def test_the_phase_that_became_slower_is_found() -> None:
    for seed in range(2):
        found = verdicts(compare(drawn(50, seed), drawn(50, seed + 1000, receive=1.2)))
        assert found["receive"] == SLOWER
        assert found["register"] == SAME
        back = verdicts(compare(drawn(50, seed + 1000, receive=1.2), drawn(50, seed)))
        assert back["receive"] == FASTER


def test_false_alarms_are_rarer_than_the_level_allows() -> None:
    """Draws are seeded: this is the same every time."""
    median, far = rate(20, 100)
    assert median <= 0.05
    assert far <= 0.05


def test_the_same_loads_give_the_same_interval_in_any_order() -> None:
    before, after = drawn(8, 1), drawn(9, 2, receive=1.1)
    expected = compare(before, after)
    dice = random.Random(5)
    mixed = Side(after.name, dice.sample(after.loads, len(after.loads)))
    found = compare(before, Side(mixed.name, sorted(mixed.loads, key=lambda m: m.began[1:4])))
    assert [row.differences for row in found.rows] == [row.differences for row in expected.rows]


@pytest.mark.parametrize(("starts", "said"), [(5, TOO_FEW), (6, SAME)])
def test_too_few_starts_say_nothing(starts: int, said: str) -> None:
    side = drawn(starts, 1)
    row = compare(side, side).rows[0]
    assert row.differences[0].verdict == said


def test_a_far_quantile_needs_more_loads() -> None:
    few, many = drawn(17, 1), drawn(18, 1)
    assert compare(few, few).rows[0].differences[1].verdict == TOO_FEW
    assert compare(many, many).rows[0].differences[1].verdict == SAME


def test_equal_values_differ_from_other_equal_values() -> None:
    ours, theirs = (Series(((value,),) * 8) for value in (1.0, 2.0))
    found = difference(ours, theirs, 0.5)
    assert (found.interval, found.verdict) == ((1.0, 1.0), SLOWER)


def test_parts_add_up_to_the_change_of_the_mean() -> None:
    ours, theirs = drawn(10, 1), drawn(12, 2, receive=1.5)
    found = compare(ours, theirs)
    means = [found.mean(side) or 0.0 for side in (ours, theirs)]
    change = sum(share.change for share in found.shares)
    assert change == pytest.approx(means[1] - means[0])
    assert found.shares[0].kind == "peer"


def simulated(*scenarios: str, seed: int = 0) -> Side:
    loads = []
    for at, scenario in enumerate(scenarios):
        lines = simulate([scenario], seed=seed, pod=f"pod-{at}").lines
        loads += [measured(load) for load in loads_of(*lines)]
    return Side("simulated", loads)


def test_quantiles_are_those_of_loads_that_ended_well() -> None:
    side = simulated("peer", "retry", "killed", "artifacts")
    found = compare(side, side)
    seconds = [load.seconds or 0.0 for load in side.loads if load.outcome == "success"]
    assert len(seconds) == 3
    assert found.rows[0].differences[0].before == quantile(seconds, 0.5)
    assert side.outcomes["killed"] == 1


def test_attempts_and_peers_are_counted() -> None:
    found = compare(simulated("peer"), simulated("retry", "killed"))
    assert sum(sum(peer.attempts) for peer in found.peers) == 4
    assert sum(sum(peer.succeeded) for peer in found.peers) == 2


# --------------------------------------------------------------------------------------
# Gates

BEFORE, AFTER = drawn(50, 1), drawn(50, 2, receive=1.4)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("receive.p50 > +20%", True),
        ("receive.p50 > +80%", False),
        ("receive.p50>+5s", True),
        ("receive.p50 > +500s", False),
        ("load.p50 > 1s", True),
        ("load.p50 > 1000s", False),
        ("load.p50 < 1000s", True),
        ("register.p50 > +0%", False),
        ("failed > 0", False),
        ("killed > +0", False),
        ("killed < 1", True),
    ],
)
def test_gates(text: str, failed: bool) -> None:
    assert judge(parse_gate(text), compare(BEFORE, AFTER)).failed is failed


def test_what_chance_explains_fails_no_gate() -> None:
    verdict = judge(parse_gate("load.p50 > +0%"), compare(drawn(8, 3), drawn(8, 4)))
    assert not verdict.failed
    assert verdict.said.endswith("no difference shown")


def test_too_few_loads_fail_no_gate() -> None:
    verdict = judge(parse_gate("receive.p50 > +20%"), compare(drawn(3, 1), drawn(3, 2, receive=2)))
    assert (verdict.failed, verdict.skipped) == (False, True)


@pytest.mark.parametrize(
    "text",
    ["", "receive", "receive.p50", "receive > +20%", "receive.p50 > 20%", "receive.p51 > +20%",
     "failed.p50 > 1s", "failed > +1%", "receive.p50 >= +20%", "receive.p50 > +20"],
)  # fmt: skip
def test_what_is_no_gate_says_what_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected a figure and a bound, such as"):
        parse_gate(text)


def test_a_figure_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="there is no figure recieve; there are load, model_init"):
        judge(parse_gate("recieve.p50 > +20%"), compare(BEFORE, AFTER))
