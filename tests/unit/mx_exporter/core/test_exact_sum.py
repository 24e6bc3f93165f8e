"""Exact sums: what a unit is, what waits, and what merging adds.

The laws of any numbers in any order are in ``test_fold.py``.
"""

from __future__ import annotations

from mx_exporter.core.exact_sum import Sum, to_float, units


def test_a_unit_is_the_smallest_float():
    """Snapshots hold sums in units, so what a unit is does not change."""
    assert units(5e-324) == 1
    assert units(1.0) == 2**1074
    assert to_float(3 * 2**1074) == 3.0


def test_numbers_that_wait_are_few():
    total = Sum()
    for n in range(1, 1001):
        total.add([float(n)])
        assert len(total._waiting) <= 32
    assert to_float(total.units()) == 500_500


def test_merging_adds_what_the_other_holds_and_what_waits_there():
    first, second = Sum(units(1.0)), Sum(units(2.0))
    first.add([4.0])
    second.add([8.0])
    first.merge(second)
    assert to_float(first.units()) == 15.0
    assert to_float(second.units()) == 10.0
