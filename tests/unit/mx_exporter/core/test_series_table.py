"""Which series a table holds, and what becomes of those past its bound."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from mx_exporter.core import series_cap
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import WITH_HEADER, Catalog
from mx_exporter.core.fold import Fold
from mx_exporter.core.series_table import SeriesTable
from mx_exporter.exposition.samples import seconds
from tests.support import Lines
from tests.support.folding import fold

SELECTION = "mx_p2p_source_selection_seconds"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little more than the cap is held."""
    monkeypatch.setattr(series_cap, "SPARE", 2)


@pytest.mark.usefixtures("small")
def test_a_table_is_bounded_and_what_is_dropped_is_the_youngest():
    log = Lines()
    whole = Fold(CATALOG, max_series=3)
    table = whole.state.series[SELECTION]
    for n in range(30):
        whole.feed_lines([log("sources_ordered", policy=f"p{n:02}", seconds=1)])
        assert len(table) <= 3 + 2 * 2
        assert sorted(table)[:3] == [(f"p{at:02}", "") for at in range(min(3, n + 1))]
    assert all(len(table) <= 7 for table in whole.state.series.values())
    assert whole.state.refused == {}
    assert whole.state.events["sources_ordered"] == 30


@pytest.mark.usefixtures("small")
def test_a_series_that_was_dropped_and_turns_out_to_be_old_is_held():
    """Also by the reducer that fed it before."""
    late, early = Lines("bbbbbbbbbbbb", start=Lines.START + 1000), Lines()
    whole = Fold(CATALOG, max_series=1)
    names = [f"p{n}" for n in range(20)]
    whole.feed_lines([late("sources_ordered", policy=name, seconds=1) for name in names])
    assert ("p19", "") in whole.state.series[SELECTION]
    whole.feed_lines([late("sources_ordered", policy=name, seconds=1) for name in names])
    assert ("p9", "") not in whole.state.series[SELECTION]
    whole.feed_lines([early("sources_ordered", policy="p9", seconds=1)])
    oldest = series_cap.oldest(whole.state.series[SELECTION], 1, lambda one: one.created)
    assert oldest == [("p9", "")]


@pytest.mark.usefixtures("small")
def test_details_and_gauges_are_bounded_as_well():
    log = Lines()
    whole = Fold(CATALOG, max_series=2)
    for n in range(50):
        loads = [{"source_worker_id": f"w{n:02}", "load": n}]
        selected = log("source_selected", policy="p", source_worker_id=f"w{n:02}")
        whole.feed_lines([log("candidate_loads_seen", loads=loads), selected])
    for name, table in whole.state.detail.items():
        assert 2 <= len(table) <= 6, name
        assert {labels[-1] for labels in table} >= {"w00", "w01"}
    assert whole.state.refused == {}


@pytest.mark.usefixtures("small")
def test_loads_are_bounded_by_label_set_and_all_are_tracked():
    log = Lines()
    load = {"engine": "vllm", "model_role": "main"}
    lines = [log("load_started", model=f"m{n:02}", load_id=f"l{n}", **load) for n in range(20)]
    whole = fold(lines, gone=False, max_series=1)
    assert 3 <= len(whole.state.loads.series) <= 5
    assert min(whole.state.loads.series)[1] == "m00"
    assert sum(whole.state.loads.in_progress().values()) == 20
    assert whole.state.refused == {}


@pytest.mark.usefixtures("small")
def test_whatever_the_order_the_oldest_are_held():
    """Each label set has one event: so no series lacks any."""
    events = []
    for n, proc in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc")):
        log = Lines(proc, start=Lines.START + n * 0.3)
        events += [
            [
                log("sources_ordered", policy=f"{proc}{at}", seconds=at)
                for at in range(start, start + 8)
            ]
            for start in (0, 8)
        ]
    found = set()
    for order in itertools.permutations(events):
        whole = Fold(CATALOG, max_series=4)
        for lines in order:
            whole.feed_lines(lines)
        table = whole.state.series[SELECTION]
        found.add(tuple(series_cap.oldest(table, 4, lambda one: one.created)))
    assert len(found) == 1


def test_a_free_label_that_the_event_does_not_give_has_no_zero_series():
    selections = CATALOG.by_name["mx_p2p_source_selections_total"]
    labels = tuple(label._replace(values=None) for label in selections.labels)
    free = dataclasses.replace(selections, labels=labels, zeros=WITH_HEADER)
    whole = Fold(Catalog(CATALOG.events.values(), [free]))
    whole.feed_lines([Lines().header()])
    assert whole.state.series == {free.name: {}}


def test_a_series_is_as_old_as_the_oldest_event_that_asked_for_it():
    table = SeriesTable(CATALOG.by_name[SELECTION], {}, None)
    for start, created in ((200, 200), (100, 100), (300, 100)):
        line = Lines(start=start)("sources_ordered", policy="p", seconds=1)
        series = table.find(CATALOG.decoder.decode_line(line))
        assert seconds(series.created) == created
