"""The laws of the fold: what it gives depends on the events and on nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pickle
import random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import SUM, Catalog
from mx_exporter.core.exact_sum import Sum, to_float, units, units_of
from mx_exporter.core.fold import Fold
from mx_exporter.core.snapshot_codec import dump, load
from mx_exporter.core.state import Overlap, State
from tests.support import Lines
from tests.support.folding import fold, pages, settle
from tests.support.strategies import FLAWS, PROCS, flawed, logs

shuffles = st.randoms(use_true_random=False)
gone = st.booleans()


@given(logs(), shuffles, gone)
def test_any_interleaving_gives_the_same_bytes(lines, rng: random.Random, gone):
    other = list(lines)
    rng.shuffle(other)
    assert pages(fold(lines, gone).state) == pages(fold(other, gone).state)


def in_pieces(lines, cuts):
    """The lines, cut at those of the places that lie within them."""
    places = sorted({0, len(lines), *(cut for cut in cuts if cut < len(lines))})
    return [lines[start:end] for start, end in itertools.pairwise(places)]


@given(logs(), st.lists(st.integers(0, 25)), gone)
def test_any_split_folds_to_the_whole(lines, cuts, gone):
    pieces = Fold(CATALOG)
    for piece in in_pieces(lines, cuts):
        pieces.feed_lines(piece)
        # A fold over a state that was put away and taken up again goes on where it was.
        pieces = Fold(CATALOG, pickle.loads(pickle.dumps(pieces.state)))
    if gone:
        settle(pieces)
    assert pages(pieces.state) == pages(fold(lines, gone).state)


@given(logs(), st.lists(st.integers(0, 25)), gone)
def test_any_feeding_folds_to_the_whole(lines, cuts, gone):
    """Also by a fold that knows what earlier events said."""
    whole = Fold(CATALOG)
    for piece in in_pieces(lines, cuts):
        whole.feed_lines(piece)
    if gone:
        settle(whole)
    assert pages(whole.state) == pages(fold(lines, gone).state)


@given(logs(), shuffles, gone)
def test_doubles_change_nothing(lines, rng, gone):
    twice = fold(lines + rng.sample(lines, len(lines) // 2), gone).state
    once = fold(lines, gone).state
    assert twice.duplicates == once.duplicates + len(lines) // 2
    twice.duplicates = once.duplicates
    assert pages(twice) == pages(once)


def by_process(lines):
    return [[line for line in lines if json.loads(line)["proc"] == proc] for proc in PROCS]


@given(logs(), gone)
def test_merging_processes_is_commutative_and_associative(lines, gone):
    whole = pages(fold(lines, gone).state)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        states = [fold(part, gone).state for part in by_process(lines)]
        first, second, third = (states[at] for at in order)
        first.merge(second)
        first.merge(third)
        assert pages(first) == whole
        states = [fold(part, gone).state for part in by_process(lines)]
        first, second, third = (states[at] for at in order)
        second.merge(third)
        first.merge(second)
        assert pages(first) == whole


@given(logs())
def test_merging_nothing_changes_nothing(lines):
    state = fold(lines).state
    before = pages(state)
    state.merge(State(CATALOG))
    assert pages(state) == before
    empty = State(CATALOG)
    empty.merge(state)
    assert pages(empty) == before


@given(logs(), st.integers(1, 5), shuffles, st.booleans(), gone)
def test_any_split_and_any_tree_of_merges_give_the_whole(lines, parts, rng, kept, gone):
    """Also where the lines of one process, and of one load, are in several states."""
    split = [[] for _ in range(parts)]
    for line in lines:
        rng.choice(split).append(line)
    states = [fold(part, gone).state for part in split]
    while len(states) > 1:
        rng.shuffle(states)
        if kept:
            states = [load(CATALOG, dump(CATALOG, state, {})).state for state in states]
        states[0].merge(states.pop())
    whole = fold(lines, gone).state
    assert pages(states[0]) == pages(whole)
    assert counts_of(states[0]) == counts_of(whole)
    assert states[0].holds(whole)
    assert whole.holds(states[0])


def counts_of(state):
    books = {
        proc: (book.end, book.gaps, book.refused, book.skipped, book.gone, book.rejections)
        for proc, book in state.books.items()
    }
    return books, state.logged, state.lost, state.gone, state.rejected, state.rejected_numbers


@given(logs())
def test_states_that_share_an_event_do_not_merge(lines):
    good = [line for line in lines if is_good_line(line)]
    assume(good)
    state, before = fold(lines).state, pages(fold(lines).state)
    with pytest.raises(Overlap, match=json.loads(good[0])["proc"]):
        state.merge(fold(good[:1]).state)
    assert pages(state) == before


@given(logs(), shuffles)
def test_a_state_holds_those_of_its_events_and_no_other(lines, rng):
    part = rng.sample(lines, rng.randint(0, len(lines)))
    some, whole = fold(part).state, fold(lines).state
    assert whole.holds(some)
    told = {(r["proc"], r["seq"], is_good_line(line)) for line in lines for r in [read(line)]}
    known = {(r["proc"], r["seq"], is_good_line(line)) for line in part for r in [read(line)]}
    better = {(proc, seq, False) for proc, seq, good in known if good}
    assert some.holds(whole) == (told <= known | better)


def read(line):
    return json.loads(line.replace(b"1e999", b"0"))


def is_good_line(line):
    return read(line)["level"] == "info"


def is_good(record):
    return record["level"] == "info"


@given(logs())
def test_the_books_close(lines):
    state = fold(lines).state
    for proc, book in state.books.items():
        seqs = {r["seq"] for r in map(json.loads, lines) if r["proc"] == proc}
        good = {r["seq"] for r in map(json.loads, lines) if r["proc"] == proc and is_good(r)}
        assert book.end == max(seqs) + 1
        assert book.folded + book.refused + book.skipped == len(good)
        assert book.rejected == len(seqs - good)
        assert book.lost == book.end - len(seqs)
    assert state.logged == sum(book.end for book in state.books.values())
    assert state.lost == sum(book.lost for book in state.books.values())
    assert state.rejected.total() == state.rejected_numbers
    assert state.rejected_numbers == sum(book.rejected for book in state.books.values())
    assert sum(state.events.values()) == sum(book.folded for book in state.books.values())
    assert sum(state.refused.values()) == sum(book.refused for book in state.books.values())


def test_feeding_says_which_events_were_refused():
    log = Lines()
    good, bad = (log("sources_ordered", policy="p", seconds=seconds) for seconds in (1, None))
    first, second = CATALOG.decoder.decode([good, bad])
    assert Fold(CATALOG).feed([first, second]) == [(second, "missing")]
    whole = Fold(CATALOG)
    whole.feed([second])
    assert dict(whole.state.events) == {}, "no count of events that are none"


@pytest.mark.parametrize("sum_first", [True, False])
@pytest.mark.parametrize(
    ("seconds", "refused"),
    [
        ([1, -1, None], {(1, "negative"), (2, "missing")}),
        ([1, -1], {(1, "negative")}),
        ([1, True], {(1, "boolean")}),
        ([1], set()),
    ],
)
def test_an_event_that_several_families_refuse_is_refused_once(sum_first, seconds, refused):
    times = CATALOG.by_name["mx_p2p_source_selection_seconds"]
    total = dataclasses.replace(times, name="own_total", measure=SUM, buckets=())
    families = [total, times] if sum_first else [times, total]
    whole, log = Fold(Catalog(CATALOG.events.values(), families)), Lines()
    lines = [log("sources_ordered", policy="p", seconds=each) for each in seconds]
    found = whole.feed(whole.catalog.decoder.decode(lines))
    assert sorted((event.seq, why) for event, why in found) == sorted(refused)
    assert whole.state.refused.total() == len(refused)
    assert whole.state.events == {"sources_ordered": 1}


def test_nothing_of_a_block_waits_once_it_is_folded():
    load = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
    log = Lines()
    whole = fold([log.header(), log("load_started", **load)])
    whole.feed_lines([log("load_finished", **load, outcome="success", seconds=1)])
    assert not whole._touched
    assert not whole._handlers.ended
    assert not whole.state.loads.stirred


def test_what_was_fed_before_a_failure_is_folded_in_order_of_time():
    """The exemplar shows it: it is the later event's, though that was fed first."""
    log = Lines()
    lines = [log("sources_ordered", policy="p", seconds=1, load_id=f"l{n}") for n in range(2)]

    def failing():
        yield from CATALOG.decoder.decode(reversed(lines))
        raise MemoryError

    whole = Fold(CATALOG)
    with pytest.raises(MemoryError):
        whole.feed(failing())
    assert pages(whole.state) == pages(fold(lines, gone=False).state)
    assert b'load_id="l1"' in pages(whole.state)[0]


