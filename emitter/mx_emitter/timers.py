"""Timers: an event when a span starts, another when it ends, however it ends."""

from __future__ import annotations

import contextvars
import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from .context import load
from .log import warn_once
from .log.exceptions import describe
from .log.sink import sink

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Timer = TypeVar("_Timer", bound="Timer")


class Span:
    """What a timer logs: event names as JSON, and its outcomes; None where it logs none."""

    __slots__ = ("bad", "finished", "good", "started")

    def __init__(
        self, started: bytes | None, finished: bytes, good: str | None, bad: str | None
    ) -> None:
        self.started = started
        self.finished = finished
        self.good = good
        self.bad = bad


class Timer:
    """A context manager, or a decorator, that times its body; what it yields is itself.

    ``seconds`` is the duration after the exit, whether metrics are on or off. What the body raised
    passes through, and goes on the end event.
    """

    __slots__ = ("_began", "_fields", "_span", "seconds")

    seconds: float
    _span: Span
    _fields: dict[str, Any]
    _began: float

    def of(self: _Timer, span: Span, fields: dict[str, Any]) -> _Timer:
        """Make it one of ``span``; ``fields`` go on both events.

        No ``__init__``: that would be as slow as the rest of the making. The timers in `making`
        do without this call, too.
        """
        self._span = span
        self._fields = fields
        self.seconds = self._began = 0.0
        return self

    def __enter__(self) -> Timer:
        if self._span.started is not None and not sink.off:
            try:
                emit = sink.emit  # see making
                emit(self._span.started, self._fields)
            except Exception:
                warn_once.uncounted += ("unencodable",)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        if sink.off:
            return
        try:
            span = self._span
            fields = self._fields.copy()
            if span.good is not None:
                fields["outcome"] = span.good if error is None else span.bad
            fields["seconds"] = self.seconds
            if error is not None:
                fields.update(describe(error))
            emit = sink.emit
            emit(span.finished, fields)
        except Exception:
            warn_once.uncounted += ("unencodable",)

    def __call__(self, function: _Function) -> _Function:
        """Time each call of ``function``."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with type(self)().of(self._span, self._fields):
                return function(*args, **kwargs)

        return cast(_Function, timed)


class LoadTimer(Timer):
    """The timer of a load: its body's events carry the load's id, and so do its own two."""

    __slots__ = ("_load", "_token")

    _token: contextvars.Token[bytes | None] | None

    def __init__(self) -> None:
        # Close to the recursion limit this raises, where the timer is made. Else what is called
        # below would, and leave a load running.
        self._token = None

    def __enter__(self) -> Timer:
        self._token = None
        if not sink.off:
            try:
                sink.ask_torch()
                self._load = load.new_mark()
                self._token = load.begin(self._load)
            except Exception:  # its events go without an id
                pass
        return Timer.__enter__(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            load.mark.set(self._load)  # the end may come in another context than the start
        Timer.__exit__(self, kind, error, trace)
        if self._token is not None:
            load.end(self._load, self._token)
