"""The books close whatever numbers are met in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.books import Book


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


def test_a_number_far_ahead_costs_nothing():
    book = Book()
    book.enter(10**18)
    assert book.lost == 10**18
    assert book.lost_ranges() == [(0, 10**18 - 1)]
