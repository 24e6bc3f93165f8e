"""The books close whatever numbers are met in whatever order."""

from __future__ import annotations

import gc
import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_exporter.core import snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.handlers import Handlers
from mx_exporter.core.ledger import Book, Ledger
from mx_exporter.core.state import State
from tests.support import Lines
from tests.support.folding import whole_page
from tests.support.strategies import PROCS, logs


@given(st.lists(st.integers(0, 25), max_size=40))
def test_a_book_knows_what_it_met(numbers):
    book, met = Book(), set()
    for seq in numbers:
        assert book.knows(seq) == (seq in met)
        if seq not in met:
            book.enter(seq)
            met.add(seq)
    highest = max(met, default=-1)
    lost = sorted(set(range(highest + 1)) - met)
    assert book.end == highest + 1
    assert book.lost == len(lost)
    ranges = book.lost_ranges()
    assert [seq for first, last in ranges for seq in range(first, last + 1)] == lost
    # Neighbouring ranges were joined: what a book holds grows with gaps, not with events.
    assert all(a[1] < b[0] for a, b in zip(book.gaps, book.gaps[1:], strict=False))
    assert book.complete == (lost[0] if lost else highest + 1)


@given(st.lists(st.tuples(st.integers(0, 25), st.sampled_from(["", "torn", "wrong_type"]))))
def test_a_book_knows_what_it_met_in_rejected_lines_only(lines):
    book, met = Book(), {}
    for seq, reason in lines:
        if seq not in met:
            book.enter(seq)
            if reason:
                book.reject(seq, reason)
            met[seq] = reason
        elif met[seq] and not reason:
            book.take_back(seq, met[seq])
            met[seq] = ""
    rejected = {seq for seq, reason in met.items() if reason}
    assert book.rejected == len(rejected)
    assert book.folded == len(met) - len(rejected)
    assert all(book.rejection(seq) == (reason or None) for seq, reason in met.items())
    good = set(met) - rejected
    assert book.complete == next(seq for seq in range(book.end + 1) if seq not in good)
    assert set(book.rejections) == {met[seq] for seq in rejected}
    for ranges in book.rejections.values():
        assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))


def test_a_number_far_ahead_costs_nothing():
    book = Book()
    book.enter(10**18)
    assert book.lost == 10**18
    assert book.lost_ranges() == [(0, 10**18 - 1)]


def test_the_books_close_over_a_failure_in_the_middle_of_a_block(monkeypatch):
    """Memory may run out anywhere: what was folded is known, the others are lost, none is new."""
    log = Lines()
    lines = [log("sources_ordered", policy=f"p{n}", seconds=1.0 if n else None) for n in range(6)]
    find = Handlers.find

    def short_of_memory(handlers, event):
        if event.seq == 3:
            raise MemoryError
        return find(handlers, event)

    fold = Fold(CATALOG)
    with monkeypatch.context() as patched:
        patched.setattr(Handlers, "find", short_of_memory)
        with pytest.raises(MemoryError):
            fold.feed_lines(lines[:5])
    fold.feed_lines(lines[5:])
    fold.feed_lines(lines[:3])
    state = fold.state
    (book,) = state.books.values()
    assert (state.logged, state.lost, state.duplicates) == (6, 2, 3)
    assert (book.folded, book.refused) == (state.events.total(), state.refused.total()) == (3, 1)


def test_a_book_is_of_a_living_writer_with_locks_until_something_else_is_known():
    whole = Fold(CATALOG)
    whole.feed_lines([Lines("a" * 12).header(), Lines("b" * 12).header(locked=False)])
    first, second = whole.state.books["a" * 12], whole.state.books["b" * 12]
    assert (first.gone, first.locked) == (False, True)
    assert (second.gone, second.locked) == (False, False)
    for _ in range(3):
        whole.writer_gone("a" * 12)
    assert (first.gone, second.gone, whole.state.gone) == (True, False, 1)


def test_events_that_the_schema_does_not_know_are_skipped_by_book_and_in_all():
    whole, log = Fold(CATALOG), Lines()
    for _ in range(2):
        assert whole.feed(CATALOG.decoder.decode([log("of_the_future")])) == []
    (book,) = whole.state.books.values()
    assert (book.skipped, book.refused, book.folded) == (2, 0, 0)
    assert (whole.state.skipped, dict(whole.state.refused)) == (2, {})


