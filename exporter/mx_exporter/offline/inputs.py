"""Snapshots among the logs: the states that a replay or a check goes on from.

A directory that an exporter compacted is its snapshot and the segments that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..core.catalog import Catalog
from ..core.snapshot_codec import Snapshot, load
from ..core.snapshot_seal import BadSnapshot, check_size
from ..core.state import State
from ..errors import MxError
from .reader import archived_snapshots, blocks
from .sources import Found, Source, find
from .stores import Unreadable
from .writers import Writers, survey


@dataclass
class SnapshotInput:
    """A snapshot among the logs."""

    source: Source
    #: Empty when there is a problem.
    snapshot: Snapshot
    #: Why it cannot be used; empty when it can.
    problem: str = ""


class Inputs(NamedTuple):
    """All that the arguments of a command name, as it stands at one moment."""

    found: Found
    snapshots: list[SnapshotInput]
    writers: Writers


def find_inputs(catalog: Catalog, arguments: Iterable[str]) -> Inputs:
    """Resolve the arguments, read the snapshots, and tell which writers live.

    Raises `UsageError` and `MxError` as `find` does, `StartOver` when a directory was compacted
    meanwhile: between its snapshot and its listing something may be missing.
    """
    found = find(arguments)
    snapshots = _read_snapshots(catalog, found)
    writers = survey(found)
    found.generations.check()
    return Inputs(found, snapshots, writers)


def merge_snapshots(catalog: Catalog, snapshots: Iterable[SnapshotInput]) -> State:
    """The state of all snapshots together; they are used up.

    :raises MxError: two of them know the same process.
    """
    state = State(catalog)
    holders: dict[str, Source] = {}
    for given in snapshots:
        theirs = given.snapshot.state
        shared = sorted(holders.keys() & theirs.books.keys())
        if shared:
            more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
            raise MxError(
                f"{holders[shared[0]].shown} and {given.source.shown} both stand for process "
                f"{shared[0]}{more}, and what they have in common cannot be told apart: leave one "
                "of the two out (the older, if one is a later copy of the other)"
            )
        holders.update(dict.fromkeys(theirs.books, given.source))
        state.merge(theirs)
    return state


def compacted(snapshots: Iterable[SnapshotInput]) -> int:
    """How many events only a snapshot is left of; those that were lost before are none."""
    return sum(book.met for given in snapshots for book in given.snapshot.state.books.values())


def _read_snapshots(catalog: Catalog, found: Found) -> list[SnapshotInput]:
    """Read the snapshots; the segments that they stand for are sources no longer."""
    snapshots = []
    met: set[bytes] = set()
    for source, read in _all(found):
        try:
            data = read()
            given = SnapshotInput(source, load(catalog, data))
        except Unreadable as error:
            if error.vanished:
                found.generations.check()
            snapshots.append(SnapshotInput(source, Snapshot(State(catalog)), str(error)))
        except BadSnapshot as error:
            snapshots.append(SnapshotInput(source, Snapshot(State(catalog)), str(error)))
        else:
            if not source.member:
                found.cover(source, given.snapshot.segments)
            if data not in met:  # a copy of the same one
                snapshots.append(given)
            met.add(data)
    return snapshots


def _all(found: Found) -> Iterator[tuple[Source, Callable[[], bytes]]]:
    """The snapshots that were found or named, and those in archives, and how each is read."""
    for source in found.snapshots:
        yield source, partial(contents, source)
    for source in found.sources:
        if source.segment is None and source.lasts:
            try:
                for member, content in archived_snapshots(source):
                    yield member, partial(_whole, content)
            except Unreadable:
                pass  # which is said when its lines are read


def contents(source: Source) -> bytes:
    """The bytes of a snapshot, or of what is sealed as one, decompressed.

    :raises BadSnapshot: there are more than one has.
    :raises Unreadable: they cannot be read.
    """
    check_size(source.size)
    return _whole(blocks(source))


def _whole(content: Iterable[bytes]) -> bytes:
    found = bytearray()
    for block in content:
        found += block
        check_size(len(found))
    return bytes(found)