def test_events_of_the_same_time_go_by_process_and_number_however_they_come():
    lines = []
    for proc in ("a" * 12, "b" * 12):
        log = Lines(proc, step=0)
        lines += [
            log("sources_ordered", policy="p", seconds=1, load_id=f"{proc}{n}") for n in (0, 1)
        ]
    for order in itertools.permutations(lines):
        (series,) = fold(order).state.series["mx_p2p_source_selection_seconds"].values()
        assert [last[-1] for last in series.exemplars if last is not None] == [f"{'b' * 12}1"]


def test_rejected_lines_add_up_by_reason():
    whole = Fold(CATALOG)
    whole.reject("torn", 2)
    whole.reject("torn")
    whole.reject("not_json", 0)
    assert dict(whole.state.rejected) == {"torn": 3}


@pytest.mark.parametrize("reason", FLAWS)
def test_a_rejected_line_whose_number_can_be_read_is_not_lost_as_well(reason):
    log = Lines()
    lines = [log.header(), flawed(log("sources_ordered", policy="p", seconds=1), reason)]
    state = fold([*lines, log.header(1)]).state
    (book,) = state.books.values()
    assert (state.logged, state.lost, state.rejected) == (3, 0, {reason: 1})
    assert (book.folded, book.rejected, state.rejected_numbers) == (2, 1, 1)


