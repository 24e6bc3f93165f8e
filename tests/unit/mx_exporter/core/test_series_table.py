"""The cap on series: what it refuses, and that the refusals are counted."""

from __future__ import annotations

import dataclasses

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import WITH_HEADER, Catalog
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from tests.support import Lines
from tests.support.folding import fold, value


def test_past_the_cap_new_label_sets_are_refused_and_counted():
    log = Lines()
    lines = [log("sources_ordered", policy=f"p{n}", seconds=1) for n in range(5)]
    lines += [log("sources_ordered", policy="p0", seconds=1)]
    whole = fold(lines, max_series=3)
    assert len(whole.state.series["mx_p2p_source_selection_seconds"]) == 3
    assert whole.state.refused == {"series_cap": 2}
    assert whole.capped()["mx_p2p_source_selection_seconds"] == 2
    assert all(len(table) <= 3 for table in whole.state.series.values())
    labels = {"policy": "p0"}
    assert value(whole.state, "mx_p2p_source_selection_seconds_count", **labels) == 2


def test_the_cap_on_peers_refuses_no_selection():
    log = Lines()
    lines = [log("source_selected", policy="p", source_worker_id=f"w{n}") for n in range(9)]
    whole = fold(lines, max_series=4)
    assert value(whole.state, "mx_p2p_source_selections_total", policy="p") == 9
    assert whole.state.refused == {}
    assert whole.capped() == {}
    assert whole.capped(opt_in=True) == {"mx_p2p_source_selections_total": 5}
    assert len(whole.state.detail["mx_p2p_source_selections_total"]) == 4


def test_what_the_cap_refuses_with_and_without_the_opt_in_label_adds_up():
    log = Lines()
    lines = [log("source_selected", policy=f"p{n}", source_worker_id=f"w{n}") for n in range(5)]
    whole = fold(lines, max_series=2)
    assert whole.capped()["mx_p2p_source_selections_total"] == 3
    assert whole.capped(opt_in=True)["mx_p2p_source_selections_total"] == 6


def test_the_cap_on_loads():
    log = Lines()
    lines = [
        log("load_started", engine="vllm", model=f"m{n}", model_role="main", load_id=f"l{n}")
        for n in range(4)
    ]
    whole = fold(lines, gone=False, max_series=2)
    assert len(whole.state.loads.in_progress()) == 2
    assert whole.state.refused == {"series_cap": 2}
    assert whole.capped() == {"mx_loads_in_progress": 2, "mx_loads_abandoned_total": 2}


def test_past_the_cap_a_load_of_a_known_label_set_is_tracked():
    """Also one that is older than all that named it before."""
    load = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
    whole = fold([Lines()("load_started", **load)], gone=False, max_series=1)
    whole.feed_lines([Lines("bbbbbbbbbbbb", start=100)("load_started", **load)])
    assert list(whole.state.loads.in_progress().values()) == [2]
    assert whole.state.refused == {}


def test_a_free_label_that_the_event_does_not_give_has_no_zero_series():
    selections = CATALOG.by_name["mx_p2p_source_selections_total"]
    labels = tuple(label._replace(values=None) for label in selections.labels)
    free = dataclasses.replace(selections, labels=labels, zeros=WITH_HEADER)
    whole = Fold(Catalog(CATALOG.events.values(), [free]))
    whole.feed_lines([Lines().header()])
    assert whole.state.series == {free.name: {}}


def test_what_the_cap_refused_is_not_forgotten_with_the_state():
    """Another snapshot is taken up: the counts are of the exporter's life, not of the state."""
    log = Lines()
    lines = [log("source_selected", policy=f"p{n}", source_worker_id=f"w{n}") for n in range(5)]
    lines += [
        log("load_started", engine="vllm", model=f"m{n}", model_role="main", load_id=f"l{n}")
        for n in range(5)
    ]
    whole = fold(lines, gone=False, max_series=2)
    before = whole.capped(opt_in=True)
    assert before["mx_loads_in_progress"] == 3
    again = whole.fresh(State(CATALOG))
    assert again.capped(opt_in=True) == before
    assert again.capped() == whole.capped()
    again.feed_lines(lines)
    assert again.capped(opt_in=True) == {name: 2 * count for name, count in before.items()}
    # They are counts of its own: the fold it came from does not go on.
    assert whole.capped(opt_in=True) == before
