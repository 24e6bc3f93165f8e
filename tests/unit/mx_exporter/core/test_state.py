"""The state's own counts, when a part of it is split off and when another is merged."""

from __future__ import annotations

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import Overlap, State
from tests.support import Lines
from tests.support.folding import fold, whole_page

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


def of_one_process(letters: str, log: Lines | None = None) -> list[bytes]:
    """Lines of a process, one a letter; that of the question mark is rejected."""
    log = log or Lines(ALIVE)
    load = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
    lines = {
        "H": lambda: log.header(),
        "S": lambda: log("load_started", **load),
        "E": lambda: log("load_finished", **load, outcome="success", seconds=1),
        "R": lambda: log("sources_ordered", policy="p", seconds=None),
        "O": lambda: log("sources_ordered", policy="p", seconds=0.5),
        "W": lambda: log("source_selected", policy="p", source_worker_id="w"),
        "F": lambda: log("of_the_future"),
        "C": lambda: log("recorder_called", recorder="none", args=[], kwargs={}),
        "?": lambda: log("nixl_received", result=5),
    }
    return [lines[letter]() for letter in letters]


def told(state: State) -> tuple[object, ...]:
    """All that a state counts."""
    books = {
        proc: (book.end, book.gaps, book.refused, book.skipped, book.rejections, book.gone)
        for proc, book in state.books.items()
    }
    loads = state.loads.in_progress(), dict(state.loads.abandoned), len(state.loads.left)
    kept = dict(state.events), dict(state.refused), dict(state.rejected), state.calls.shown()
    return books, loads, kept, counts(state), state.skipped, state.last_event, whole_page(state)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("letters", ["HSORWFC?", "HSE", "SWW?RR", "??OO", "HSEFFCCRR"])
def test_states_of_some_lines_each_merge_into_that_of_all(letters: str, gone: bool) -> None:
    """Whichever lines are where, of one process or of two."""
    lines = of_one_process(letters)
    others = of_one_process(letters, Lines(OTHER, start=Lines.START + 9))
    whole = fold([*lines, *others], gone=gone).state
    for step in (1, 2, 3):
        parts = [lines[at::step] for at in range(step)] + [others]
        first, *rest = (fold(part, gone=gone).state for part in parts)
        for part in rest:
            first.merge(part)
        assert told(first) == told(whole)
        assert first.duplicates == 0


def test_a_number_that_is_rejected_in_one_state_and_good_in_the_other_is_a_duplicate() -> None:
    (good,) = of_one_process("O")
    (bad,) = of_one_process("?")
    for lines in ([good, bad], [bad, good]):
        first, second = (fold([line, line]).state for line in lines)
        first.merge(second)
        assert first.duplicates == 3
        assert told(first) == told(fold([good, bad] * 2).state)


def test_states_that_hold_the_same_event_do_not_merge() -> None:
    lines = [*of_one_process("HO"), *of_one_process("H", Lines(GONE))]
    state, other = fold(lines).state, fold(lines[1:2]).state
    before = told(state)
    with pytest.raises(Overlap, match=ALIVE):
        state.merge(other)
    assert told(state) == before


def test_a_state_holds_another_whose_events_it_has() -> None:
    lines = [*of_one_process("HO"), *of_one_process("H", Lines(GONE))]
    whole = fold(lines).state
    for part in (lines[:1], lines[2:], []):
        some = fold(part).state
        assert whole.holds(some)
        assert not some.holds(whole)
    assert whole.holds(fold(lines).state)
    assert not fold(lines[:1]).state.holds(fold(lines[:2]).state), "another event of one process"


def test_loads_that_were_left_are_split_off_with_their_process() -> None:
    state = fold(of_one_process("S")).state
    part = state.split_off(CATALOG, [ALIVE])
    assert (state.loads.abandoned.total(), part.loads.abandoned.total()) == (0, 1)