def test_a_good_line_wins_over_a_rejected_one_of_its_number_in_any_order():
    log = Lines()
    good = log("sources_ordered", policy="p", seconds=1)
    lines = [good, flawed(good, "wrong_type"), flawed(good, "not_json")]
    for order in itertools.permutations(lines):
        state = fold(order).state
        assert (state.events.total(), state.lost, state.duplicates) == (1, 0, 2)
        assert dict(state.rejected) == {}
        assert pages(state) == pages(fold(lines).state)


def test_a_number_that_is_rejected_again_and_again_counts_once():
    line = Lines()("sources_ordered", policy="p", seconds=1)
    for order in itertools.permutations(
        [flawed(line, "wrong_type")] * 2 + [flawed(line, "not_json")]
    ):
        state = fold(order).state
        assert (dict(state.rejected), state.duplicates) == ({"not_json": 1}, 2)
        assert state.books["a" * 12].rejections == {"not_json": [(0, 1)]}


def test_a_process_that_logs_nothing_but_bad_lines_takes_no_room():
    log = Lines()
    state = fold([flawed(log("nixl_received", result="r"), "wrong_type") for _ in range(999)]).state
    assert state.books["a" * 12].rejections == {"wrong_type": [(0, 999)]}
    assert (state.logged, state.rejected) == (999, {"wrong_type": 999})


def test_a_load_whose_start_was_rejected_at_first_is_none_that_runs():
    log, load = Lines(), {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}
    start = log("load_started", **load)
    end = log("load_finished", **load, outcome="success", seconds=1)
    for order in itertools.permutations([flawed(start, "wrong_type"), start, end]):
        state = fold(order, gone=False).state
        assert list(state.loads.in_progress().values()) == [0]
        assert not state.loads.open


