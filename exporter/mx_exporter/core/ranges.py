"""Sets of numbers as lists of (first, end) ranges: ascending, end exclusive, none touches the next.

What a set takes grows with its holes, not with its numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

Ranges: TypeAlias = list[tuple[int, int]]

_INFINITY = float("inf")


def find(ranges: Ranges, number: int) -> int | None:
    """Which of the ranges holds the number; None: it is not in the set."""
    at = bisect_right(ranges, (number, _INFINITY)) - 1
    return at if at >= 0 and number < ranges[at][1] else None


def add(ranges: Ranges, number: int) -> None:
    """Put a number in, which is not there."""
    at = bisect_right(ranges, (number, _INFINITY))
    first, end = number, number + 1
    joins_next = at < len(ranges) and ranges[at][0] == end
    joins_last = at > 0 and ranges[at - 1][1] == first
    if joins_next:
        end = ranges[at][1]
    if joins_last:
        first = ranges[at - 1][0]
    ranges[at - joins_last : at + joins_next] = [(first, end)]


def remove(ranges: Ranges, number: int) -> None:
    """Take a number out, which is there."""
    at = find(ranges, number)
    assert at is not None
    first, end = ranges[at]
    parts = ((first, number), (number + 1, end))
    ranges[at : at + 1] = [part for part in parts if part[0] < part[1]]


def complement(ranges: Ranges, end: int) -> Ranges:
    """The numbers below ``end`` that are not in the set; those of the set are below it."""
    found = []
    at = 0
    for first, stop in ranges:
        if at < first:
            found.append((at, first))
        at = stop
    if at < end:
        found.append((at, end))
    return found


def union(some: Ranges, others: Ranges) -> Ranges:
    """The numbers that are in one of the sets."""
    found: Ranges = []
    for first, end in sorted([*some, *others]):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


def without(some: Ranges, others: Ranges) -> Ranges:
    """The numbers of a set that are not in the other one."""
    end = max([0, *(end for _, end in (*some, *others))])
    return complement(union(complement(some, end), others), end)


def common(some: Ranges, others: Ranges) -> int:
    """How many numbers are in both sets."""
    found = 0
    left = iter(others)
    other = next(left, None)
    for first, end in some:
        while other is not None:
            found += max(0, min(end, other[1]) - max(first, other[0]))
            if other[1] > end:
                break
            other = next(left, None)
    return found


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """How many numbers there are."""
    return sum(end - first for first, end in ranges)
