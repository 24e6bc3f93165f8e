"""A snapshot stands for the state that it was made of, bit for bit."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core import snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import Catalog
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from tests.support import Lines
from tests.support.folding import fold, pages, settle, some_state, whole_page
from tests.support.strategies import logs


@given(logs(), st.integers(0, 25), st.booleans())
def test_snapshot_and_the_rest_equal_the_whole(lines, cut, gone):
    first = fold(lines[:cut], gone=False)
    taken = snapshot_codec.load(
        CATALOG, snapshot_codec.dump(CATALOG, first.state, {"aaaaaaaaaaaa": 3})
    )
    assert taken.segments == {"aaaaaaaaaaaa": 3}
    assert taken.changed == []
    assert pages(taken.state) == pages(first.state)
    rest = Fold(CATALOG, taken.state)
    rest.feed_lines(lines[cut:])
    if gone:
        settle(rest)
    assert pages(rest.state) == pages(fold(lines, gone).state)


@given(logs())
def test_doubles_of_what_a_snapshot_holds_are_known(lines):
    state = fold(lines).state
    taken = Fold(
        CATALOG, snapshot_codec.load(CATALOG, snapshot_codec.dump(CATALOG, state, {})).state
    )
    taken.feed_lines(lines)
    assert taken.state.duplicates == state.duplicates + len(lines)
    taken.state.duplicates = state.duplicates
    assert pages(taken.state) == pages(state)


def test_a_family_whose_boundaries_changed_starts_from_what_remains():
    data = snapshot_codec.dump(CATALOG, some_state(), {})
    changed = [
        dataclasses.replace(f, buckets=(1.0, 2.0)) if f.name == "mx_p2p_transfer_seconds" else f
        for f in CATALOG.families
    ]
    taken = snapshot_codec.load(Catalog(CATALOG.events.values(), changed), data)
    assert taken.changed == ["mx_p2p_transfer_seconds"]
    assert taken.state.series["mx_p2p_transfer_seconds"] == {}
    assert taken.state.series["mx_p2p_source_selection_seconds"]


def test_a_family_that_the_snapshot_does_not_know_starts_empty_and_the_others_go_on():
    first, *others = CATALOG.families
    data = snapshot_codec.dump(Catalog(CATALOG.events.values(), others), some_state(), {})
    taken = snapshot_codec.load(CATALOG, data)
    assert taken.changed == [first.name]
    assert not taken.state.series[first.name]
    assert {name: len(table) for name, table in taken.state.series.items()} == {
        name: len(table) if name != first.name else 0 for name, table in some_state().series.items()
    }


def test_after_a_family_that_changed_the_others_go_on():
    first, *others = CATALOG.families
    changed = dataclasses.replace(first, labels=first.labels[:1])
    data = snapshot_codec.dump(
        Catalog(CATALOG.events.values(), [changed, *others]), some_state(), {}
    )
    taken = snapshot_codec.load(CATALOG, data)
    assert taken.changed == [first.name]
    assert taken.state.series["mx_p2p_source_selection_seconds"]


def test_what_a_snapshot_says_beside_the_series_is_taken_up():
    whole = Fold(CATALOG)
    for n in range(3):
        whole.feed_lines([Lines(f"{n:012x}", seq=n)("of_the_future")])
    whole.feed_lines([Lines("0" * 12)("of_the_future")] * 2)
    whole.feed_lines([b"not json", b"[]", b"nothing"])
    log, load = Lines("f" * 12), {"engine": "vllm", "model": "m", "load_id": "l"}
    whole.feed_lines([log("load_started", **load, model_role="main")])
    whole.feed_lines([log("load_phase_started", **load, phase="chain")])
    for n in range(2):
        whole.writer_gone(f"{n:012x}")
    state = whole.state
    data = snapshot_codec.dump(CATALOG, state, {}, {"events-000000000000-0.jsonl": 17})
    taken = snapshot_codec.load(CATALOG, data)
    assert taken.shipped == {"events-000000000000-0.jsonl": 17}
    found = taken.state
    assert (found.logged, found.lost, found.gone) == (8, 3, 2)
    assert found.duplicates == 2
    assert found.rejected == {"not_json": 2, "not_object": 1}
    assert found.skipped == 3
    assert whole_page(found) == whole_page(state)


def test_a_rejection_that_a_snapshot_holds_is_taken_back_by_a_good_line():
    good, bad = (Lines()("nixl_received", result=result) for result in ("complete", 5))
    state = fold([bad], gone=False).state
    found = snapshot_codec.load(CATALOG, snapshot_codec.dump(CATALOG, state, {})).state
    assert (found.rejected, found.rejected_numbers, found.lost) == ({"wrong_type": 1}, 1, 0)
    Fold(CATALOG, found).feed_lines([good])
    assert whole_page(found) == whole_page(fold([bad, good], gone=False).state)


def test_a_snapshot_stands_for_no_segment_unless_it_says_so():
    assert snapshot_codec.Snapshot(State(CATALOG)).segments == {}


def test_numbers_at_the_edge_can_be_kept():
    log = Lines(seq=2**63 - 1)
    lines = [log("sources_ordered", policy="p", seconds=2**64 - 1)]
    state = fold(lines).state
    assert state.logged == 2**63
    assert pages(
        snapshot_codec.load(CATALOG, snapshot_codec.dump(CATALOG, state, {})).state
    ) == pages(state)


def test_a_crash_loop_of_10000_processes_takes_little_room() -> None:
    fold = Fold(CATALOG)
    covered = {}
    for n in range(10_000):
        log = Lines(f"{n:012x}")
        fold.feed_lines([log.header(), log("source_attempted", policy="p", result="success")])
        fold.writer_gone(log.proc)
        covered[log.proc] = 0
    data = snapshot_codec.dump(CATALOG, fold.state, covered)
    assert len(data) < 400_000
    taken = snapshot_codec.load(CATALOG, data)
    assert taken.segments == covered
    assert whole_page(taken.state) == whole_page(fold.state)