def test_lines_beside_a_rejected_one_are_folded():
    log = Lines()
    whole = fold([log.header(), b"not json", log.header(1), b"[]", log.header(2)])
    assert whole.state.rejected == {"not_json": 1, "not_object": 1}
    assert whole.state.logged == sum(whole.state.events.values()) == 3


def test_what_lines_gave_is_handed_on_once_it_is_folded():
    log, given = Lines(), []
    whole = Fold(CATALOG, tap=lambda found, size: given.append((found, size, whole.state.logged)))
    lines = [log.header().rstrip(), b"{}", log.header(1).rstrip()]
    whole.feed_lines(lines)
    assert given == [(CATALOG.decoder.decode(lines), sum(map(len, lines)), 2)]


def test_processes_that_lines_name_are_noted_also_by_a_rejected_one():
    header, line = Lines("a" * 12).header(), Lines("b" * 12).header()
    procs = set()
    Fold(CATALOG).feed_lines([header, flawed(line, "wrong_type"), b"{}"], procs)
    assert procs == {"a" * 12, "b" * 12}


def test_who_is_gone_is_said_of_all_processes_at_once():
    whole = Fold(CATALOG)
    whole.feed_lines([Lines(letter * 12).header() for letter in "abc"])
    for gone in ("a", "bc", "", "c"):
        whole.settle({letter * 12 for letter in gone} | {"not met"})
        assert whole.state.books.gone() == {letter * 12 for letter in gone}
        assert whole.state.gone == len(gone)


def test_the_end_of_a_writer_that_logged_nothing_changes_nothing():
    whole = Fold(CATALOG)
    whole.writer_gone("aaaaaaaaaaaa")
    assert pages(whole.state) == pages(State(CATALOG))


def test_the_series_that_an_event_feeds_can_be_named():
    log = Lines(scheme="s")
    lines = [
        log("source_selected", policy="p", source_worker_id="w"),
        log("sources_ordered", policy="p", seconds=None),
        log("load_phase_finished", engine="vllm", model="m", phase="stray", seconds=1),
        log("of_the_future"),
    ]
    whole = Fold(CATALOG)
    assert [list(whole.targets(event)) for event in CATALOG.decoder.decode(lines)] == [
        [
            ("mx_p2p_source_selections_total", ("p", "s")),
            ("mx_p2p_source_selections_total", ("p", "s", "w")),
        ],
        [("mx_p2p_source_selection_seconds", ("p", "s"))],
        [],
        [],
    ]


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, max_size=50))
def test_sums_equal_fsum(values):
    total = to_float(sum(map(units, values)))
    try:
        expected = math.fsum(values)
    except OverflowError:  # fsum gives up on a partial sum that we can hold
        return
    assert total == expected


@given(st.lists(st.one_of(finite, st.integers(-(2**63), 2**64)), max_size=20), shuffles)
def test_sums_do_not_depend_on_the_order(values, rng):
    other = list(values)
    rng.shuffle(other)
    assert sum(map(units, values)) == sum(map(units, other))


@given(st.lists(st.lists(st.one_of(finite, st.integers(-(2**63), 2**64)), max_size=99), max_size=4))
@example([[1e308, 1e308, -1e308, 5e-324], [2**53 + 1, 0.1]])
@example([[5e-324, 1.0, 1e300, -1.0, -1e300]])
def test_sums_of_many_at_a_time_are_those_of_one_by_one(batches):
    found = Sum()
    for values in batches:
        found.add(values)
        assert units_of(values) == sum(map(units, values))
    assert found.units() == sum(units(value) for values in batches for value in values)


def test_sums_too_large_for_a_float_are_infinite_and_come_back():
    most = 1.7976931348623157e308
    assert to_float(2 * units(most)) == math.inf
    assert to_float(-2 * units(most)) == -math.inf
    assert to_float(2 * units(most) - units(most)) == most
