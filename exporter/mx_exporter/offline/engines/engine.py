"""What an engine must offer that spreads the work on sources. Commands know no more of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from ..sources import Source

_Result = TypeVar("_Result")

#: Groups of writers a worker, so that a slow one does not keep the others waiting.
_GROUPS_EACH = 4


class Engine(Protocol):
    """Workers, and how work gets to them.

    :ivar jobs: tasks that are worked on at a time.
    :ivar worth: bytes of lines below which one process is quicker.
    :ivar most: bytes of lines that a task of more than one writer has at most; None: no limit.
    """

    @property
    def jobs(self) -> int: ...

    @property
    def worth(self) -> int: ...

    @property
    def most(self) -> int | None: ...

    def spread(
        self, work: Callable[..., _Result], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, _Result]]:
        """Have workers work on tasks, and give the number and the result of each as it is done.

        Few more tasks than there are workers are under way at a time, so that results which nobody
        took yet need little room.

        :param work: called with each task's arguments; a function of a module.
        :raises MxError: workers died.
        """

    def merged(
        self,
        work: Callable[..., _Result],
        tasks: Iterable[tuple[Any, ...]],
        merge: Callable[[_Result, _Result], object],
    ) -> Iterator[tuple[list[int], _Result]]:
        """The same, where results may come merged: the numbers of some tasks, and what they gave.

        :param merge: adds the second result to the first.
        """


def group(
    sources: list[Source],
    engine: Engine,
    most: int | None = None,
    unit: Callable[[Source], Hashable] = attrgetter("proc"),
) -> list[list[Source]]:
    """Sources by writer, in groups of about equal size; one group when they are too small to be
    spread, or when some do not say whose they are.

    :param most: bytes of lines that a group of more than one writer has at most; None: as the
        engine has it.
    :param unit: of what is to be in one group.
    """
    total = sum(source.weight for source in sources)
    if any(source.segment is None for source in sources) or total < engine.worth:
        return [sources]
    wanted = engine.jobs * _GROUPS_EACH
    most = engine.most if most is None else most
    if most is not None:
        wanted = max(wanted, total // most + 1)
    by_unit: dict[Hashable, list[Source]] = {}
    for source in sources:
        by_unit.setdefault(unit(source), []).append(source)
    sized = sorted(
        ((sum(source.weight for source in given), given) for given in by_unit.values()),
        key=lambda each: -each[0],
    )
    # The first of them is the smallest.
    groups: list[tuple[int, int, list[Source]]] = [
        (0, at, []) for at in range(min(wanted, len(sized)))
    ]
    for size, given in sized:
        full, at, group = groups[0]
        group += given
        heapq.heapreplace(groups, (full + size, at, group))
    return [group for _, _, group in sorted(groups, key=lambda each: each[1])]
