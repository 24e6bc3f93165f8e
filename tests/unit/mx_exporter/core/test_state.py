"""The state's own counts, when a part of it is split off and when another is merged."""

from __future__ import annotations

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from tests.support import Lines
from tests.support.folding import whole_page

ALIVE, GONE, ENDED, OTHER = ("a" * 12, "b" * 12, "c" * 12, "d" * 12)


def some_processes() -> State:
    """A living process with a load that runs, and three that are gone; some events are lost."""
    whole = Fold(CATALOG)
    load = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
    for proc, last in ((ALIVE, 3), (GONE, 2), (ENDED, 0), (OTHER, 5)):
        log = Lines(proc)
        whole.feed_lines([log("load_started", **load) if proc == ALIVE else log.header()])
        if last:
            whole.feed_lines([Lines(proc, seq=last)("nixl_received", result="complete")])
            whole.feed_lines([Lines(proc, seq=last + 1)("nixl_received", result=5)])
    for proc in (GONE, ENDED, OTHER):
        whole.writer_gone(proc)
    return whole.state


def counts(state: State) -> tuple[int, int, int, int]:
    return state.logged, state.lost, state.rejected_numbers, state.gone


def test_what_is_split_off_has_its_books_its_loads_and_its_share_of_the_counts():
    state = some_processes()
    assert counts(state) == (17, 7, 3, 3)
    part = state.split_off(CATALOG, ["not met", ALIVE, GONE, ENDED])
    assert (list(part.books), list(state.books)) == ([ALIVE, GONE, ENDED], [OTHER])
    assert (list(part.loads.open), list(state.loads.open)) == ([ALIVE], [])
    assert counts(part) == (10, 3, 2, 2)
    assert counts(state) == (7, 4, 1, 1)


def test_what_is_split_off_and_merged_back_is_the_whole():
    state = some_processes()
    part = state.split_off(CATALOG, [ALIVE, ENDED])
    state.merge(part)
    assert whole_page(state) == whole_page(some_processes())
    assert set(state.books) == {ALIVE, GONE, ENDED, OTHER}


def test_a_rejection_that_a_part_takes_back_is_none_of_the_whole():
    state = some_processes()
    part = state.split_off(CATALOG, [ALIVE])
    Fold(CATALOG, part).feed_lines([Lines(ALIVE, seq=4)("nixl_received", result="complete")])
    state.merge(part)
    assert (state.rejected, state.rejected_numbers) == ({"wrong_type": 2}, 2)
    part = state.split_off(CATALOG, [GONE, OTHER])
    for proc, seq in ((GONE, 3), (OTHER, 6)):
        line = Lines(proc, seq=seq)("nixl_received", result="complete")
        Fold(CATALOG, part).feed_lines([line])
    state.merge(part)
    assert dict(state.rejected) == {}


def test_merging_adds_every_count():
    first, second = some_processes(), State(CATALOG)
    first.duplicates, second.duplicates = 1, 2
    first.skipped, second.skipped = 3, 4
    first.rejected.update(torn=1, not_json=1)
    second.rejected.update(torn=2)
    first.refused.update(missing=5)
    second.refused.update(missing=6)
    second.logged, second.lost, second.gone = 100, 200, 300
    second.rejected_numbers = 400
    second.last_event = "9999"
    first.merge(second)
    assert (first.duplicates, first.skipped) == (3, 7)
    assert first.rejected == {"torn": 3, "not_json": 1, "wrong_type": 3}
    assert first.refused == {"missing": 11}
    assert counts(first) == (117, 207, 403, 303)
    assert first.last_event == "9999"
