"""A snapshot stands for the state that it was made of, bit for bit."""

from __future__ import annotations

import dataclasses

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core import snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import Catalog
from mx_exporter.core.fold import Fold
from tests.support import Lines
from tests.support.folding import fold, pages, settle, some_state
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


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda _: b"", "damaged: .*line 1 column 1"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda _: b"[]", "damaged: it holds values of other types"),
        (lambda _: b"{}", 'damaged: "format" is missing'),
        (lambda data: data.replace(b'"format":1', b'"format":2'), "format 2"),
        (lambda data: data.replace(b'"books":{', b'"books":{"x":3,'), "damaged"),
        (lambda data: data.replace(b'"0x', b'"0y'), "damaged: it holds values of other types"),
    ],
)
def test_a_bad_snapshot_is_refused_with_a_reason(damage, why):
    with pytest.raises(snapshot_codec.BadSnapshot, match=why):
        snapshot_codec.load(CATALOG, damage(snapshot_codec.dump(CATALOG, some_state(), {})))


def test_numbers_at_the_edge_can_be_kept():
    log = Lines(seq=2**63 - 1)
    lines = [log("sources_ordered", policy="p", seconds=2**64 - 1)]
    state = fold(lines).state
    assert state.logged == 2**63
    assert orjson.loads(snapshot_codec.dump(CATALOG, state, {}))["books"]
    assert pages(
        snapshot_codec.load(CATALOG, snapshot_codec.dump(CATALOG, state, {})).state
    ) == pages(state)


def test_a_process_that_is_gone_takes_little_room() -> None:
    def size(processes: int) -> int:
        fold = Fold(CATALOG)
        covered = {}
        for n in range(processes):
            log = Lines(f"{n:012x}")
            fold.feed_lines([log.header(), log("source_attempted", policy="p", result="success")])
            fold.writer_gone(log.proc)
            covered[log.proc] = 0
        return len(snapshot_codec.dump(CATALOG, fold.state, covered))

    assert size(110) - size(10) < 100 * 64
