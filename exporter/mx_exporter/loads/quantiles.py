"""Exact quantiles."""

from __future__ import annotations

from collections.abc import Iterable


def quantile(values: Iterable[float], q: float) -> float | None:
    """The ``q`` quantile, between the two values that lie next to it as SQL's ``quantile_cont``
    has it; None where there is no value."""
    ordered = sorted(values)
    if not ordered:
        return None
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def median(values: Iterable[float]) -> float | None:
    """The 0.5 quantile."""
    return quantile(values, 0.5)
