"""Events to loads, whatever their order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_demo.loads import SCENARIOS
from mx_exporter.core.builtin import CATALOG
from mx_exporter.loads.model import Load, microseconds
from mx_exporter.loads.pack import pack, unpack
from mx_exporter.loads.timeline import Timeline
from tests.support.log_lines import Lines
from tests.support.simulated_loads import changed, events, in_order, loads_of, simulate


def two_ranks() -> list[bytes]:
    return [
        *simulate(["peer", "retry", "miss"], rank=0).lines,
        *simulate(["artifacts", "killed"], rank=1).lines,
    ]


def finish(timeline: Timeline, found: list[Load], lines: list[bytes]) -> list[Load]:
    procs = {event.proc for event in events(lines)}
    return in_order(found + timeline.finish(set(), procs))


@settings(max_examples=settings().max_examples)
@given(seed=st.integers(0, 2**32), doubles=st.integers(0, 5), packed=st.booleans())
def test_any_order_and_any_split_give_the_same_loads(seed: int, doubles: int, packed: bool) -> None:
    lines = two_ranks()
    expected = loads_of(*lines)
    assert sorted(load.outcome for load in expected) == ["killed"] + ["success"] * 4
    dice = random.Random(seed)
    shuffled = events(lines + dice.choices(lines, k=doubles))
    dice.shuffle(shuffled)
    timeline, found = Timeline(), []
    while shuffled:
        taken = dice.randint(1, 40)
        found += timeline.feed(shuffled[:taken])
        del shuffled[:taken]
        if packed:
            timeline = unpack(pack(timeline), CATALOG.decoder)
    assert finish(timeline, found, lines) == expected


@settings(max_examples=settings().max_examples)
@given(seed=st.integers(0, 2**32))
def test_timelines_of_parts_of_a_log_merge(seed: int) -> None:
    lines = two_ranks()
    dice = random.Random(seed)
    timelines, found = [Timeline() for _ in range(3)], []
    for event in events(lines):
        found += dice.choice(timelines).feed([event])
    whole = timelines[0]
    for other in timelines[1:]:
        found += whole.merge(unpack(pack(other), CATALOG.decoder))
    assert finish(whole, found, lines) == loads_of(*lines)


def test_a_load_is_given_when_it_ends_and_then_forgotten() -> None:
    lines = simulate(["peer", "peer"]).lines
    timeline = Timeline()
    given = [len(timeline.feed(events([line]))) for line in lines]
    assert sum(given) == 2
    assert given[-1] == 1
    assert not timeline.tracks
    assert list(timeline.idle)


def test_a_load_waits_for_the_header_of_its_process() -> None:
    header, *rest = simulate(["peer"]).lines
    timeline = Timeline()
    assert timeline.feed(events(rest)) == []
    (load,) = timeline.feed(events([header]))
    assert load.process.pod == "pod-0"


def test_a_log_without_headers_gives_its_loads_at_the_end() -> None:
    (load,) = loads_of(*simulate(["peer"]).lines[1:])
    assert (load.outcome, load.process.pod) == ("success", None)


def test_what_a_load_logs_after_its_end_is_no_load() -> None:
    lines = simulate(["peer"]).lines
    log = Lines(events(lines)[0].proc, seq=len(lines))
    late = log("nixl_received", result="complete", load_id=events(lines)[1].load_id)
    for order in ([*lines, late], [late, *lines]):
        (load,) = loads_of(*order)
        assert load.others == {}


@pytest.mark.parametrize("lost", ["load_started", "source_selected", "load_finished"])
def test_a_load_of_which_events_are_missing_says_so(lost: str) -> None:
    lines = [line for line in simulate(["peer"]).lines if f'"{lost}"'.encode() not in line]
    (load,) = loads_of(*lines)
    if lost == "load_finished":  # it may have ended well: the log does not say
        assert load.outcome == "killed"
        assert load.missing == 0
    else:
        assert load.outcome == "success"
        assert load.missing == 1


def test_an_end_that_may_be_among_what_is_missing_is_unknown() -> None:
    lines = simulate(["peer", "peer"]).lines
    at = next(n for n, line in enumerate(lines) if b'"load_finished"' in line)
    first, _ = loads_of(*lines[:at], *lines[at + 1 :])
    assert first.outcome == "unknown"


def test_an_end_that_may_have_been_dropped_is_unknown() -> None:
    lines = simulate(["killed"]).lines
    log = Lines(events(lines)[0].proc, seq=len(lines))
    (load,) = loads_of(*lines, log("events_dropped", reason="no_space", count=3))
    assert load.outcome == "unknown"


def test_whether_a_load_runs_is_what_is_known_of_its_process() -> None:
    lines = simulate(["killed"]).lines
    proc = events(lines)[0].proc
    assert loads_of(*lines, alive=[proc])[0].outcome == "running"
    assert loads_of(*lines, gone=[proc])[0].outcome == "killed"
    assert loads_of(*lines, gone=[])[0].outcome == "unknown"


def test_a_process_whose_place_another_one_took_is_gone() -> None:
    first = simulate(["killed"], seed=1)
    second = simulate(["peer"], seed=2, start=1_767_226_000.0)
    elsewhere = simulate(["killed"], seed=3, rank=1)
    loads = loads_of(*first.lines, *second.lines, *elsewhere.lines, gone=[])
    outcomes = {load.process.proc: load.outcome for load in loads}
    assert sorted(outcomes.values()) == ["killed", "success", "unknown"]
    assert outcomes[events(elsewhere.lines)[0].proc] == "unknown"


def test_loads_that_run_are_shown_without_being_given() -> None:
    lines = simulate(["peer", "killed"]).lines
    timeline = Timeline()
    assert len(timeline.feed(events(lines))) == 1
    for _ in range(2):
        (load,) = timeline.running()
        assert (load.outcome, load.open_attempt is not None) == ("running", True)


def test_loads_that_were_observed_as_a_whole() -> None:
    log = Lines()
    named = {"engine": "vllm", "model": None, "model_role": "main", "outcome": "error"}
    (load,) = loads_of(log.header(), log("load_finished", **named, seconds=3.5, timed=False))
    assert (load.load_id, load.seconds, load.outcome) == (None, 3.5, "error")
    assert (load.began, load.ended) == (
        "2025-12-31T23:59:57.500000Z",
        "2026-01-01T00:00:01.000000Z",
    )


def test_loads_within_each_other_and_beside_each_other() -> None:
    log = Lines(step=1.0)
    named = {"engine": "vllm", "model": "m", "model_role": "main"}
    lines = [log.header()]
    for event, load_id in (
        ("load_started", "outer"),
        ("load_started", "inner"),
        ("load_started", "other"),
        ("load_finished", "inner"),
        ("load_finished", "outer"),
        ("load_finished", "other"),
    ):
        end = {"outcome": "success", "seconds": 2.0} if event == "load_finished" else {}
        lines.append(log(event, load_id=load_id, **named, **end))
    assert [load.load_id for load in loads_of(*lines)] == ["outer", "inner", "other"]
    assert all(load.outcome == "success" for load in loads_of(*lines))


def test_records_beyond_what_is_kept_are_counted() -> None:
    first, *rest = simulate(["killed"]).lines
    log = Lines(events([first])[0].proc, seq=len(rest) + 1)
    load_id = events(rest)[0].load_id
    many = [log("log_recorded", message=str(n), load_id=load_id) for n in range(250)]
    for lines in ([first, *rest, *many], [first, *rest, *reversed(many)]):
        (load,) = loads_of(*lines)
        assert [record.message for record in load.records] == [str(n) for n in range(200)]
        assert load.others == {"log_recorded": 50}


def test_every_scenario_of_the_demo_is_a_load() -> None:
    for scenario in SCENARIOS:
        (load,) = loads_of(*simulate([scenario]).lines)
        assert load.outcome == ("killed" if scenario in ("hang", "killed") else "success")


def test_a_load_whose_start_is_lost_began_as_long_before_its_end_as_it_took() -> None:
    lines = [line for line in simulate(["peer"]).lines if b'"load_started"' not in line]
    (load,) = loads_of(*lines)
    (whole,) = loads_of(*simulate(["peer"]).lines)
    assert load.seconds == whole.seconds
    assert abs(microseconds(load.began) - microseconds(whole.began)) <= 1


def test_a_copied_line_of_another_value_changes_nothing() -> None:
    lines = simulate(["peer"]).lines
    other = changed(lines[-1], outcome="error")
    assert loads_of(*lines, other) == loads_of(*lines)
