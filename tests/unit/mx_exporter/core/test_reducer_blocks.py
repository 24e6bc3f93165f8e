"""Reducers by themselves: what a block of events does to one series, and which it refuses."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from mx_exporter.core import reducers, series_cap
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import COUNT, HISTOGRAM, PRESENCE, SUM, VALUE, Family
from mx_exporter.core.decode import Event
from mx_exporter.core.exact_sum import to_float
from mx_exporter.core.fold import Fold
from mx_exporter.core.load_tracker import Loads, LoadTable
from mx_exporter.core.reducers import CountCalls, Latest, NoteLocks, Reducer, TrackLoad, refusal
from mx_exporter.core.series import stamp
from mx_exporter.core.series_table import SeriesTable
from mx_exporter.core.state import State
from tests.support import Lines

#: Its events are refused for a phase that it does not know.
PHASES = CATALOG.by_name["mx_p2p_source_attempt_phase_seconds"]
LOADS = CATALOG.by_name["mx_p2p_source_load"]


@pytest.mark.parametrize(
    ("given", "why"),
    [(0, None), (-0.5, None), (1.7e308, None), (10**308, None), (10**309, "not_finite")]
    + [(value, "not_finite") for value in (math.inf, math.nan, "NaN", "-Infinity", "inf")]
    + [(True, "boolean"), (None, "missing"), ("1", "not_a_number"), ([1], "not_a_number")],
)
def test_what_is_no_observation(given: object, why: str | None) -> None:
    assert refusal(given) == why


def phases(*seconds: object, phase: str = "receive", start: float = Lines.START) -> list[Event]:
    log = Lines(start=start)
    fields = {"policy": "p", "phase": phase, "outcome": "ok"}
    lines = [log("source_attempt_phase_finished", **fields, seconds=each) for each in seconds]
    return CATALOG.decoder.decode(lines)  # type: ignore[return-value]


def why_refused(reducer: Reducer, events: list[Event]) -> list[tuple[int, str]]:
    return [(event.seq, reason) for event, reason in reducer.apply(events)]


MEASURES = {
    "Present": PRESENCE,
    "Count": COUNT,
    "CountDetail": COUNT,
    "Sum": SUM,
    "Observe": HISTOGRAM,
    "SetLatest": VALUE,
}
every_kind = pytest.mark.parametrize("kind", MEASURES)


def made(kind: str) -> tuple[Any, dict[tuple[str, ...], Any]]:
    """A reducer of a kind, and the series that it feeds."""
    store: dict[tuple[str, ...], Any] = {}
    table = SeriesTable(dataclasses.replace(PHASES, measure=MEASURES[kind]), store, None)
    return getattr(reducers, kind)(table), store


@every_kind
def test_good_events_are_none_that_are_refused(kind: str) -> None:
    reducer, store = made(kind)
    assert why_refused(reducer, phases(1, 2)) == []
    assert list(store) == [("p", "receive", "ok", "")]


@every_kind
def test_events_whose_label_drops_them_are_refused_and_make_no_series(kind: str) -> None:
    reducer, store = made(kind)
    dropped = [] if kind == "CountDetail" else [(0, "unknown_phase"), (1, "unknown_phase")]
    assert why_refused(reducer, phases(1, 2, phase="stray")) == dropped
    assert store == {}


@pytest.mark.parametrize("kind", ["Sum", "Observe", "SetLatest"])
def test_of_a_block_each_event_is_refused_for_what_it_lacks(kind: str) -> None:
    reducer, store = made(kind)
    refused = [(0, "missing"), (2, "boolean")]
    assert why_refused(reducer, phases(None, 1, True)) == refused
    reducer, _ = made(kind)
    assert why_refused(reducer, phases(None, 1, True, phase="stray")) == [
        *refused,
        (1, "unknown_phase"),
    ]
    assert [series.created[17:19] for series in store.values()] == ["01"]


@pytest.mark.parametrize("kind", ["Sum", "Observe", "SetLatest"])
def test_a_block_of_nothing_that_is_good_makes_no_series(kind: str) -> None:
    reducer, store = made(kind)
    assert why_refused(reducer, phases(None, "1")) == [(0, "missing"), (1, "not_a_number")]
    assert store == {}


def test_each_event_of_each_block_is_counted() -> None:
    reducer, store = made("Count")
    for events in (phases(1), phases(1, 2)):
        reducer.apply(events)
    assert [series.value for series in store.values()] == [3]


def test_a_series_that_was_dropped_gets_none_of_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is of no page any more: what comes makes another one."""
    monkeypatch.setattr(series_cap, "SPARE", 1)
    store: dict[tuple[str, ...], Any] = {}
    table: SeriesTable[Any] = SeriesTable(dataclasses.replace(PHASES, measure=COUNT), store, 1)
    first, *others = [reducers.Count(table) for _ in range(4)]
    first.apply(phases(1, start=Lines.START + 9))
    for reducer, phase in zip(others, ("prepare", "register", "finalize"), strict=True):
        reducer.apply(phases(1, phase=phase))
    assert "receive" not in [labels[1] for labels in store]
    first.apply(phases(1, 2))
    assert [series.value for labels, series in store.items() if labels[1] == "receive"] == [2]


