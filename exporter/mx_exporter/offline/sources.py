"""What the arguments of `replay` and `check` name: sources.

A source is one file, or standard input. Directories give the segments and the snapshot that lie
in them, plain or compressed, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from mx_log.files import SNAPSHOT_NAME, SegmentName, is_ours, parse_segment_name

from ..config import resolve_directory
from ..directory.generations import Generations
from ..errors import MxError, UsageError
from .local import LOCAL, STANDARD_INPUT, STDIN
from .remote import Remote
from .stores import ADDRESS, Entry, Store, Stream, shown

#: Suffixes of compressed files.
_PACKED = (".gz", ".zst", ".xz", ".bz2")

#: How far lines of ours shrink when they are packed.
_PACKING = 10

#: A file that was named is a snapshot when its name ends like this.
_SNAPSHOT_SUFFIX = ".snapshot"

#: An address of this machine.
_FILE = "file://"


class Source(NamedTuple):
    """One file to read, or standard input."""

    path: str
    #: Its name taken apart when it is a segment's; then it holds our lines as they are.
    segment: SegmentName | None = None
    packed: bool = False
    #: It holds no lines but a state (`snapshot`).
    snapshot: bool = False
    #: Found in a directory that was named: never followed when it is a link.
    listed: bool = False
    #: Bytes in the file, 0 when that cannot be told.
    size: int = 0
    #: The argument that named it.
    argument: str = ""
    #: Its name in the archive that it is in; ``path`` is the archive's then.
    member: str = ""
    #: Where it lies.
    store: Store = LOCAL

    @property
    def name(self) -> str:
        """What tells it from all other sources, and the files of an archive apart."""
        return f"{self.path}:{self.member}" if self.member else self.path

    @property
    def shown(self) -> str:
        """The path as text that any terminal and JSON can take."""
        path = "standard input" if self.store == STANDARD_INPUT else shown(self.path)
        return f"{path}:{shown(self.member)}" if self.member else path

    @property
    def lasts(self) -> bool:
        """Whether it can be read more than once."""
        return self.store.lasts(self.path)

    def opened(self) -> Stream:
        """Open it. Raises `Unreadable`."""
        return self.store.open(self.path, listed=self.listed)

    def within(self, member: str) -> Source:
        """A file of the archive that this is."""
        bare, packed = _bare(os.path.basename(member.rpartition(":")[2]))
        segment = parse_segment_name(bare)
        return Source(
            self.path,
            segment,
            packed,
            bare.endswith(_SNAPSHOT_SUFFIX),
            argument=self.argument,
            member=member,
            store=self.store,
        )

    @property
    def passed_over(self) -> bool:
        """Whether a directory that it lies in does not count it among its logs: a lock, a segment
        or a snapshot in the making, a bad one."""
        name = os.path.basename(self.member.rpartition(":")[2])
        return self.segment is None and is_ours(name) and name != SNAPSHOT_NAME

    @property
    def proc(self) -> str:
        """The process that its name says, empty when it says none."""
        return self.segment.proc if self.segment else ""

    @property
    def weight(self) -> int:
        """About how many bytes there are to fold."""
        return self.size * _PACKING if self.packed else self.size

    @property
    def lockable(self) -> bool:
        """Whether a living writer would hold a lock on it."""
        return self.store.live and self.segment is not None and not self.packed


class Directory(NamedTuple):
    """A directory that was named."""

    path: str
    store: Store = LOCAL


@dataclass
class Found:
    """All sources of a command, in the order in which they are read."""

    sources: list[Source] = field(default_factory=list)
    snapshots: list[Source] = field(default_factory=list)
    #: Directories that were named, whose new segments belong to the sources as well.
    directories: list[Directory] = field(default_factory=list)
    #: What was named, in order.
    arguments: list[str] = field(default_factory=list)
    #: The snapshots of all directories that may be compacted meanwhile.
    generations: Generations = field(default_factory=Generations)
    #: Directory of a snapshot -> process -> number of the last segment that it stands for.
    covered: dict[str, dict[str, int]] = field(default_factory=dict)

    def cover(self, snapshot: Source, segments: dict[str, int]) -> None:
        """Leave out what a snapshot stands for of the directory it lies in."""
        covered = self.covered.setdefault(_directory(snapshot), {})
        for proc, n in segments.items():
            covered[proc] = max(n, covered.get(proc, -1))
        self.sources = [source for source in self.sources if not self.covers(source)]

    def covered_here(self) -> set[str]:
        """Directories of this machine whose segments a snapshot stands for."""
        return {
            _directory(each) for each in self.snapshots if each.store.live
        } & self.covered.keys()

    def covers(self, source: Source) -> bool:
        """Whether a snapshot beside a segment stands for it."""
        return source.segment is not None and any(
            source.segment.n <= segments.get(source.proc, -1) and _directory(source) == directory
            for directory, segments in self.covered.items()
        )


def _directory(source: Source) -> str:
    return source.store.parent(source.path)


# --------------------------------------------------------------------------------------
# Names


def find(logs: Iterable[str]) -> Found:
    """Resolve the arguments: directories, files, patterns, addresses, ``-``; none is the directory
    of the environment.

    A path that exists is never taken for a pattern. Raises `UsageError` for one that names
    nothing, `MxError` for a directory that cannot be listed.
    """
    found = Found()
    sources: dict[str, Source] = {}
    snapshots: dict[str, Source] = {}
    for log in map(_without_scheme, list(logs) or [default_directory()]):
        found.arguments.append(log)
        store, entries = _matching(log)
        for entry in entries:
            if entry.is_directory:
                directory = Directory(entry.path, store)
                found.directories.append(directory)
                if store.live:
                    found.generations.note(entry.path)
                given = list(ours_in(directory))
            else:
                given = [_named(store, entry)]
            for source in (each._replace(argument=log) for each in given):
                if source.snapshot:
                    if store.live:
                        found.generations.note(os.path.dirname(source.path) or os.curdir)
                    snapshots.setdefault(store.real(source.path), source)
                else:
                    sources.setdefault(store.identity(source.path), source)
    found.sources = in_order(sources.values())
    found.snapshots = list(snapshots.values())
    return found


def default_directory() -> str:
    """The directory of the environment, by the rule that `serve` follows.

    :raises UsageError: it is not there, or may not be used.
    """
    directory = resolve_directory()
    objection = directory.objection()
    if objection:
        raise UsageError(f"{directory.path}: {objection}; name a directory or set MX_METRICS_DIR")
    if not os.path.isdir(directory.path):
        raise UsageError(
            f"{directory.path}: no such directory; name the logs or set MX_METRICS_DIR"
        )
    return directory.path


def _without_scheme(log: str) -> str:
    """An address of this machine as a path."""
    return log[len(_FILE) :] if log.lower().startswith(_FILE) else log


def _matching(log: str) -> tuple[Store, list[Entry]]:
    """What an argument names, and where that lies."""
    if log == STDIN:
        return STANDARD_INPUT, STANDARD_INPUT.matching(log)
    if not ADDRESS.match(log) or os.path.lexists(log):
        return LOCAL, LOCAL.matching(log)
    store = Remote.of(log)
    return store, store.matching(log)


def _named(store: Store, entry: Entry) -> Source:
    bare, packed = _bare(entry.name)
    segment = parse_segment_name(bare)
    snapshot = bare.endswith(_SNAPSHOT_SUFFIX)
    return Source(entry.path, segment, packed, snapshot, size=entry.size, store=store)


def _bare(name: str) -> tuple[str, bool]:
    """A name without the suffix of a compressed file, and whether it had one."""
    for suffix in _PACKED:
        if name.endswith(suffix):
            return name.removesuffix(suffix), True
    return name, False


def ours_in(directory: Directory, *, must: bool = True) -> Iterator[Source]:
    """The segments and the snapshot in a directory.

    :raises MxError: it cannot be listed, and it ``must``.
    """
    path, store = directory
    try:
        for entry in store.entries(path):
            bare, packed = _bare(entry.name)
            segment, snapshot = parse_segment_name(bare), bare == SNAPSHOT_NAME
            if segment is not None or snapshot:
                yield Source(
                    entry.path,
                    segment,
                    packed,
                    snapshot,
                    listed=True,
                    size=entry.size,
                    store=store,
                )
    except MxError:
        if must:
            raise


def in_order(sources: Iterable[Source]) -> list[Source]:
    """Each process's segments by number, a plain one before its compressed twin; the rest
    after them as they were named."""

    def key(source: Source) -> tuple[bool, str, int, bool]:
        if source.segment is None:
            return True, "", 0, False
        return False, source.segment.proc, source.segment.n, source.packed

    return sorted(sources, key=key)
