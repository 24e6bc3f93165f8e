"""What is kept of a page is what writing it anew would give; what raises costs itself alone."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.series import Observed
from mx_exporter.core.state import State
from mx_exporter.exposition import renderer, text
from mx_exporter.exposition.renderer import Failures, Renderer
from mx_exporter.exposition.rows import Row, row_collectors
from mx_exporter.exposition.samples import (
    Collector,
    FamilySamples,
    Point,
    derived_collectors,
    derived_families,
)
from tests.support import Lines
from tests.support.strategies import HOSTILE, logs

FORMATS = (False, True)

#: A family whose one free label is the policy.
HISTOGRAM = "mx_p2p_source_selection_seconds"


def shown(state: State, kept: Renderer, *, openmetrics: bool) -> bytes:
    """The page of a state by a renderer."""
    collectors = derived_collectors(CATALOG, state, source_id_label=True)
    return text.page(kept.texts(collectors), openmetrics)


def anew(state: State, *, openmetrics: bool) -> bytes:
    """The same, written whole."""
    families = derived_families(CATALOG, state, source_id_label=True)
    return text.render(families, openmetrics=openmetrics)


@given(lines=logs(), others=logs(), at_once=st.sampled_from([1, 2, 500]), data=st.data())
def test_any_changes_give_the_page_that_writing_it_anew_gives(
    lines: list[bytes], others: list[bytes], at_once: int, data: st.DataObject
) -> None:
    """Line by line, also where the state is replaced by another one, as a snapshot does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "_AT_ONCE", at_once)
        failures = Failures()
        kept = {each: Renderer(failures, openmetrics=each) for each in FORMATS}
        fold = Fold(CATALOG)
        for given in (lines, others):
            for batch in _batches(given, data):
                fold.feed_lines(batch)
                for openmetrics in data.draw(st.sampled_from([FORMATS, (True,), (False,)])):
                    page = shown(fold.state, kept[openmetrics], openmetrics=openmetrics)
                    assert page == anew(fold.state, openmetrics=openmetrics)
            fold = Fold(CATALOG)
        assert not failures.counts


def _batches(lines: list[bytes], data: st.DataObject) -> Iterator[list[bytes]]:
    size = data.draw(st.sampled_from([1, 3, 30]))
    for at in range(0, len(lines), size):
        yield lines[at : at + size]


@pytest.mark.parametrize("openmetrics", FORMATS)
def test_a_zero_that_changes_its_sign_is_shown(openmetrics: bool) -> None:
    log, fold = Lines(), Fold(CATALOG)
    kept = Renderer(Failures(), openmetrics=openmetrics)
    for load in (0.0, -0.0):
        loads = [{"source_worker_id": "w", "load": load}]
        fold.feed_lines([log("candidate_loads_seen", loads=loads)])
        page = shown(fold.state, kept, openmetrics=openmetrics)
        assert page == anew(fold.state, openmetrics=openmetrics)
    assert b"} -0.0\n" in page


@pytest.mark.parametrize("openmetrics", FORMATS)
def test_hostile_labels(openmetrics: bool) -> None:
    log, fold = Lines(), Fold(CATALOG)
    kept = Renderer(Failures(), openmetrics=openmetrics)
    for label in HOSTILE:
        fold.feed_lines(
            [log("transfer_finished", policy=label, outcome=label, seconds=-1, load_id=label)]
        )
        page = shown(fold.state, kept, openmetrics=openmetrics)
        assert page == anew(fold.state, openmetrics=openmetrics)