# --------------------------------------------------------------------------------------
# Closed books


class NeverClosed(Ledger):
    """The same with a full book of each process."""

    __slots__ = ()

    def close(self, proc: str) -> None:
        pass


def seen(state: State) -> Any:
    """All that anybody sees of the books."""
    books = {
        proc: {name: getattr(book, name) for name in (*Book.__slots__, "complete", "folded")}
        for proc, book in state.books.items()
    }
    return books, state.books.gone(), state.books.alive(), len(state.books), whole_page(state)


#: What comes next: some lines, or a process is gone, or lives after all.
STEPS = st.lists(
    st.one_of(st.integers(1, 6), st.tuples(st.sampled_from(PROCS), st.booleans())), max_size=12
)


@settings(max_examples=settings().max_examples)
@given(logs(), STEPS, st.booleans())
def test_a_closed_book_is_as_a_full_one(lines, steps, again):
    """Whatever is late, and whoever is gone meanwhile: also by way of a snapshot and a merge."""
    closing, full = Fold(CATALOG), Fold(CATALOG)
    full.state.books = NeverClosed()
    left = list(lines)
    for step in [*steps, len(left) + 1]:
        for fold in (closing, full):
            if isinstance(step, int):
                fold.feed_lines(left[:step])
            else:
                proc, gone = step
                (fold.writer_gone if gone else fold.writer_alive)(proc)
        if isinstance(step, int):
            left = lines if again and not left[step:] else left[step:]
        whole = {
            proc
            for proc, book in full.state.books.items()
            if book.gone and not book.gaps and not book.rejections
        }
        assert closing.state.books.closed.keys() == whole
        assert seen(closing.state) == seen(full.state)
    expected = seen(full.state)
    taken = snapshot_codec.load(CATALOG, snapshot_codec.dump(CATALOG, closing.state, {})).state
    assert seen(taken) == seen(pickle.loads(pickle.dumps(closing.state))) == expected
    part = taken.split_off(CATALOG, PROCS[:2])
    rest = full.state.split_off(CATALOG, PROCS[:2])
    assert seen(part)[:-1] == seen(rest)[:-1]
    taken.merge(part)
    assert seen(taken) == expected


def test_the_garbage_collector_walks_through_no_closed_book():
    whole = Fold(CATALOG)
    for number in range(50):
        log = Lines(f"{number:012x}")
        whole.feed_lines([log.header(), log("sources_ordered", policy="p", seconds=None)])
        whole.writer_gone(log.proc)
    books = whole.state.books
    assert (len(books.opened), len(books.closed)) == (0, 50)
    gc.collect()
    assert not any(map(gc.is_tracked, [books.closed, *books.closed.values()]))


def test_a_gap_keeps_a_book_open_until_it_is_filled():
    whole, log = Fold(CATALOG), Lines()
    header, lost, last = log.header(), log("of_the_future"), log("nixl_received", result="complete")
    whole.feed_lines([header, last])
    whole.writer_gone(log.proc)
    assert list(whole.state.books.opened) == [log.proc]
    whole.feed_lines([lost])
    assert whole.state.books.closed == {log.proc: (3, 0, 1, True)}
    assert not whole.state.books.opened


def book(met: str, refused: int = 0, gone: bool = False, locked: bool = True) -> Book:
    """A book: of each number ``+`` a good line was met, ``-`` none, or a rejected line."""
    made = Book()
    for seq, what in enumerate(met):
        if what != "-":
            made.enter(seq)
        if what in REASONS_OF:
            made.reject(seq, REASONS_OF[what])
    made.refused, made.gone, made.locked = refused, gone, locked
    made.skipped = 2 * refused
    return made


REASONS_OF = {"t": "torn", "w": "wrong_type"}


