"""Files of states into one state: the second step where parts of the logs were folded apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..core import saved_state
from ..core.catalog import Catalog
from ..core.ledger import Book
from ..core.saved_state import SavedState
from ..core.snapshot_seal import BadSnapshot
from ..core.state import Overlap, State
from ..errors import MxError, UsageError
from .engines.process_pool import processes, spread
from .inputs import contents
from .reader import ignore
from .sources import Source, find
from .stores import Unreadable

#: Files that a process takes at a time. Fewer than two such groups are not worth a process.
_GROUP = 100


class Merged(NamedTuple):
    """What files of states gave together."""

    saved: SavedState
    #: The first of them, and those of logs that could not be read to their end.
    first: Source
    short: list[Source]


def merge_states(
    catalog: Catalog,
    files: Iterable[str],
    *,
    jobs: int | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> Merged:
    """Merge states. One whose events are all in another one adds nothing, and may be there.

    :param files: paths, patterns, ``-``; compressed or not.
    :param jobs: processes at most; None: as many as there are cores.
    :param progress: told how many bytes there are to read; returns what is told how many were.
    :raises UsageError: a path names nothing, or no file.
    :raises MxError: a file is none of ours or damaged, was derived with another table or of another
        time, or holds some of the events of another one, and not all.
    """
    found = find(files)
    for directory in found.directories:
        raise UsageError(f"{directory}: is a directory; name the states in it: '{directory}/*'")
    sources = [*found.sources, *found.snapshots]
    begin = progress or (lambda _: ignore)
    seen = begin(sum(source.size for source in sources))
    try:
        return _merge(catalog, sources, processes(jobs), seen)
    except Overlap as error:
        for source in sources:
            if not source.lasts:
                raise MxError(
                    f"{source.shown}: cannot be read once more, and {error}: name a file instead"
                ) from None
        needed = _needed(catalog, sources)
        return _merge(catalog, needed, processes(jobs), ignore)


def _merge(
    catalog: Catalog, sources: list[Source], jobs: int, seen: Callable[[int], None]
) -> Merged:
    groups = [sources[at : at + _GROUP] for at in range(0, len(sources), _GROUP)]
    if jobs == 1 or len(groups) == 1:
        return _merge_group(catalog, sources, seen)
    tasks = ((catalog, group) for group in groups)
    parts: Iterator[Merged] = (
        part for _, part in spread(_merge_group, tasks, min(jobs, len(groups)))
    )
    whole = next(parts)
    for part in parts:
        whole = _both(whole, part)

    return whole


def _merge_group(
    catalog: Catalog, sources: list[Source], seen: Callable[[int], None] = ignore
) -> Merged:
    first, *others = sources
    whole = _read(catalog, first, seen)
    for source in others:
        whole = _both(whole, _read(catalog, source, seen))
    return whole


def _both(some: Merged, others: Merged) -> Merged:
    """Two of them merged; both are used up."""
    mine, theirs = some.saved, others.saved
    if (mine.since, mine.until) != (theirs.since, theirs.until):
        raise MxError(
            f"{some.first.shown} is of {_time(mine)} and {others.first.shown} of {_time(theirs)}: "
            "make all of them with the same --since, --until and --at"
        )
    mine.state.merge(theirs.state)
    saved = mine._replace(short=mine.short or theirs.short)
    return Merged(saved, some.first, some.short + others.short)


def _time(saved: SavedState) -> str:
    since, until = saved.since, saved.until
    told = [f"since {since}"] * bool(since) + [f"until {until}"] * bool(until)
    return "the time " + " ".join(told) if told else "all time"


def _read(catalog: Catalog, source: Source, seen: Callable[[int], None] = ignore) -> Merged:
    try:
        saved = saved_state.load(catalog, contents(source))
    except (Unreadable, BadSnapshot) as error:
        raise MxError(f"{source.shown}: {error}") from None
    seen(source.size)
    return Merged(saved, source, [source] if saved.short else [])


def _needed(catalog: Catalog, sources: list[Source]) -> list[Source]:
    """The files without those that another one holds all events of.

    :raises MxError: two that are left have events in common.
    """
    states = [(source, _read(catalog, source).saved.state) for source in sources]
    # Of two that hold the same events the one that was made later knows who is gone by now.
    states.sort(key=lambda each: (-_met(each[1]), -each[1].gone))
    kept: list[Source] = []
    holders: dict[str, list[tuple[Source, State]]] = {}
    for source, state in states:
        proc = next(iter(state.books), None)
        if any(other.holds(state) for _, other in holders.get(proc or "", [])):
            continue
        for proc, book in state.books.items():
            for other, theirs in holders.get(proc, []):
                _check_apart(proc, source, book, other, theirs.books[proc])
            holders.setdefault(proc, []).append((source, state))
        kept.append(source)
    return kept


def _met(state: State) -> int:
    return state.logged - state.lost


def _check_apart(proc: str, source: Source, book: Book, other: Source, theirs: Book) -> None:
    if book.joined(theirs) is None:
        raise MxError(
            f"{other.shown} and {source.shown} hold some of the same events of process {proc}, and "
            "neither holds all of the other's, so what they have in common cannot be told apart: "
            "fold the logs again, each in one state alone"
        )
