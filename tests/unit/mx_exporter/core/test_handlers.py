"""What the fold remembers of events that are alike: it is bounded, and a failure loses nothing."""

from __future__ import annotations

import dataclasses

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import (
    ABANDONED,
    COUNT,
    HISTOGRAM,
    IN_PROGRESS,
    LATEST,
    PRESENCE,
    RECORDER_CALLED,
    SUM,
    VALUE,
    WITH_POLICY,
    Catalog,
)
from mx_exporter.core.fold import Fold
from mx_exporter.core.reducers import CountDetail, NoteLocks, TrackLoad
from mx_log.schema import EVENTS
from tests.support import Lines
from tests.support.folding import fold, value


def handlers_of(whole, name):
    return whole._handlers.by_type[CATALOG.decoder.types[name]][1]


def test_free_text_in_a_clamped_label_does_not_pile_up(monkeypatch):
    """Each odd kind is the same series; what is kept of what events say stays bounded."""
    monkeypatch.setattr("mx_exporter.core.handlers._MAX_HANDLERS", 10)
    log = Lines()
    whole = fold([log("nixl_failed", kind=f"odd {n}") for n in range(100)])
    assert value(whole.state, "mx_nixl_data_plane_errors_total", kind="status_error") == 100
    assert len(handlers_of(whole, "nixl_failed")) <= 10


def test_free_text_in_every_event_does_not_pile_up(monkeypatch):
    """Handlers are bounded all together, in number and in characters."""
    log = Lines()
    names = ("nixl_failed", "log_recorded", "sources_ordered", "candidate_loads_seen")
    fields = {"kind": "timeout", "policy": "p", "seconds": 1, "loads": []}
    lines = [log(name, **fields, scheme=f"s{n}" + "x" * 100) for n in range(50) for name in names]

    def kept():
        whole = fold(lines)
        assert sum(whole.state.events.values()) == len(lines)
        return sum(len(kept) for _, kept in whole._handlers.by_type.values())

    monkeypatch.setattr("mx_exporter.core.handlers._MAX_HANDLERS", 10)
    assert 0 < kept() <= 10
    monkeypatch.setattr("mx_exporter.core.handlers._MAX_HANDLERS", 1000)
    monkeypatch.setattr("mx_exporter.core.handlers._MAX_CHARACTERS", 2000)
    assert 0 < kept() < 20


def test_what_is_remembered_of_zero_series_is_bounded(monkeypatch):
    monkeypatch.setattr("mx_exporter.core.handlers._MAX_HANDLERS", 10)
    log = Lines()
    whole = Fold(CATALOG)
    made = whole._handlers._zeros[WITH_POLICY]._made
    for n in range(30):
        whole.feed_lines([log("sources_ordered", policy=f"p{n}", seconds=1)])
        assert 0 < len(made) <= 10
    whole.feed_lines([log("sources_ordered", policy="p" * 3000, seconds=1)])
    assert not any("p" * 3000 in key for key in made)
    assert value(whole.state, "mx_p2p_list_sources_total", policy="p" * 3000, result="ok") == 0


def test_after_a_failure_the_events_that_waited_are_folded():
    """What one event could not be folded for keeps none of the others out for ever."""
    log = Lines()
    whole = Fold(CATALOG)
    first = [log("nixl_failed", kind="timeout"), log("nixl_received", result="complete")]
    whole.feed_lines(first)

    class Failing:
        def apply(self, _):
            raise MemoryError

    handler = handlers_of(whole, "nixl_failed")["", "timeout"]
    reducers, handler.reducers = handler.reducers, (Failing(),)
    with pytest.raises(MemoryError):
        whole.feed_lines(
            [log("nixl_failed", kind="timeout"), log("nixl_received", result="complete")]
        )
    handler.reducers = reducers
    whole.feed_lines([log("nixl_failed", kind="timeout"), log("nixl_received", result="complete")])
    assert value(whole.state, "mx_nixl_receive_total", result="complete") == 3
    assert value(whole.state, "mx_nixl_data_plane_errors_total", kind="timeout") == 2


