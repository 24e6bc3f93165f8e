"""Sets of numbers as ranges."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from mx_exporter.core import ranges
from mx_exporter.core.ranges import Ranges

numbers = st.integers(0, 20)


def made_of(given: set[int]) -> Ranges:
    """The ranges of a set, of which there is one way only."""
    made: Ranges = []
    for number in given:
        ranges.add(made, number)
    return made


@given(st.lists(numbers))
def test_a_set_of_ranges_is_a_set(changes: list[int]) -> None:
    """Each number of the list is put in, or taken out where it is in already."""
    found: Ranges = []
    model: set[int] = set()
    for number in changes:
        (ranges.remove if number in model else ranges.add)(found, number)
        model ^= {number}
        assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
        assert ranges.count(found) == len(model)
        for each in range(22):
            assert (ranges.find(found, each) is not None) == (each in model)


@given(st.sets(numbers), st.sets(numbers))
@example({0, 2}, {0, 1, 2})  # a range of one set lies over two of the other
@example({0, 1, 2}, {0, 2})
def test_what_two_sets_have_in_common(some: set[int], others: set[int]) -> None:
    assert ranges.common(made_of(some), made_of(others)) == len(some & others)


@given(st.sets(numbers), st.sets(numbers))
@example({0, 1, 5, 9}, {2, 4, 5, 6})  # ranges that touch, and one within another
@example({0, 1, 2, 3, 9}, {1, 7})
@example({3}, set())
@example(set(), {3})
def test_sets_of_ranges_put_together_and_taken_apart(some: set[int], others: set[int]) -> None:
    mine, theirs = made_of(some), made_of(others)
    assert ranges.union(mine, theirs) == made_of(some | others)
    assert ranges.without(mine, theirs) == made_of(some - others)
    for end in (max(some, default=-1) + 1, 22):
        assert ranges.complement(mine, end) == made_of(set(range(end)) - some)
    assert (mine, theirs) == (made_of(some), made_of(others)), "neither is changed"
