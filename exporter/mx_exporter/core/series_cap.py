"""The cap on series: a page shows the oldest of each family, a fold holds some more.

Which are the oldest is known when all was read: an older one may come last. Were a fold to refuse
what comes past the cap, the page would depend on the order of reading, and a restart would show
other series than before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

#: Series beyond the cap that are kept when the youngest are dropped. So many again may come before
#: they are. Up to here no series ever lacks an event; past it one may that was dropped and turned
#: out to be old by an event that was read later.
SPARE = 5_000

K = TypeVar("K", bound=tuple[str, ...])
V = TypeVar("V")


def oldest(table: Mapping[K, V], count: int, created: Callable[[V], str]) -> list[K]:
    """The label values of so many series, oldest first: by the timestamp that ``created`` gives,
    then by label values."""
    return sorted(table, key=lambda labels: (created(table[labels]), labels))[:count]


def hidden(count: int, cap: int | None) -> int:
    """How many of ``count`` series a page does not show. It says no more than `SPARE`: others may
    have been dropped."""
    return 0 if cap is None else min(max(0, count - cap), SPARE)


def is_full(table: Mapping[Any, Any], cap: int | None) -> bool:
    """Whether so many series are held that there is no room for another one."""
    return cap is not None and len(table) >= cap + 2 * SPARE


def make_room(table: dict[K, V], cap: int | None, created: Callable[[V], str]) -> list[K]:
    """Drop the youngest series of a table that is full; return the label values of these.

    A series that a page shows in the end is none of them once its oldest event was met, since no
    more than the cap can be older.
    """
    if cap is None or not is_full(table, cap):
        return []
    kept = set(oldest(table, cap + SPARE, created))
    dropped = [labels for labels in table if labels not in kept]
    for labels in dropped:
        del table[labels]
    return dropped