def shape(made: Book) -> str:
    """The same, read back."""
    found = ["+" if made.knows(seq) else "-" for seq in range(made.end)]
    for seq in range(made.end):
        reason = made.rejection(seq)
        if reason is not None:
            found[seq] = reason[0]
    return "".join(found)


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ("+", "-+", "++"),
        ("", "-+", "-+"),
        ("+---", "-t--+", "+t--+"),
        ("+wt", "-+", "++t"),
        ("-tw", "+wt", "+tt"),
        ("ww", "t", "tw"),
        ("+", "+", None),
        ("-+", "++", None),
    ],
)
def test_two_books_of_a_process_are_one(mine, theirs, both):
    for first, second in ((book(mine), book(theirs)), (book(theirs), book(mine))):
        joined = first.joined(second)
        assert both == (None if joined is None else shape(joined))
        assert joined is None or joined.end == len(both)
        assert joined is None or all(joined.rejections.values()), "no reason without a number"
        assert joined is None or (joined.holds(first) and joined.holds(second))


def test_what_is_counted_in_two_books_adds_up():
    joined = book("+--", 1).joined(book("-++", 2))
    assert (joined.refused, joined.skipped) == (3, 6)


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_who_is_alive_or_without_locks_in_one_of_two_books_is_so(mine, theirs):
    joined = book("+", gone=mine, locked=mine).joined(book("-+", gone=theirs, locked=theirs))
    assert joined.gone == joined.locked == (mine and theirs)


@pytest.mark.parametrize(
    ("mine", "theirs", "holds"),
    [
        ("+", "+", True),
        ("+-+", "+", True),
        ("+", "+-+", False),
        ("+", "+t", False),
        ("t", "+", False),
        ("+", "t", True),
        ("t", "t", True),
        ("", "", True),
    ],
)
def test_a_book_holds_another_whose_lines_it_met(mine, theirs, holds):
    assert book(mine).holds(book(theirs)) == holds


def test_a_rejection_that_is_taken_back_leaves_nothing():
    made = book("tt")
    for seq, left in ((0, {"torn": [(1, 2)]}), (1, {})):
        made.take_back(seq, "torn")
        assert made.rejections == left


def test_only_what_is_whole_and_of_who_is_gone_is_closed():
    ledger = Ledger()
    books = {
        "whole": book("++", 1, gone=True),
        "alive": book("++"),
        "gap": book("-+", gone=True),
        "bad": book("+t", gone=True),
    }
    for proc, each in books.items():
        ledger.put(proc, each)
    ledger.close("not met")
    assert ledger.closed == {"whole": (2, 1, 2, True)}
    assert ledger.opened == {proc: books[proc] for proc in ("alive", "gap", "bad")}
    assert (len(ledger), set(ledger)) == (4, set(books))
    assert {proc: shape(ledger[proc]) for proc in ledger} == {
        "whole": "++",
        "alive": "++",
        "gap": "-+",
        "bad": "+t",
    }
    assert (ledger.gone(), ledger.alive()) == ({"whole", "gap", "bad"}, {"alive"})
    assert ("whole" in ledger, "alive" in ledger, "not met" in ledger) == (True, True, False)


def test_a_book_that_is_taken_out_is_there_no_more():
    ledger = Ledger()
    ledger.put("gone", book("+", 1, gone=True, locked=False))
    ledger.put("alive", book("+"))
    taken = ledger.take("gone")
    assert (taken.end, taken.refused, taken.skipped, taken.gone, taken.locked) == (
        *(1, 1, 2),
        *(True, False),
    )
    assert ledger.take("alive").end == 1
    assert ledger.take("alive") is ledger.take("not met") is None
    assert list(ledger) == []


def test_a_closed_book_that_is_opened_closes_again():
    ledger = Ledger()
    ledger.put("gone", book("+", gone=True))
    ledger.open("gone").refused = 1
    assert not ledger.closed
    ledger.close_again()
    assert ledger.closed == {"gone": (1, 1, 0, True)}


def test_ledgers_of_other_processes_merge():
    first, second = Ledger(), Ledger()
    for at, ledger in enumerate((first, second)):
        ledger.put(f"gone {at}", book("+", gone=True))
        ledger.put(f"alive {at}", book("+"))
    first.merge(second)
    assert set(first.closed) == {"gone 0", "gone 1"}
    assert set(first.opened) == {"alive 0", "alive 1"}
