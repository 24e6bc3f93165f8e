"""The switch between callers and the log of this process: off, not decided yet, or a stream.

One sink serves the process. It is what the structlog logger wraps.
"""

from __future__ import annotations

import os
from os import getpid

from mx_log.values import is_true

from ..context import load
from ..context.rank import as_rank
from ..settings import SWITCH, Settings, read_settings
from . import warn_once
from .encode import text
from .stream import Stream


class Sink:
    """Where events go.

    ``off`` is the one test that a recorder makes when metrics are off. The first event decides by
    the environment whether there shall be a stream.
    """

    def __init__(self) -> None:
        self.off = False  # or not decided yet, as long as there is no stream
        self.stream: Stream | None = None
        self._settings: Settings | None = None  # once metrics are on
        self._rank: int | None = None  # what the engine said
        self._watching_forks = False
        self._forks = 0  # how many generations of forks this process is away from the first

    def msg(self, event: bytes, fields: bytes, level: bytes) -> None:
        """Log an event: its name as JSON, its own fields as the inside of a JSON object, and its
        level. Never raises an Exception, but for a RecursionError where it cannot do anything."""
        stream = self.stream
        # A child of a C library's fork was not announced to Python.
        if stream is None or self.off or stream.pid != getpid():
            stream = self._start()
        if stream is not None:
            stream.emit(event, fields, level)

    debug = info = warning = error = critical = msg
    warn = exception = fatal = log = msg

    def drop(self, reason: str) -> None:
        """Count an event that could not be logged at all. Never raises an Exception."""
        try:
            stream = self._start()
            if stream is not None:
                stream.drop(reason)
        except Exception:
            warn_once.uncounted += (reason,)

    def enable(self, rank: object = None) -> bool:
        """Open the log, if the environment says so; whether metrics are on. Never raises."""
        try:
            if rank is not None:
                self._take_rank(rank)
            # The environment may have changed since it was read. A stream that was switched off
            # is kept: it goes on where it was once it is switched on again.
            self.off = self.stream is not None and not is_true(os.environ.get(SWITCH, ""))
            stream = self._start()
            if stream is None:
                return False
            stream.look_up_rank(self._rank)
            stream.open()
        except Exception as error:
            warn_once.say("unexpected", f"metrics could not be enabled: {text(error)}")
        return self.stream is not None and not self.off

    def ask_torch(self) -> None:
        """Look for the rank again: torch.distributed may have been initialised since."""
        if self.stream is not None:
            self.stream.ask_torch()

    def _start(self) -> Stream | None:
        """The stream; decides by the environment, at first, whether there shall be one."""
        if self.off:
            return None
        if self.stream is not None:
            if self.stream.pid == getpid():
                return self.stream
            self._after_fork()
        warn_once.need_room()
        settings = self._settings or read_settings()
        for problem in settings.problems:
            warn_once.say(problem, problem)
        if not settings.enabled:
            self.off = True
            return None
        self._settings = settings
        if not self._watching_forks:
            self._watching_forks = True
            os.register_at_fork(after_in_child=self._after_fork)
        # Threads may race here, and a signal handler may come between, or fork: one stream wins,
        # and never one that a parent drew. No call stands between the test and the assignment, so
        # nothing can come between those.
        while self.stream is None:
            forks = self._forks
            stream = Stream(settings, self._rank)
            if self._forks == forks and self.stream is None:
                self.stream = stream
        return self.stream

    def _take_rank(self, rank: object) -> None:
        said = as_rank(rank)
        if said is None:
            given = text(rank)[:80]
            warn_once.say("rank", f"enable_metrics(rank=...) was given {given}, which is no rank")
        else:
            self._rank = said

    def _after_fork(self) -> None:
        """The child draws a stream of its own, by its parent's settings, at its next event."""
        self._forks += 1
        load.forget()
        warn_once.uncounted.clear()  # the parent's events
        parents, self.stream = self.stream, None
        if parents is not None:
            parents.abandon()


#: The one sink of this process.
sink = Sink()
