"""What a log says of one load, as values: the one source of all that shows a load.

A duration is what an event says, in seconds by a monotonic clock. A position (``at``) is in seconds
after the load began, by the timestamps. Where the two disagree, since somebody set the clock,
durations are right, and the load is marked. What no event says is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
from msgspec import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_moments = msgspec.json.Decoder(list[datetime]).decode

#: What became of a load: `Load.outcome`.
OUTCOMES = {
    "success": "it ended well",
    "error": "it ended in an exception",
    "killed": "it never ended, and its process is gone",
    "running": "it has not ended, and its process lives",
    "unknown": "the log does not say: it is a copy, whose process may live, or the end is lost",
}


class Process(Struct, frozen=True, kw_only=True, gc=False):
    """The process that logged, as its headers say; a log that lost them says the id alone."""

    proc: str
    pod: str | None = None
    pod_uid: str | None = None
    namespace: str | None = None
    node: str | None = None
    hostname: str | None = None
    #: Release of the client.
    version: str | None = None
    #: What the engine says of itself, by field: ``worker_id``, ``engine_version``, ...
    identity: dict[str, Any] = {}

    @property
    def place(self) -> str:
        """The pod, else the host, else the process: what a person finds it by."""
        return self.pod or self.hostname or self.proc


class Span(Struct, frozen=True, kw_only=True, gc=False):
    """A phase or a step."""

    name: str
    at: float
    #: None: it never ended.
    seconds: float | None
    error_type: str | None = None
    error: str | None = None


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt at one source, from its first event to its last."""

    policy: str
    #: ``source_worker_id``; None where no event says it, or more than one attempt may be meant.
    peer: str | None
    #: ``result`` of ``source_attempted``; None where there is none.
    result: str | None
    at: float
    #: None: it never ended.
    seconds: float | None
    phases: tuple[Span, ...] = ()
    #: Of the phase that failed.
    error_type: str | None = None
    error: str | None = None
    #: ``kind`` of each ``nixl_failed`` within it.
    failures: tuple[str, ...] = ()
    #: ``result`` of its ``nixl_received``: ``complete`` or ``partial``.
    received: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the weights came from it."""
        return self.result == "success"


class Candidate(Struct, frozen=True, gc=False):
    """A peer that could be chosen, with the load that it published."""

    peer: str
    load: float | None


class Selection(Struct, frozen=True, kw_only=True, gc=False):
    """One look for sources: how many there were, and in which order they were to be tried."""

    policy: str
    at: float
    #: ``result`` of ``sources_listed``.
    result: str | None = None
    #: stage -> candidates left
    counts: dict[str, float] = {}
    #: How long putting them in order took.
    seconds: float | None = None
    candidates: tuple[Candidate, ...] = ()


class Artifact(Struct, frozen=True, kw_only=True, gc=False):
    """An archive of compile caches that was installed."""

    artifact: str
    archive: str
    at: float
    steps: tuple[Span, ...] = ()
    size: float | None = None


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """A captured record of the client's own log."""

    at: float
    level: str
    logger: str | None = None
    message: str | None = None
    error_type: str | None = None
    error: str | None = None


class Load(Struct, frozen=True, kw_only=True, gc=False):
    """One load of a model by one rank."""

    #: None for a load that was observed as a whole, by a duration alone.
    load_id: str | None
    process: Process
    rank: int | None
    engine: str
    model: str | None
    role: str
    scheme: str
    #: Timestamps as lines have them. ``ended`` is None unless it ended.
    began: str
    ended: str | None
    #: Of the newest event of it.
    last: str
    #: None unless it ended.
    seconds: float | None
    #: One of `OUTCOMES`.
    outcome: str
    error_type: str | None = None
    error: str | None = None
    #: Of the load, in order of time; there is time between them that none covers.
    phases: tuple[Span, ...] = ()
    selections: tuple[Selection, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    records: tuple[Record, ...] = ()
    #: Its other events, by name: how many.
    others: dict[str, int] = {}
    #: Numbers of its first and last event in its process.
    first_seq: int
    last_seq: int
    #: Events between them that are missing from the log.
    missing: int = 0
    #: Timestamps and durations disagree.
    clock_stepped: bool = False
    #: Seconds by which the timestamp of its newest event is ahead of what durations say.
    ahead: float = 0.0

    @property
    def done(self) -> bool:
        """It ended, well or not."""
        return self.outcome in ("success", "error")

    @property
    def elapsed(self) -> float:
        """Seconds that the log tells of: all of a load that ended, else up to the newest event."""
        if self.seconds is not None:
            return self.seconds
        passed = (microseconds(self.last) - microseconds(self.began)) / 1e6
        return max(0.0, passed - self.ahead)

    @property
    def open_phase(self) -> Span | None:
        """The phase that it is in, or was in when the log ended."""
        running = [span for span in self.phases if span.seconds is None]
        return running[-1] if running else None

    @property
    def open_attempt(self) -> Attempt | None:
        """The attempt that never ended."""
        running = [attempt for attempt in self.attempts if attempt.seconds is None]
        return running[-1] if running else None


def moments(timestamps: Sequence[str]) -> list[datetime]:
    """Timestamps of lines as times of UTC, many at once, which takes half as long as one by one."""
    try:
        return _moments('["' + '","'.join(timestamps) + '"]')
    except msgspec.ValidationError:
        return [*map(moment, timestamps)]


def moment(timestamp: str) -> datetime:
    """A timestamp of a line as a time of UTC. The 31st of a month that has 30 is the day after the
    30th."""
    first = datetime.fromisoformat(f"{timestamp[:8]}01{timestamp[10:26]}+00:00")
    return first + timedelta(days=int(timestamp[8:10]) - 1)


def microseconds(timestamp: str) -> int:
    """A timestamp of a line as microseconds since 1970."""
    since = moments([timestamp])[0] - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as a timestamp of a line."""
    return _text(_EPOCH + timedelta(seconds=seconds))


def earlier(timestamp: str, seconds: float) -> str:
    """The timestamp so many seconds before another one."""
    try:
        then = moment(timestamp) - timedelta(seconds=seconds)
    except OverflowError:
        then = datetime.min
    return _text(then)


def later(timestamp: str, seconds: float) -> str:
    """The timestamp so many seconds after another one."""
    try:
        then = moment(timestamp) + timedelta(seconds=seconds)
    except OverflowError:
        then = datetime.max
    return _text(then)


def _text(then: datetime) -> str:
    return then.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