def test_events_that_waited_are_folded_in_order_of_time_with_those_that_come():
    """The exemplar shows it: it is the later event's, though that was fed first."""
    log, older = Lines(), Lines("bbbbbbbbbbbb", start=100)
    ordered = {"policy": "p", "seconds": 1}
    whole = fold([log("nixl_failed", kind="timeout")], gone=False)
    handler = handlers_of(whole, "nixl_failed")["", "timeout"]

    class Failing:
        def apply(self, _):
            raise MemoryError

    reducers, handler.reducers = handler.reducers, (Failing(),)
    with pytest.raises(MemoryError):
        whole.feed_lines(
            [
                log("nixl_failed", kind="timeout"),
                log("sources_ordered", **ordered, load_id="late"),
            ]
        )
    handler.reducers = reducers
    whole.feed_lines([older("sources_ordered", **ordered, load_id="early")])
    (series,) = whole.state.series["mx_p2p_source_selection_seconds"].values()
    assert [last[-1] for last in series.exemplars if last is not None] == ["late"]


def test_a_text_too_long_to_be_kept_is_folded_all_the_same():
    log = Lines()
    whole = fold([log("nixl_failed", kind="odd" * 10_000) for _ in range(3)])
    assert value(whole.state, "mx_nixl_data_plane_errors_total", kind="status_error") == 3
    assert not handlers_of(whole, "nixl_failed")


def test_at_most_one_reducer_of_a_handler_refuses_events():
    """Else an event could be counted as refused twice."""
    log = Lines()
    fields = {"policy": "p", "kind": "k", "result": "r", "reason": "limit", "engine": "vllm"}
    fields |= {"stage": "listed", "phase": "chain", "outcome": "ok", "artifact": "a", "loads": []}
    fields |= {"archive": "a", "step": "extract", "model_role": "main", "component": "client"}
    fields |= {"version": "1", "recorder": "r", "load_id": "l"}
    for name in EVENTS:
        whole = fold([log(name, **fields)], gone=False)
        (handler,) = handlers_of(whole, name).values()
        kinds = [type(reducer) for reducer in handler.reducers]
        refusing = [kind for kind in kinds if kind not in (CountDetail, NoteLocks, TrackLoad)]
        assert len(refusing) <= 1, name
        # A load that is tracked is refused for the cap, where nothing else judges its event.
        assert not (name.endswith("_started") and "load" in name) or not refusing


@pytest.mark.parametrize(
    ("measure", "kinds"),
    [
        (COUNT, ["Count", "CountDetail"]),
        (SUM, ["Sum"]),
        (HISTOGRAM, ["Observe"]),
        (PRESENCE, ["Present"]),
        (VALUE, ["SetLatest"]),
        (LATEST, ["Latest"]),
        (IN_PROGRESS, []),
        (ABANDONED, []),
    ],
)
def test_each_measure_has_a_reducer_of_its_own(measure, kinds):
    """Loads are tracked by their events, whichever families there are of them."""
    selections = CATALOG.by_name["mx_p2p_source_selections_total"]
    family = dataclasses.replace(selections, measure=measure, field="policy")
    whole = Fold(Catalog(CATALOG.events.values(), [family]))
    line = Lines()("source_selected", policy="p", source_worker_id="w")
    handler = whole._handlers.find(whole.catalog.decoder.decode_line(line))
    found = [type(reducer).__name__ for reducer in handler.reducers]
    assert [name for name in found if name != "TrackLoad"] == kinds


def test_a_family_of_a_recorder_answers_its_calls_and_no_others():
    receive = CATALOG.by_name["mx_nixl_receive_total"]
    calls = dataclasses.replace(receive, labels=(), zeros="", events=(RECORDER_CALLED,))
    mine = dataclasses.replace(calls, name="mine_total", recorder="mark")
    every = dataclasses.replace(calls, name="all_total")
    for families, expected, unanswered in (
        ([mine], {"mine_total": 1}, {"other": 2}),
        ([mine, every], {"mine_total": 1, "all_total": 3}, {}),
    ):
        whole, log = Fold(Catalog(CATALOG.events.values(), families)), Lines()
        names = ("mark", "other", "other")
        whole.feed_lines([log(RECORDER_CALLED, recorder=name, args=[]) for name in names])
        whole.feed_lines([log("nixl_received", result="complete")])
        counts = {name: table[()].value for name, table in whole.state.series.items()}
        assert counts == expected
        assert whole.state.calls.shown() == unanswered
