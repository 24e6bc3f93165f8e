"""Where the log lies: the directory, and the names of the files in it that are ours."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

#: Used when ``MX_METRICS_DIR`` is unset or blank.
DEFAULT_DIRECTORY = "/tmp/mx-metrics"

#: Default of ``MX_METRICS_MAX_BYTES``: bound on our files in the directory.
DEFAULT_MAX_BYTES = 32 * 1024 * 1024

#: Exclusive ``flock`` of the exporter that owns the directory. Never removed.
LOCK_NAME = ".mx-metrics.lock"

#: Merged state of the segments that a compaction removed.
SNAPSHOT_NAME = "mx-metrics.snapshot"

#: A snapshot that could not be used, moved out of the way and kept.
BAD_SNAPSHOT_NAME = "mx-metrics.snapshot.bad"

#: What snapshots are called that are being made, or are bad.
_OTHER_SNAPSHOT = re.compile(
    r"(\.mx-metrics\.snapshot|\.?mx-metrics\.snapshot\.bad)(\.[1-9][0-9]{0,17})?", re.ASCII
)

_SEGMENT = re.compile(r"events-([0-9a-f]{12})-(0|[1-9][0-9]{0,17})\.jsonl", re.ASCII)


class SegmentName(NamedTuple):
    """A segment's file name, taken apart: ``events-<proc>-<n>.jsonl``."""

    proc: str
    n: int

    def __str__(self) -> str:
        return f"events-{self.proc}-{self.n}.jsonl"

    @property
    def temporary(self) -> str:
        """The dot name under which a segment is made before anyone may see it."""
        return f".{self}"


def parse_segment_name(name: str) -> SegmentName | None:
    """Take a file name apart, or return None when it is not a segment's."""
    match = _SEGMENT.fullmatch(name)
    return SegmentName(match[1], int(match[2])) if match else None


def numbered(name: str) -> Iterator[str]:
    """A name, and further ones, each for where those before it are taken by what cannot be
    replaced."""
    yield name
    for n in itertools.count(1):
        yield f"{name}.{n}"


def is_ours(name: str) -> bool:
    """Whether a file name in the directory is one of ours: segments, finished or in the
    making, the lock, the snapshot, its temporary file, a bad one. All else is left alone."""
    bare = name[1:] if name.startswith(".") else name
    if _SEGMENT.fullmatch(bare) or _OTHER_SNAPSHOT.fullmatch(name):
        return True
    return bare == SNAPSHOT_NAME or name == LOCK_NAME
