"""Loads in progress, and loads whose process is gone."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core import series_cap, snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import ABANDONED, IN_PROGRESS, Catalog
from mx_exporter.core.fold import Fold
from mx_exporter.core.load_tracker import Loads, LoadTable
from mx_exporter.core.snapshot_codec import dump, load
from tests.support import Lines
from tests.support.folding import fold, pages, value
from tests.support.strategies import flawed

LOAD = {"engine": "vllm", "model": "m", "model_role": "main", "outcome": "success", "seconds": 1}
PHASE = {"engine": "vllm", "model": "m", "phase": "chain"}


def load_log(*events, proc="aaaaaaaaaaaa"):
    log = Lines(proc)
    whole = {"engine": "vllm", "model": "m", "model_role": "main"}
    phase = {"engine": "vllm", "model": "m"}
    fields = {
        "start": ("load_started", whole),
        "end": ("load_finished", {**whole, "outcome": "success", "seconds": 1}),
    }
    lines = []
    for what in events:
        name, _, load_id = what.partition(" ")
        if name in fields:
            event, given = fields[name]
        else:
            event = "load_phase_started" if name[0] == "+" else "load_phase_finished"
            given = {**phase, "phase": name[1:], "seconds": 1}
        lines.append(log(event, **given, load_id=load_id or "l1"))
    return lines


def progress(whole: Fold) -> tuple[dict[str, int], dict[str, int]]:
    """Loads in progress and abandoned, by phase, zeros left out."""
    running = {labels[2]: n for labels, n in whole.state.loads.in_progress().items() if n}
    abandoned = {labels[2]: n for labels, n in whole.state.loads.abandoned.items() if n}
    return running, abandoned


@pytest.mark.parametrize(
    ("events", "running"),
    [
        (["start"], {"": 1}),
        (["start", "+chain"], {"chain": 1}),
        (["start", "+chain", "-chain"], {"": 1}),
        (["start", "+model_init", "-model_init", "+chain"], {"chain": 1}),
        (["start", "+model_init", "+chain", "-chain"], {"model_init": 1}),
        (["start", "+chain", "-chain", "+chain"], {"chain": 1}),
        (["start", "+chain", "start"], {"": 1}),
        (["start", "+stray"], {"": 1}),
        (["start", "end"], {}),
        (["start", "end", "start"], {"": 1}),
        (["start l1", "start l2", "end l1"], {"": 1}),
        (["start l1", "+chain l1", "start l2", "+chain l2"], {"chain": 2}),
        (["+chain"], {}),
        (["end"], {}),
    ],
)
def test_loads_in_progress_and_then_abandoned(events, running):
    lines = load_log(*events)
    backwards = lines[::-1]
    for pieces in ([lines], [backwards], [[line] for line in backwards]):
        whole = Fold(CATALOG)
        for piece in pieces:
            whole.feed_lines(piece)
        assert progress(whole) == (running, {})
        whole.writer_gone("aaaaaaaaaaaa")
        assert progress(whole) == ({}, running)
        whole.writer_gone("aaaaaaaaaaaa")
        assert progress(whole) == ({}, running), "a writer dies once"


PROC = "aaaaaaaaaaaa"


def test_a_load_that_ends_after_all_is_taken_back():
    start, phase, end = load_log("start", "+chain", "end")
    whole = fold([start, phase])
    assert progress(whole) == ({}, {"chain": 1})
    whole.feed_lines([end])
    assert progress(whole) == ({}, {})
    assert not whole.state.loads.open
    assert not whole.state.loads.left
    assert dict(whole.state.loads.abandoned) == {}, "no count of what is none"


def test_what_becomes_known_of_a_process_that_is_gone_is_abandoned_where_it_was():
    lines = load_log("start", "+chain", "-chain", "+model_init")
    for at in range(5):
        whole = fold(lines[:at])
        whole.feed_lines(lines[at:])
        whole.writer_gone(PROC)
        assert progress(whole) == ({}, {"model_init": 1})


def test_a_process_that_lives_after_all_goes_on_with_its_loads():
    lines = load_log("start", "+chain")
    whole = fold(lines)
    for _ in range(2):
        whole.writer_alive(PROC)
        assert (progress(whole), whole.state.gone) == (({"chain": 1}, {}), 0)
        assert oldest(whole)["chain"] == "00:00:00"
    whole.feed_lines(load_log("start", "+chain", "-chain")[2:])
    assert progress(whole) == ({"": 1}, {})
    whole.writer_alive("bbbbbbbbbbbb")
    assert whole.state.gone == 0


def test_a_start_that_was_lost_and_turns_up_after_the_end_is_no_load_of_who_is_gone():
    first, start, end = load_log("start other", "start", "end")
    whole = fold([first, end])
    whole.feed_lines([start])
    assert progress(whole) == ({}, {"": 1})


@st.composite
def lives_of_a_process(draw):
    """Lines of a process with loads, in any order, some of them lost or rejected; and what becomes
    known of it in between: that it is gone, or that it lives."""
    names = st.sampled_from(["start", "+chain", "-chain", "+publish", "end"])
    events = st.lists(st.tuples(names, st.sampled_from(["l1", "l2"])).map(" ".join), max_size=8)
    lines = load_log(*draw(events))
    lost = draw(st.sets(st.integers(0, 7), max_size=2))
    bad = draw(st.sets(st.integers(0, 7), max_size=2))
    met = [line for at, line in enumerate(lines) if at not in lost]
    met += [flawed(line, "wrong_type") for at, line in enumerate(lines) if at in bad]
    known = draw(st.lists(st.sampled_from(["gone", "alive", "snapshot"]), max_size=6))
    return met, draw(st.permutations([*met, *known]))


@given(lives_of_a_process(), st.booleans())
def test_any_order_of_events_and_of_who_is_gone_gives_what_a_replay_gives(life, gone):
    lines, steps = life
    live = Fold(CATALOG)
    is_gone = False
    for step in [*steps, "gone" if gone else "alive"]:
        if isinstance(step, bytes):
            live.feed_lines([step])
        elif step == "snapshot":
            data = snapshot_codec.dump(CATALOG, live.state, {})
            live = Fold(CATALOG, snapshot_codec.load(CATALOG, data).state)
        else:
            is_gone = step == "gone" and PROC in live.state.books
            (live.writer_gone if step == "gone" else live.writer_alive)(PROC)
        running, abandoned = progress(live)
        assert not (running if is_gone else abandoned)
    replay = fold(lines, gone=gone)
    assert progress(live) == progress(replay)
    assert pages(live.state) == pages(replay.state)


@given(lives_of_a_process(), st.lists(st.integers(0, 2), min_size=20, max_size=20), st.booleans())
def test_loads_whose_events_are_in_several_states(life, where, gone):
    lines, _ = life
    parts = [
        fold([line for line, at in zip(lines, where, strict=False) if at == part], gone).state
        for part in range(3)
    ]
    first, second, third = (load(CATALOG, dump(CATALOG, part, {})).state for part in parts)
    second.merge(third)
    first.merge(second)
    whole = fold(lines, gone)
    assert progress(Fold(CATALOG, first)) == progress(whole)
    assert pages(first) == pages(whole.state)
    assert not first.loads.open or whole.state.loads.open


@pytest.mark.parametrize("gone", [False, True])
def test_a_load_whose_events_are_in_two_states_is_one(gone):
    lines = load_log("start", "+chain", "-chain", "+publish")
    for where in itertools.product([0, 1], repeat=4):
        parts = ([line for line, at in zip(lines, where, strict=True) if at == n] for n in (0, 1))
        first, second = (fold(part, gone) for part in parts)
        first.state.merge(second.state)
        assert progress(first) == (({}, {"publish": 1}) if gone else ({"publish": 1}, {}))
        assert first.state.loads.oldest() == fold(lines, gone).state.loads.oldest()


def test_a_load_that_ended_in_another_state_is_forgotten():
    start, phase, end = load_log("start", "+chain", "end")
    for ours, theirs in (([start, end], [phase]), ([start, phase], [end]), ([start], [phase, end])):
        for some, others in ((ours, theirs), (theirs, ours)):
            first, second = fold(some, gone=False), fold(others, gone=False)
            first.state.merge(second.state)
            assert progress(first) == ({}, {})
            assert not first.state.loads.open


def test_what_a_process_left_is_split_off_with_it():
    whole = fold([*load_log("start"), *load_log("start", "+chain", proc="bbbbbbbbbbbb")])
    part = Fold(CATALOG, whole.state.split_off(CATALOG, ["bbbbbbbbbbbb"]))
    assert (progress(whole), progress(part)) == (({}, {"": 1}), ({}, {"chain": 1}))
    assert list(part.state.loads.left) == ["bbbbbbbbbbbb"]
    part.writer_alive("bbbbbbbbbbbb")
    assert progress(part) == ({"chain": 1}, {})


def test_a_process_that_left_no_load_has_none_when_it_lives_after_all():
    whole = fold([Lines().header()])
    whole.writer_alive(PROC)
    assert not whole.state.loads.open


def test_a_load_may_be_said_to_have_ended_twice():
    whole = fold(load_log("start", "end", "end"), gone=False)
    assert progress(whole) == ({}, {})
    assert not whole.state.loads.open


def test_a_crash_loop_takes_little_room():
    """Ten thousand processes that were killed in a load that had an id of its own."""
    whole = Fold(CATALOG)
    for n in range(10_000):
        proc = f"{n:012x}"
        # No two of them log just as much before.
        before = [Lines(proc, seq=at)("nixl_received", result="ok") for at in range(n % 7)]
        log = Lines(proc, seq=n % 7)
        load = {**LOAD, **PHASE, "load_id": f"{n * 7919:012x}"}
        whole.feed_lines([*before, log("load_started", **load), log("load_phase_started", **load)])
        whole.writer_gone(proc)
    loads = whole.state.loads
    assert not loads.open
    assert loads.abandoned == {("vllm", "m", "chain", ""): 10_000}
    assert len({id(each.outline) for left in loads.left.values() for each in left}) == 1
    first = {**LOAD, "load_id": "0" * 12}
    whole.feed_lines([Lines("0" * 12, seq=2)("load_finished", **first)])
    assert loads.abandoned == {("vllm", "m", "chain", ""): 9_999}
    assert len(msgspec.json.encode(snapshot_codec._pack_loads(loads))) < 310_000


def test_both_load_families_have_series_from_the_start_on():
    state = fold(load_log("start", "+chain", "-chain", "end"), gone=False).state
    for phase in ("", "chain"):
        labels = {"engine": "vllm", "model": "m", "phase": phase}
        assert value(state, "mx_loads_in_progress", **labels) == 0
        assert value(state, "mx_loads_abandoned_total", **labels) == 0


def test_a_load_that_ended_before_its_start_was_read_is_not_in_progress():
    start, end = load_log("start", "end")
    assert progress(fold([end, start], gone=False)) == ({}, {})
    # In order nothing is remembered of a load that ended, however many there were.
    assert not fold([start, end], gone=False).state.loads.open


def test_a_phase_after_an_end_is_of_a_start_that_is_read_later():
    """Ids are used again: the load that ended is not the one whose phase was met before."""
    end, start, phase = load_log("end", "start", "+chain")
    assert progress(fold([end, start, phase], gone=False)) == ({"chain": 1}, {})
    whole = Fold(CATALOG)
    for line in (phase, end, start):
        whole.feed_lines([line])
    assert progress(whole) == ({"chain": 1}, {})


def test_label_sets_of_loads_are_as_old_as_the_earliest_event_that_named_them():
    loads, labels = Loads(), ("vllm", "m", "", "")
    for timestamp in ("2", "1", "3"):
        loads.note(labels, timestamp)
    assert loads.series == {labels: "1"}


def test_a_phase_that_names_another_model_is_a_phase_of_its_load():
    lines = load_log("start")
    lines.append(Lines(seq=1)("load_phase_started", **{**PHASE, "model": "other"}, load_id="l1"))
    assert progress(fold(lines, gone=False)) == ({"chain": 1}, {})


def test_loads_of_disjoint_processes_merge():
    first = fold(load_log("start", "+chain"), gone=False)
    for proc, gone in (("bbbbbbbbbbbb", False), ("cccccccccccc", True), ("dddddddddddd", True)):
        first.state.merge(fold(load_log("start", "+chain", proc=proc), gone=gone).state)
    assert progress(first) == ({"chain": 2}, {"chain": 2})


def test_a_catalogue_without_families_of_loads_tracks_none():
    families = [f for f in CATALOG.families if f.measure not in (IN_PROGRESS, ABANDONED)]
    whole = Fold(Catalog(CATALOG.events.values(), families))
    whole.feed_lines(load_log("start", "+chain"))
    assert whole.state.events == {"load_started": 1, "load_phase_started": 1}
    assert progress(whole) == ({}, {})


def test_a_load_finished_without_an_id_ends_nothing():
    lines = load_log("start")
    lines.append(Lines(seq=1)("load_finished", **LOAD))
    assert progress(fold(lines, gone=False)) == ({"": 1}, {})


@pytest.mark.parametrize("what", ["load_finished", "load_phase_finished"])
def test_what_no_timer_logged_ends_no_load_that_runs(what):
    lines = load_log("start", "+chain")
    lines.append(Lines(seq=2)(what, **LOAD, phase="chain", load_id="l1", timed=False))
    whole = fold(lines, gone=False)
    assert progress(whole) == ({"chain": 1}, {})
    assert whole.state.events[what] == 1


def test_a_load_whose_end_was_refused_has_ended():
    (start,) = load_log("start")
    end = Lines(seq=1)("load_finished", **{**LOAD, "seconds": None}, load_id="l1")
    whole = fold([start, end], gone=False)
    assert progress(whole) == ({}, {})
    assert whole.state.refused == {"missing": 1}


def oldest(whole: Fold) -> dict[str, str]:
    """When the oldest load of each phase began: its time of day."""
    return {labels[2]: since[11:19] for labels, since in whole.state.loads.oldest().items()}


def test_the_oldest_load_is_told_by_where_it_is():
    lines = load_log("start l1", "start l2", "+chain l2", "+chain l1")
    for events in (lines, lines[::-1]):
        assert oldest(fold(events, gone=False)) == {"": "", "chain": "00:00:00"}
    assert oldest(fold(lines[:3], gone=False)) == {"": "00:00:00", "chain": "00:00:01"}
    ended = load_log("start l1", "start l2", "+chain l2", "+chain l1", "end l1")
    assert oldest(fold(ended, gone=False)) == {"": "", "chain": "00:00:01"}
    assert oldest(fold(lines, gone=True)) == {"": "", "chain": ""}


def test_a_load_that_ended_is_not_the_oldest():
    """It is kept while an event before its end is missing."""
    first, _, end, second = load_log("start l1", "+chain l1", "end l1", "start l2")
    whole = fold([first, end], gone=False)
    assert whole.state.loads.open
    assert oldest(whole) == {"": ""}
    whole.feed_lines([second])
    assert oldest(whole) == {"": "00:00:03"}


@pytest.mark.parametrize("order", [("", "1", "2"), ("2", "1", ""), ("1", "", "2")])
def test_a_load_whose_beginning_is_not_known_hides_no_other(order):
    """A snapshot of an earlier format does not say it."""
    loads, labels = Loads(), ("vllm", "m", "", "")
    for seq, since in enumerate(order):
        loads.of(PROC, f"l{seq}").start(seq, labels, since)
    assert loads.oldest() == {labels: "1"}


def test_labels_that_are_known_need_no_room(monkeypatch):
    monkeypatch.setattr(series_cap, "SPARE", 1)
    loads = Loads()
    table = LoadTable(CATALOG, loads, 1)
    for model in ("a", "b", "c", "a"):
        table.note(("vllm", model, "", ""), model)
    assert [model for _, model, _, _ in loads.series] == ["a", "b", "c"]
    table.note(("vllm", "d", "", ""), "d")
    assert [model for _, model, _, _ in loads.series] == ["a", "b", "d"]


def test_a_load_that_starts_again_is_as_old_as_its_last_start():
    lines = load_log("start", "+chain", "start")
    for events in (lines, lines[::-1]):
        assert oldest(fold(events, gone=False))[""] == "00:00:02"


def test_a_snapshot_keeps_when_a_load_began():
    state = fold(load_log("start"), gone=False).state
    again = load(CATALOG, dump(CATALOG, state, {})).state
    assert again.loads.oldest() == state.loads.oldest() != {}
