"""Which series a page shows under a cap does not depend on how the log was read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core import series_cap
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.snapshot_codec import dump, load
from mx_exporter.core.state import State
from mx_exporter.exposition.fold_metrics import fold_collectors
from mx_exporter.exposition.samples import derived_collectors
from mx_exporter.exposition.text import render
from tests.support import Lines
from tests.support.folding import settle
from tests.support.strategies import PROCS, logs

SELECTION = "mx_p2p_source_selection_seconds"


def page(state: State, cap: int | None, *, with_ids: bool = False) -> bytes:
    """All that the fold tells, as the exporter shows it."""
    options = {"source_id_label": with_ids, "max_series": cap}
    collectors = [
        *derived_collectors(CATALOG, state, **options),
        *fold_collectors(CATALOG, state, **options),
    ]
    families = [family for collector in collectors for family in collector.collect()]
    return render(families, openmetrics=True)


def folded(lines: Iterable[bytes], cap: int | None = None) -> Fold:
    """All lines by one fold, whose writers are gone then."""
    whole = Fold(CATALOG, max_series=cap)
    whole.feed_lines(lines)
    settle(whole)
    return whole


@given(lines=logs(), cap=st.integers(1, 6), with_ids=st.booleans(), data=st.data())
def test_any_order_any_split_any_restart_shows_the_same(
    lines: list[bytes], cap: int, with_ids: bool, data: st.DataObject
) -> None:
    """A replay without a cap on its fold is the standard. Each process is read in order or not, by
    a fold of its own or not, with restarts from a snapshot in between."""
    expected = page(folded(lines).state, cap, with_ids=with_ids)
    pieces = [[line] for line in lines]
    together = data.draw(st.permutations(pieces))
    live = Fold(CATALOG, max_series=cap)
    for piece in together:
        live.feed_lines(piece)
        if data.draw(st.integers(0, 4)) == 0:
            live = live.fresh(load(CATALOG, dump(CATALOG, live.state, {})).state)
    settle(live)
    assert page(live.state, cap, with_ids=with_ids) == expected
    merged = State(CATALOG)
    for proc in data.draw(st.permutations(PROCS)):
        merged.merge(folded((line for line in lines if proc.encode() in line), cap).state)
    assert page(merged, cap, with_ids=with_ids) == expected


def test_no_counter_vanishes_when_an_older_process_is_read_first() -> None:
    """What a restart does: the files are read in the order of their names."""
    first = Lines("bbbbbbbbbbbb")
    second = Lines("aaaaaaaaaaaa", start=Lines.START + 60)
    live = Fold(CATALOG, max_series=6)
    ours = [first("sources_ordered", policy=f"x-first-{n}", seconds=1) for n in range(5)]
    theirs = [second("sources_ordered", policy=f"a-second-{n}", seconds=1) for n in range(5)]
    live.feed_lines(ours)
    live.feed_lines(theirs)
    again = Fold(CATALOG, max_series=6)
    again.feed_lines(theirs)
    again.feed_lines(ours)
    shown = page(live.state, 6)
    assert page(again.state, 6) == shown
    for n in range(5):
        assert f'{SELECTION}_count{{policy="x-first-{n}",scheme=""}} 1.0\n'.encode() in shown
        assert (f'{SELECTION}_count{{policy="a-second-{n}",scheme=""}} '.encode() in shown) == (
            n == 0
        )
    assert f'mx_exporter_series_refused_total{{family="{SELECTION}"}} 4.0\n'.encode() in shown
    assert f'mx_exporter_series_capped{{family="{SELECTION}"}} 1.0\n'.encode() in shown
    assert b'mx_exporter_series_capped{family="mx_loads_in_progress"} 0.0\n' in shown
    assert b'mx_exporter_events_folded_total{event="sources_ordered"} 10.0\n' in shown


def test_series_of_one_moment_are_told_by_their_labels() -> None:
    log = Lines(step=0)
    lines = [log("sources_ordered", policy=name, seconds=1) for name in "dbca"]
    shown = page(folded(lines).state, 2)
    for name in "abcd":
        count = f'{SELECTION}_count{{policy="{name}",scheme=""}}'.encode()
        assert (count in shown) == (name in "ab")


def test_what_is_hidden_of_peers_shows_with_the_label() -> None:
    log = Lines()
    lines = [log("source_selected", policy="p", source_worker_id=f"w{n}") for n in range(9)]
    state = folded(lines, 4).state
    refused = b'mx_exporter_series_refused_total{family="mx_p2p_source_selections_total"} '
    assert refused + b"0.0\n" in page(state, 4)
    assert refused + b"5.0\n" in page(state, 4, with_ids=True)


@pytest.mark.parametrize("count", [0, 3, 4, 7, 9, 10, 11, 30])
def test_the_count_of_hidden_series_never_falls(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not when some are dropped; it says as much as without a bound."""
    monkeypatch.setattr(series_cap, "SPARE", 3)
    log = Lines()
    lines = [log("sources_ordered", policy=f"p{n}", seconds=1) for n in range(count)]
    for cap in (4, None):
        held = folded(lines, cap).state.series[SELECTION]
        assert series_cap.hidden(len(held), 4) == min(max(0, count - 4), 3)


@pytest.mark.parametrize(
    ("count", "cap", "said"), [(9, 9, 0), (9, 8, 1), (9, None, 0), (10**6, 1, 5000)]
)
def test_how_many_are_hidden_is_said_up_to_5000(count: int, cap: int | None, said: int) -> None:
    assert series_cap.hidden(count, cap) == said


@pytest.mark.parametrize(
    ("count", "cap", "left"), [(0, 2, 0), (7, 2, 7), (8, 2, 5), (8, 3, 8), (9, 3, 6), (9, None, 9)]
)
def test_a_table_is_full_at_twice_the_spare_and_then_loses_the_youngest(
    count: int, cap: int | None, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_cap, "SPARE", 3)
    table = {(str(n),): str(n) for n in range(count)}
    assert series_cap.is_full(table, cap) == (left < count)
    dropped = series_cap.make_room(table, cap, str)
    assert dropped == [(str(n),) for n in range(left, count)]
    assert list(table) == [(str(n),) for n in range(left)]