def test_only_what_changed_is_written_and_what_is_gone_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []

    def counted(family: FamilySamples, *, openmetrics: bool) -> Any:
        if family.name == HISTOGRAM:
            written.append(len(family.series))
        return text.series_texts(family, openmetrics=openmetrics)

    monkeypatch.setattr(renderer, "series_texts", counted)
    log, fold = Lines(), Fold(CATALOG)
    kept = Renderer(Failures(), openmetrics=True)
    fold.feed_lines([log("sources_ordered", policy=f"{n}", seconds=1) for n in range(50)])
    shown(fold.state, kept, openmetrics=True)
    assert sum(written) == 50
    written.clear()
    fold.feed_lines([log("sources_ordered", policy="7", seconds=1)])
    shown(fold.state, kept, openmetrics=True)
    assert sum(written) == 1
    assert len(kept._kept[HISTOGRAM]) == 50
    fold = Fold(CATALOG)
    fold.feed_lines([log("sources_ordered", policy="7", seconds=1)])
    shown(fold.state, kept, openmetrics=True)
    assert len(kept._kept[HISTOGRAM]) == 1
    shown(State(CATALOG), kept, openmetrics=True)
    assert not kept._kept


def test_a_version_that_stays_is_not_collected_again() -> None:
    kept = Renderer(Failures(), openmetrics=False)
    numbers = itertools.count()
    row: Row[None] = Row("x", "gauge", "X.", lambda _: next(numbers))
    pages = [
        b"".join(kept.texts(row_collectors([row], None), version)) for version in (1, 1, 2, None)
    ]
    assert [page.split()[-1] for page in pages] == [b"0.0", b"0.0", b"1.0", b"2.0"]


# --------------------------------------------------------------------------------------
# What raises


def _raise(*_: object) -> Any:
    raise RuntimeError("100% off")


@pytest.mark.parametrize("openmetrics", FORMATS)
def test_a_collector_that_raises_costs_its_families(
    openmetrics: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failures = Failures()
    kept = Renderer(failures, openmetrics=openmetrics)
    rows = [Row("a", "gauge", "A.", lambda _: 1), Row("b", "gauge", "B.", _raise)]
    collectors = [
        *row_collectors(rows, None),
        Collector("process", _raise),
        *row_collectors([Row("c", "gauge", "C.", lambda _: 3)], None),
    ]
    for times in (1, 2):
        # The version stays, and still what failed is tried again.
        page = b"".join(kept.texts(collectors, "version"))
        assert page == b"".join(
            text.family_text(FamilySamples(name, "gauge", f"{name.upper()}.", (), [Point((), n)]))
            for name, n in (("a", 1), ("c", 3))
        )
        assert failures.counts == {"b": times, "process": times}
    first, second = caplog.records
    assert first.getMessage().startswith("left out of the page: b: RuntimeError: 100% off\n")
    assert second.getMessage() == "left out of the page: process: RuntimeError: 100% off"
    assert first.levelno == logging.ERROR
    assert "_raise" in first.getMessage()


@pytest.mark.parametrize("openmetrics", FORMATS)
def test_a_series_that_raises_costs_that_series(
    openmetrics: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log, fold = Lines(), Fold(CATALOG)
    fold.feed_lines([log("sources_ordered", policy=f"k{n}", seconds=1) for n in range(3)])
    failures = Failures()
    kept = Renderer(failures, openmetrics=openmetrics)
    whole = shown(fold.state, kept, openmetrics=openmetrics)
    table = fold.state.series[HISTOGRAM]
    (labels,) = (labels for labels in table if "k1" in labels)
    good = table[labels]
    rest = [
        line
        for line in whole.splitlines(keepends=True)
        if b'"k1"' not in line or not line.startswith(HISTOGRAM.encode())
    ]
    table[labels] = broken = Observed("no time", good.bounds)
    broken.counts[0] = "no number"
    for times in (1, 2):
        page = shown(fold.state, kept, openmetrics=openmetrics)
        assert page == b"".join(rest)
        assert failures.counts == {HISTOGRAM: times}
    table[labels] = good
    assert shown(fold.state, kept, openmetrics=openmetrics) == whole
    (record,) = caplog.records
    assert len(record.getMessage().splitlines()[0]) < 300