@every_kind
def test_a_series_is_as_old_as_the_oldest_event_of_any_block(kind: str) -> None:
    reducer, store = made(kind)
    for start in (Lines.START + 20, Lines.START + 10, Lines.START + 30):
        reducer.apply(phases(1, 2, start=start))
    assert [series.created[17:19] for series in store.values()] == ["10"]


def test_amounts_below_zero_are_refused_and_all_others_add_up() -> None:
    reducer, store = made("Sum")
    refused = [(3, "missing"), (0, "negative"), (4, "negative")]
    assert why_refused(reducer, phases(-1, 0, 0.25, None, -0.5, 2)) == refused
    (series,) = store.values()
    assert to_float(series.total.units()) == 2.25
    assert series.created[17:19] == "01", "a zero is an amount"


@pytest.mark.parametrize("large", [10**309, -(10**309)])
def test_an_integer_that_no_float_holds_is_refused_and_those_beside_it_are_not(large: int) -> None:
    reducer, store = made("Observe")
    assert why_refused(reducer, phases(1, large, 2)) == [(1, "not_finite")]
    (series,) = store.values()
    assert (sum(series.counts), to_float(series.total.units())) == (2, 3.0)


def test_numbers_whose_sum_no_float_holds_are_all_observed() -> None:
    reducer, store = made("Observe")
    assert why_refused(reducer, phases(1e308, 1e308)) == []
    (series,) = store.values()
    assert sum(series.counts) == 2


def test_of_a_block_the_last_value_counts_with_its_stamp() -> None:
    reducer, store = made("SetLatest")
    events = phases(0.1, 0.2, 0.3)
    assert why_refused(reducer, events) == []
    (series,) = store.values()
    assert (series.value, series.stamp) == (0.3, stamp(events[-1]))


# --------------------------------------------------------------------------------------
# Loads of candidates


def seen(*loads: tuple[str, object], start: float = Lines.START, seq: int = 0) -> Event:
    given = [{"source_worker_id": worker, "load": load} for worker, load in loads]
    line = Lines(start=start, seq=seq)("candidate_loads_seen", loads=given)
    return CATALOG.decoder.decode_line(line)  # type: ignore[return-value]


def of_loads(
    family: Family = LOADS, cap: int | None = None
) -> tuple[Latest, dict[tuple[str, ...], Any], dict[tuple[str, ...], Any]]:
    """A reducer of loads, the series of the chosen ones, and those of each candidate."""
    chosen: dict[tuple[str, ...], Any] = {}
    each: dict[tuple[str, ...], Any] = {}
    tables: list[SeriesTable[Any]] = [
        SeriesTable(family, chosen, cap),
        SeriesTable(family, each, cap, opt_in=True),
    ]
    return Latest(tables[0], tables[1], "loads"), chosen, each


def test_an_event_is_refused_once_for_the_first_of_its_bad_loads() -> None:
    reducer, _, each = of_loads()
    event = seen(("a", "busy"), ("b", True), ("c", None), ("d", 0.5))
    assert why_refused(reducer, [event]) == [(0, "not_a_number")]
    assert list(each) == [("", "d")]


def test_loads_whose_label_drops_them_are_refused_and_make_no_series() -> None:
    family = dataclasses.replace(LOADS, labels=(*LOADS.labels, PHASES.labels[1]))
    reducer, chosen, each = of_loads(family)
    event = seen(("a", 0.5), ("b", 0.25))
    assert why_refused(reducer, [event]) == [(0, "unknown_phase")]
    assert chosen == each == {}
    assert list(reducer.targets(event)) == []


def test_the_series_that_loads_feed_are_those_of_numbers() -> None:
    whole = Fold(CATALOG)
    name = LOADS.name
    event = seen(("a", 0.5), ("b", None), ("c", "busy"), ("d", 1))
    assert list(whole.targets(event)) == [(name, ("",)), (name, ("", "a")), (name, ("", "d"))]
    assert list(whole.targets(seen(("a", None), ("b", 1)))) == [(name, ("", "b"))]


