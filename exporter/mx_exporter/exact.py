"""Sums of floats that do not depend on the order of the summands.

A sum is an integer in units of 2^-1074, the smallest positive float: every finite float is a
whole number of them, integers add without rounding, and one true division at the end rounds
correctly. Plain float addition would show the order of the events in the last bit.
"""

from __future__ import annotations

_UNIT_BITS = 1074
_ONE = 1 << _UNIT_BITS


def units(value: float) -> int:
    """A finite number in units of 2^-1074, exactly.

    Raises ``OverflowError`` or ``ValueError`` for infinities and NaN.
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_UNIT_BITS + 1 - denominator.bit_length())


def to_float(total: int) -> float:
    """The float nearest to a sum of `units`; an infinity when it is too large for one."""
    try:
        return total / _ONE
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")
