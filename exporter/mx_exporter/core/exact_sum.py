"""Sums of floats that do not depend on the order of the summands.

A sum is an integer in units of 2^-1074, the smallest positive float: every finite float is a
whole number of them, integers add without rounding, and one true division at the end rounds
correctly. Plain float addition would show the order of the events in the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

_UNIT_BITS = 1074
_ONE = 1 << _UNIT_BITS

#: Parts that a sum is taken in; one with more is of numbers farther apart than any measured ones.
_MAX_PARTS = 4

#: Numbers that wait in a `Sum`, between two that are added, at most.
_MAX_WAITING = 32


def units(value: float) -> int:
    """A finite number in units of 2^-1074, exactly.

    Raises ``OverflowError`` or ``ValueError`` for infinities and NaN.
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_UNIT_BITS + 1 - denominator.bit_length())


def units_of(values: Sequence[float]) -> int:
    """The sum of finite numbers in units of 2^-1074, exactly.

    ``fsum`` gives the float nearest to a sum, and zero for none but an exact zero. So the nearest
    floats to what is left, taken away one after the other, are the sum in a few parts.
    """
    if set(map(type, values)) == {float}:  # `fsum` would round integers
        total, left = 0, list(values)
        try:
            for _ in range(_MAX_PARTS):
                part = fsum(left)
                if not part:
                    return total
                total += units(part)
                left.append(-part)
        except OverflowError:  # what is left is beyond the largest float
            pass
    return sum(map(units, values))


class Sum:
    """A sum that grows, exact. Numbers wait: many at a time take less."""

    __slots__ = ("_units", "_waiting")

    def __init__(self, total: int = 0) -> None:
        self._units = total
        self._waiting: list[float] = []

    def add(self, values: Sequence[float]) -> None:
        """Add finite numbers."""
        self._waiting += values
        if len(self._waiting) > _MAX_WAITING:
            self.units()

    def merge(self, other: Sum) -> None:
        """Add what another holds."""
        self._units += other.units()

    def units(self) -> int:
        """The sum of all that was added, in units of 2^-1074; none waits any more."""
        waiting, self._waiting = self._waiting, []
        self._units += units_of(waiting)
        return self._units


def to_float(total: int) -> float:
    """The float nearest to a sum of `units`; an infinity when it is too large for one."""
    try:
        return total / _ONE
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")