def test_a_candidates_series_is_as_old_as_its_oldest_event() -> None:
    reducer, chosen, each = of_loads()
    for seq, (start, load) in enumerate([(20, 0.2), (10, 0.1), (30, 0.3)]):
        reducer.apply([seen(("a", load), start=Lines.START + start, seq=seq)])
    for series in (*chosen.values(), *each.values()):
        assert (series.created[17:19], series.value) == ("10", 0.3)


def test_a_candidate_whose_series_was_dropped_gets_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series_cap, "SPARE", 1)
    reducer, _, each = of_loads(cap=1)
    shown = {}
    for seq, worker in enumerate("abcdcec"):
        reducer.apply([seen((worker, seq), start=Lines.START + seq, seq=seq)])
        shown[seq] = {worker: series.value for (_, worker), series in each.items()}
    assert shown[3] == {"a": 0, "b": 1, "d": 3}
    assert shown[4] == {"a": 0, "b": 1, "c": 4}
    assert shown[6] == {"a": 0, "b": 1, "c": 6}


def test_what_is_remembered_of_candidates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducers, "_MAX_WORKERS", 3)
    reducer, _, each = of_loads()
    for seq in range(10):
        reducer.apply([seen((f"w{seq}", 0.5), seq=seq)])
        assert 0 < len(reducer._known) <= 3
    assert len(each) == 10


# --------------------------------------------------------------------------------------
# Reducers without a family


def load_event(name: str, seq: int = 0, **fields: object) -> Event:
    given = {"engine": "vllm", "model": "m", "model_role": "main", "phase": "chain"}
    given |= {"outcome": "success", "load_id": "l"}
    line = Lines(seq=seq)(name, **given | {"seconds": 1} | fields)
    return CATALOG.decoder.decode_line(line)  # type: ignore[return-value]


LOAD_EVENTS = ("load_started", "load_finished", "load_phase_started", "load_phase_finished")


def tracked(name: str) -> tuple[TrackLoad, Loads]:
    loads = Loads()
    table = LoadTable(CATALOG, loads, None)
    return TrackLoad(loads, table, name, name.endswith("finished"), []), loads


@pytest.mark.parametrize("name", LOAD_EVENTS)
def test_events_of_no_load_are_not_tracked(name: str) -> None:
    """Whether or not one of a load came before."""
    reducer, loads = tracked(name)
    for seq, load_id in enumerate([None, "l", None]):
        event = load_event(name, seq, load_id=load_id)
        assert list(reducer.apply([event])) == []
        assert len(loads.open) == (seq > 0)
        assert len(list(reducer.targets(event))) == (0 if load_id is None else 2)


@pytest.mark.parametrize(("timed", "ended"), [(None, 5), (True, 5), (False, -1)])
def test_an_end_counts_unless_no_timer_logged_it(timed: bool | None, ended: int) -> None:
    reducer, loads = tracked("load_finished")
    reducer.apply([load_event("load_finished", 5, timed=timed)])
    assert loads.of("a" * 12, "l").ended == ended


@pytest.mark.parametrize("name", LOAD_EVENTS)
def test_what_starts_names_labels_and_what_ends_does_not(name: str) -> None:
    reducer, loads = tracked(name)
    reducer.apply([load_event(name)])
    phase = "" if name == "load_started" else "chain"
    assert list(loads.series) == ([("vllm", "m", phase, "")] if "started" in name else [])


def test_a_phase_that_nobody_knows_feeds_no_series() -> None:
    reducer, _ = tracked("load_phase_started")
    assert list(reducer.targets(load_event("load_phase_started", phase="stray"))) == []


@pytest.mark.parametrize(
    ("line", "fed"),
    [
        (Lines().header(), [("mx_build_info", ("client", "0.7.0", ""))]),
        (Lines()("recorder_called", recorder="none", args=[], kwargs={}), []),
        (Lines()("of_the_future"), []),
    ],
)
def test_what_has_no_family_of_its_own_feeds_none(line: bytes, fed: list[object]) -> None:
    whole = Fold(CATALOG)
    event = CATALOG.decoder.decode_line(line)
    assert isinstance(event, Event)
    assert sorted(map(repr, whole.targets(event))) == sorted(map(repr, fed))


def test_counting_calls_and_noting_locks_refuses_no_event() -> None:
    state = State(CATALOG)
    call = Lines()("recorder_called", recorder="none", args=[], kwargs={})
    for reducer, line in (
        (CountCalls(state.calls, None), call),
        (NoteLocks(state), Lines().header(locked=False)),
    ):
        assert list(reducer.apply([CATALOG.decoder.decode_line(line)])) == []
    assert state.calls.shown() == {"none": 1}
    assert not state.books["a" * 12].locked
