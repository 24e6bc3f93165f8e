"""The switch between callers and the log of this process: off, not decided yet, or a stream.

One sink serves the process. It is what the structlog logger wraps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from mx_log.values import is_true
from mx_log.variables import ENABLED, OF_EMITTER, doubts

from ..context import load
from ..context.rank import as_rank
from ..settings import Settings, read_settings
from . import warn_once
from .encode import text
from .identity import said
from .stream import Stream


class Sink:
    """Where events go.

    ``off`` is the one test that a recorder makes when metrics are off. ``msg`` is ``Stream.emit``
    while there is a stream that is on, and before that what decides whether there shall be one.
    """

    def __init__(self) -> None:
        self.off = False  # or not decided yet, as long as there is no stream
        self.stream: Stream | None = None
        self.msg: Callable[[bytes, bytes, bytes], None] = self._first_event
        self._settings: Settings | None = None  # once metrics are on
        self._rank: int | None = None  # what the engine said
        self._identity: dict[str, str] = {}  # the same
        self._watching_forks = False
        self._forks = 0  # how many generations of forks this process is away from the first

    @property
    def info(self) -> Callable[[bytes, bytes, bytes], None]:
        """``msg``: structlog's own bound loggers call the method of the level, and the level is
        among what they are given."""
        return self.msg

    debug = warning = warn = error = exception = critical = fatal = log = info

    def drop(self, reason: str) -> None:
        """Count an event that could not be logged at all. Never raises an Exception."""
        try:
            stream = self._start()
            if stream is not None:
                stream.drop(reason)
        except Exception:
            warn_once.uncounted += (reason,)

    def enable(self, rank: object = None, identity: Mapping[str, object] | None = None) -> bool:
        """Open the log, if the environment says so; whether metrics are on. Never raises.

        ``identity`` holds further fields of headers.
        """
        try:
            if rank is not None:
                self._take_rank(rank)
            if identity:
                self._identity |= said(identity)
            # The environment may have changed since it was read. A stream that was switched off
            # is kept: it goes on where it was once it is switched on again.
            if self.stream is not None and not is_true(os.environ.get(ENABLED, "")):
                self.off = True
                self.msg = self._first_event
                return False
            self.off = False
            stream = self._start()
            if stream is None:
                return False
            stream.look_up_rank(self._rank)
            stream.identify(self._identity)
            stream.open()
        except Exception as error:
            warn_once.say("unexpected", f"metrics could not be enabled: {text(error)}")
        return self.stream is not None and not self.off

    def ask_torch(self) -> None:
        """Look for the rank again: torch.distributed may have been initialised since."""
        if self.stream is not None:
            self.stream.ask_torch()

    def _first_event(self, event: bytes, own: bytes, level: bytes) -> None:
        stream = self._start()
        if stream is not None:
            stream.emit(event, own, level)

    def _start(self) -> Stream | None:
        """The stream; decides by the environment, at first, whether there shall be one."""
        if self.off:
            return None
        if self.stream is not None and not self.stream.here[0]:
            self._after_fork()
        if self.stream is not None:
            self.msg = self.stream.emit
            return self.stream
        warn_once.need_room()
        settings = self._settings or read_settings()
        for problem in settings.problems:
            warn_once.say(problem, problem)
        if not settings.enabled:
            self.off = True
            return None
        first, self._settings = self._settings is None, settings
        if first:  # and never in a child that is forked meanwhile: an import may be under way
            self._say_doubts()
        if not self._watching_forks:
            self._watching_forks = True
            os.register_at_fork(after_in_child=self._after_fork)
        # Threads may race here, and a signal handler may come between, or fork: one stream wins,
        # and never one that a parent drew. No call stands between the test and the assignment, so
        # nothing can come between those.
        while self.stream is None:
            forks = self._forks
            stream = Stream(settings, self._rank, self._in_child)
            stream.identify(self._identity)
            if self._forks == forks and self.stream is None:
                self.stream = stream
        self.msg = self.stream.emit
        return self.stream

    def _say_doubts(self) -> None:
        with contextlib.suppress(Exception):  # close to the recursion limit
            for doubt in doubts(os.environ, OF_EMITTER):
                warn_once.say(doubt, doubt)

    def _take_rank(self, rank: object) -> None:
        said = as_rank(rank)
        if said is None:
            given = text(rank)[:80]
            warn_once.say("rank", f"enable_metrics(rank=...) was given {given}, which is no rank")
        else:
            self._rank = said

    def _in_child(self, event: bytes, own: bytes, level: bytes) -> None:
        """An event in the child of a fork that Python was not told of."""
        self._after_fork()
        self._first_event(event, own, level)

    def _after_fork(self) -> None:
        """The child draws a stream of its own, by its parent's settings, at its next event."""
        self._forks += 1
        load.forget()
        warn_once.uncounted.clear()  # the parent's events
        self.msg = self._first_event
        parents, self.stream = self.stream, None
        if parents is not None:
            parents.abandon()


#: The one sink of this process.
sink = Sink()
