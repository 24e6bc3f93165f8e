"""What the arguments of `replay` and `check` name: sources.

A source is one file, or standard input. Directories give the segments and the snapshot that lie
in them, plain or compressed, and nothing else.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from mx_log.files import SNAPSHOT_NAME, SegmentName, is_ours, parse_segment_name
from mx_log.locks import NotRegular, open_regular

from ..config import resolve_directory
from ..directory.generations import Generations
from ..errors import MxError, UsageError

STDIN = "-"

#: How an address begins.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

#: Suffixes of compressed files.
_PACKED = (".gz", ".zst", ".xz", ".bz2")

#: How far lines of ours shrink when they are packed.
_PACKING = 10

#: A file that was named is a snapshot when its name ends like this.
_SNAPSHOT_SUFFIX = ".snapshot"


def shown(path: str) -> str:
    """A path as text that any terminal and JSON can take."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class Unreadable(MxError):
    """A source cannot be read, or not to its end. ``str()`` says why."""

    def __init__(self, why: str, *, ours: bool = True, vanished: bool = False) -> None:
        super().__init__(why)
        #: False for what only bears a segment's name (a link, a FIFO, a directory).
        self.ours = ours
        #: There was no such file any more.
        self.vanished = vanished


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

    @property
    def shown(self) -> str:
        """The path as text that any terminal and JSON can take."""
        path = "standard input" if self.path == STDIN else self.path
        return shown(f"{path}:{self.member}" if self.member else path)

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
        return self.segment is not None and not self.packed


@dataclass
class Found:
    """All sources of a command, in the order in which they are read."""

    sources: list[Source] = field(default_factory=list)
    snapshots: list[Source] = field(default_factory=list)
    #: Directories that were named, whose new segments belong to the sources as well.
    directories: list[str] = field(default_factory=list)
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

    def covers(self, source: Source) -> bool:
        """Whether a snapshot beside a segment stands for it."""
        return source.segment is not None and any(
            source.segment.n <= segments.get(source.proc, -1) and _directory(source) == directory
            for directory, segments in self.covered.items()
        )


def _directory(source: Source) -> str:
    return os.path.realpath(os.path.dirname(source.path))


# --------------------------------------------------------------------------------------
# Names


def find(logs: Iterable[str]) -> Found:
    """Resolve the arguments: directories, files, patterns, ``-``; none is the directory of the
    environment.

    A path that exists is never taken for a pattern. Raises `UsageError` for one that names
    nothing, `MxError` for a directory that cannot be listed.
    """
    found = Found()
    sources: dict[str, Source] = {}
    snapshots: dict[str, Source] = {}
    for log in list(logs) or [default_directory()]:
        found.arguments.append(log)
        for path in _matching(log):
            if path == STDIN:
                given = [Source(STDIN)]
            elif os.path.isdir(path):
                found.directories.append(path)
                found.generations.note(path)
                given = list(ours_in(path))
            else:
                given = [_named(path)]
            for source in (each._replace(argument=log) for each in given):
                if source.snapshot:
                    found.generations.note(os.path.dirname(source.path) or os.curdir)
                    snapshots.setdefault(os.path.realpath(source.path), source)
                else:
                    sources.setdefault(os.path.abspath(source.path), source)
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


def _matching(log: str) -> list[str]:
    if log == STDIN:
        return [log]
    try:
        os.stat(log)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if not glob.has_magic(log):
            raise MxError(f"{log}: cannot be read: {error.strerror}") from None
    else:
        return [log]
    if glob.has_magic(log):
        matching = sorted(glob.glob(log, recursive=True))
        if not matching:
            raise UsageError(f"{log}: nothing matches this pattern")
        return matching
    if os.path.islink(log):
        raise UsageError(f"{log}: a symbolic link to nothing")
    if _ADDRESS.match(log):
        raise UsageError(f"{log}: addresses are not read; copy it first, or pipe it into -")
    raise UsageError(f"{log}: no such file or directory")


def _named(path: str) -> Source:
    bare, packed = _bare(os.path.basename(path))
    segment = parse_segment_name(bare)
    return Source(path, segment, packed, bare.endswith(_SNAPSHOT_SUFFIX), size=_size(path))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _bare(name: str) -> tuple[str, bool]:
    """A name without the suffix of a compressed file, and whether it had one."""
    for suffix in _PACKED:
        if name.endswith(suffix):
            return name.removesuffix(suffix), True
    return name, False


def ours_in(directory: str, *, must: bool = True) -> Iterator[Source]:
    """The segments and the snapshot in a directory.

    :raises MxError: it cannot be listed, and it ``must``.
    """
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                bare, packed = _bare(entry.name)
                segment, snapshot = parse_segment_name(bare), bare == SNAPSHOT_NAME
                if segment is None and not snapshot:
                    continue
                try:
                    size = entry.stat(follow_symlinks=False).st_size
                except OSError:
                    size = 0
                yield Source(entry.path, segment, packed, snapshot, listed=True, size=size)
    except OSError as error:
        if must:
            raise MxError(f"{directory}: cannot be listed: {error.strerror}") from None


def in_order(sources: Iterable[Source]) -> list[Source]:
    """Each process's segments by number, a plain one before its compressed twin; the rest
    after them as they were named."""

    def key(source: Source) -> tuple[bool, str, int, bool]:
        if source.segment is None:
            return True, "", 0, False
        return False, source.segment.proc, source.segment.n, source.packed

    return sorted(sources, key=key)


# --------------------------------------------------------------------------------------
# Descriptors


def open_source(source: Source) -> int:
    """Open a source that is a file, without ever blocking.

    Returns a descriptor that the caller closes. Raises `Unreadable`.
    """
    try:
        if source.listed:
            return open_regular(source.path)
        fd = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except NotRegular:
        raise _left_alone() from None
    except OSError as error:
        # A link is not followed, a socket cannot be opened at all.
        if source.listed and os.path.lexists(source.path) and not _is_regular(source.path):
            raise _left_alone() from None
        vanished = isinstance(error, FileNotFoundError)
        raise Unreadable(f"cannot be opened: {error.strerror}", vanished=vanished) from None
    if stat.S_ISREG(os.fstat(fd).st_mode) or _is_handed_down(source.path):
        return fd
    os.close(fd)
    raise Unreadable("is no regular file")


def _left_alone() -> Unreadable:
    return Unreadable("is no regular file, left alone", ours=False)


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True


def _is_handed_down(path: str) -> bool:
    """Whether a shell made the file for us, as in ``replay <(ssh host cat log)``."""
    return path == "/dev/stdin" or path.startswith(("/dev/fd/", "/proc/self/fd/"))
