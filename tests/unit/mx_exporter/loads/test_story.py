"""The events of one load to what became of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mx_demo.loads import SCENARIOS
from mx_exporter.loads.model import Load
from mx_exporter.loads.parts import KINDS, parts, uncovered
from mx_exporter.loads.why import why
from tests.support.log_lines import Lines
from tests.support.simulated_loads import changed, loads_of, moved, simulate

NAMED = {"engine": "vllm", "model": "m", "model_role": "main"}


def told(scenario: str) -> Load:
    (load,) = loads_of(*simulate([scenario]).lines)
    return load


def attempts(load: Load) -> list[tuple[str | None, str | None]]:
    return [(attempt.peer, attempt.result) for attempt in load.attempts]


def test_an_attempt_has_the_peer_that_was_selected_in_it() -> None:
    first, second = attempts(told("retry"))
    assert first[1] == "transfer_retry"
    assert second[1] == "success"
    assert first[0]
    assert second[0]
    assert first[0] != second[0]


def test_an_attempt_that_missed_its_metadata_has_no_peer() -> None:
    missed, well = told("miss").attempts
    assert (missed.peer, missed.result) == (None, "metadata_miss")
    assert [phase.name for phase in missed.phases] == ["metadata"]
    assert well.succeeded
    assert well.peer


def test_the_clients_own_log_names_the_peer_of_an_attempt_that_missed() -> None:
    log = Lines()
    lines = [log.header(), log("load_started", load_id="a", **NAMED)]
    for number, worker in enumerate(("w-1", "w-2")):
        message = (
            f"[Worker 0] Source attempt: source_attempt_index={number} source_worker_id={worker} x"
        )
        lines += [
            log("log_recorded", load_id="a", message=message),
            log("source_attempt_phase_started", load_id="a", policy="random", phase="metadata"),
            log("source_attempted", load_id="a", policy="random", result="metadata_miss"),
        ]
    (load,) = loads_of(*lines)
    assert attempts(load) == [("w-1", "metadata_miss"), ("w-2", "metadata_miss")]


def phase(log: Lines, event: str, name: str) -> bytes:
    more: dict[str, Any] = {"outcome": "ok", "seconds": 1.0} if event == "finished" else {}
    return log(f"source_attempt_phase_{event}", load_id="a", policy="random", phase=name, **more)


def test_attempts_that_overlap_have_no_peer() -> None:
    log = Lines()
    lines = [
        log.header(),
        log("load_started", load_id="a", **NAMED),
        phase(log, "started", "receive"),
        log("source_selected", load_id="a", policy="random", source_worker_id="w-1"),
        phase(log, "started", "receive"),
        log("source_selected", load_id="a", policy="random", source_worker_id="w-2"),
        phase(log, "finished", "receive"),
        phase(log, "finished", "receive"),
        log("source_attempted", load_id="a", policy="random", result="success"),
        log("source_attempted", load_id="a", policy="random", result="success"),
    ]
    (load,) = loads_of(*lines)
    assert attempts(load) == [(None, "success"), (None, "success")]


def test_an_attempt_that_was_given_up_without_a_word_is_over_when_the_next_begins() -> None:
    log = Lines()
    lines = [
        log.header(),
        log("load_started", load_id="a", **NAMED),
        phase(log, "started", "metadata"),
        phase(log, "finished", "metadata"),
        phase(log, "started", "metadata"),
        phase(log, "finished", "metadata"),
        log("source_selected", load_id="a", policy="random", source_worker_id="w-2"),
        phase(log, "started", "receive"),
    ]
    (load,) = loads_of(*lines)
    assert attempts(load) == [(None, None), ("w-2", None)]
    assert [attempt.seconds is None for attempt in load.attempts] == [False, True]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_parts_add_up_to_the_load(scenario: str) -> None:
    load = told(scenario)
    found = parts(load)
    assert sum(part.seconds for part in found) == pytest.approx(load.elapsed)
    assert all(part.seconds > 0 for part in found)
    assert all(a.end == pytest.approx(b.at) for a, b in pairwise(found))


def test_a_load_that_was_killed_at_any_moment_says_where() -> None:
    met = set()
    for moment in range(40):
        (load,) = loads_of(*simulate(["retry"], dies_after=moment).lines)[:1] or (None,)
        if load is None or load.outcome == "success":
            continue
        assert load.outcome == "killed"
        assert sum(part.seconds for part in parts(load)) == pytest.approx(load.elapsed)
        sentence = why(load)
        assert "which never ended" in sentence, sentence
        met.add(sentence.split(" from ")[0].split(",")[0])
    assert {"in model_init", "in metadata", "in register", "in receive", "in chain"} <= met


@pytest.mark.parametrize(
    ("scenario", "parts_of_it"),
    [
        ("alone", ["no source was listed", "without a peer"]),
        ("peer", ["worker-"]),
        ("artifacts", ["artifacts "]),
        ("retry", [" timed out (", "then worker-"]),
        ("miss", ["the metadata of a source could not be had", "then worker-"]),
        ("fallback", [", worker-", " timed out (", "without a peer"]),
        ("partial", ["the receive from worker-early was partial"]),
        ("hang", ["in receive from worker-", "which never ended"]),
        ("killed", ["in receive from worker-", "which never ended"]),
    ],
)
def test_why_says_what_happened(scenario: str, parts_of_it: list[str]) -> None:
    sentence = why(told(scenario))
    for part in parts_of_it:
        assert part in sentence


def test_what_no_event_covers_is_told() -> None:
    (gap,) = uncovered(told("alone"))
    assert gap.name.endswith("the chain went on without a peer")
    assert gap.seconds
    assert gap.seconds > 50


def test_bars_have_a_letter_for_each_kind() -> None:
    letters = [kind.letter for kind in KINDS.values()]
    assert len(set(letters)) == len(letters)


@pytest.mark.parametrize("by", [-7200.0, -30.0, 30.0, 7200.0])
def test_a_clock_that_is_set_moves_nothing_and_marks_the_load(by: float) -> None:
    lines = simulate(["peer"]).lines
    (before,) = loads_of(*lines)
    at = next(n for n, line in enumerate(lines) if b'"receive"' in line) + 1
    (load,) = loads_of(*lines[:at], *(moved(line, by) for line in lines[at:]))
    assert load.clock_stepped
    assert not before.clock_stepped
    assert "the clock was set meanwhile" in why(load)
    assert load.seconds == before.seconds
    mine, theirs = ([part for part in parts(one) if part.seconds > 0.01] for one in (load, before))
    assert [part.kind for part in mine] == [part.kind for part in theirs]
    assert [part.seconds for part in mine] == pytest.approx([p.seconds for p in theirs], abs=0.01)


@pytest.mark.parametrize("by", [-7200.0, 7200.0])
def test_a_load_that_never_ended_is_as_long_as_it_was_though_the_clock_is_set(by: float) -> None:
    lines = simulate(["retry", "hang"], dies_after=9).lines
    (before,) = loads_of(*lines)
    (load,) = loads_of(*lines[:5], *(moved(line, by) for line in lines[5:]))
    assert (load.outcome, load.clock_stepped) == ("killed", True)
    assert load.elapsed == pytest.approx(before.elapsed, abs=0.01)
    assert sum(part.seconds for part in parts(load)) == pytest.approx(load.elapsed)


@pytest.mark.parametrize("value", ["NaN", "soon", True, [], {}, -1, 10**400, "x" * 100_000])
def test_what_is_no_duration_is_none(value: Any) -> None:
    lines = [
        changed(line, seconds=value) if b'"seconds"' in line else line
        for line in simulate(["retry"]).lines
    ]
    (load,) = loads_of(*lines)
    assert load.outcome == "success"
    assert load.elapsed == pytest.approx(told("retry").elapsed)
    assert sum(part.seconds for part in parts(load)) == pytest.approx(load.elapsed)


def test_a_date_that_is_none_raises_nothing() -> None:
    lines = simulate(["peer"]).lines
    odd = [changed(line, timestamp="2026-02-31T23:59:59.999999Z") for line in lines]
    (load,) = loads_of(*odd)
    assert load.outcome == "success"


def test_a_load_that_failed_names_its_error_and_where() -> None:
    log = Lines()
    wrong = {"error_type": "SystemExit", "error": "143"}
    lines = [
        log.header(),
        log("load_started", load_id="a", **NAMED),
        log("load_phase_started", load_id="a", engine="vllm", model="m", phase="chain"),
        phase(log, "started", "metadata"),
        phase(log, "finished", "metadata"),
        log("source_selected", load_id="a", policy="random", source_worker_id="w-1"),
        phase(log, "started", "receive"),
        log("source_attempt_phase_finished", load_id="a", policy="random", phase="receive",
            outcome="error", seconds=168.3, **wrong),
        log("source_attempted", load_id="a", policy="random", result="transfer_fallback"),
        log("load_phase_finished", load_id="a", engine="vllm", model="m", phase="chain",
            seconds=170.0, **wrong),
        log("load_finished", load_id="a", **NAMED, outcome="error", seconds=180.2, **wrong),
    ]  # fmt: skip
    (load,) = loads_of(*lines)
    assert load.outcome == "error"
    assert why(load).startswith("SystemExit: 143 (SIGTERM) after 168.3 s in receive from w-1")
