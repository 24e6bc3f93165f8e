"""Timers: an event when a span starts, another when it ends, however it ends."""

from __future__ import annotations

import functools
import time
from _thread import get_ident
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, TypeVar, cast

from .context import load
from .log import warn_once
from .log.exceptions import describe
from .log.sink import sink
from .logger import log

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Frames that the beginning and the end of a load may need.
_FRAMES = 12


class Span:
    """One run of a timer's body: when and in which thread it began; its load, if it is one."""

    __slots__ = ("began", "load", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.load: load.Load | None = None
        self.began = time.perf_counter()


class Timer:
    """A context manager, or a decorator, that times its body; what it yields is itself.

    ``seconds`` is the duration after the exit, whether metrics are on or off. What the body raised
    passes through, and goes on the end event. A timer may be used again, also within itself and
    by several threads; to leave one that was not entered does nothing. No method raises.
    """

    __slots__ = ("_fields", "_spans", "seconds")

    #: Names of its events, None where it logs no start; its outcomes, None where it has none.
    started: ClassVar[str | None] = None
    finished: ClassVar[str]
    good: ClassVar[str | None] = None
    bad: ClassVar[str | None] = None

    def __init__(self, /, **fields: object) -> None:
        """``fields`` go on both events."""
        self.seconds = 0.0
        self._fields = fields
        self._spans: list[Span] = []  # those that run

    def __enter__(self) -> Timer:
        try:
            span = Span()
            self._spans.append(span)
            if not sink.off:
                self._start(span)
            span.began = time.perf_counter()
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)
        except BaseException as error:  # of a signal handler: the body will not run
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        span = None
        try:
            now = time.perf_counter()
            span = self._take_span()
            if span is not None:
                self.seconds = now - span.began
                if not sink.off:
                    self._finish(span, error)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)
        finally:
            if span is not None and span.load is not None:
                span.load.running = False

    def __call__(self, function: _Function) -> _Function:
        """Time each call of ``function``."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with type(self)(**self._fields):
                return function(*args, **kwargs)

        return cast(_Function, timed)

    def _start(self, span: Span) -> None:  # noqa: ARG002 - for loads
        """Log the start of a span."""
        if self.started is not None:
            log.info(self.started, **self._fields)

    def _finish(self, span: Span, error: BaseException | None) -> None:  # noqa: ARG002 - for loads
        """Log the end of a span."""
        fields = self._fields.copy()
        if self.good is not None:
            fields["outcome"] = self.good if error is None else self.bad
        fields["seconds"] = self.seconds
        if error is not None:
            fields.update(describe(error))
        log.info(self.finished, **fields)

    def _take_span(self) -> Span | None:
        """Take the span that ends: the last of this thread, else the last."""
        found = None
        for span in self._spans[::-1]:
            if self._is_here(span):
                found = span
                break
            found = found or span
        if found is not None:
            self._spans.remove(found)
        return found

    def _is_here(self, span: Span) -> bool:
        return span.thread == get_ident()


class LoadTimer(Timer):
    """The timer of a load: its body's events carry the load's id, and so do its own two."""

    __slots__ = ()

    started = "load_started"
    finished = "load_finished"
    good = "success"
    bad = "error"

    def _start(self, span: Span) -> None:
        # Close to the recursion limit nothing is begun that could not be ended.
        warn_once.need_room(_FRAMES)
        sink.ask_torch()
        span.load = load.Load()
        load.begin(span.load)
        Timer._start(self, span)

    def _finish(self, span: Span, error: BaseException | None) -> None:
        if span.load is None:
            return Timer._finish(self, span, error)
        before = load.resume(span.load)  # the end may come in another context than the start
        try:
            Timer._finish(self, span, error)
        finally:
            load.end(span.load, before)

    def _is_here(self, span: Span) -> bool:
        return span.load is None or span.load is load.of_context()


class LoadPhaseTimer(Timer):
    """The timer of a load's phase."""

    __slots__ = ()

    started = "load_phase_started"
    finished = "load_phase_finished"


class AttemptPhaseTimer(Timer):
    """The timer of a source attempt's phase."""

    __slots__ = ()

    started = "source_attempt_phase_started"
    finished = "source_attempt_phase_finished"
    good = "ok"
    bad = "error"


class InstallStepTimer(Timer):
    """The timer of a step of installing an archive."""

    __slots__ = ()

    started = "artifact_install_step_started"
    finished = "artifact_install_step_finished"


class CallTimer(Timer):
    """The timer of a call that we do not know: logs it when its body ends."""

    __slots__ = ()

    finished = "recorder_called"


class NoTimer(Timer):
    """Times and logs nothing: for where there is no room to make one of the others."""

    __slots__ = ()

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __call__(self, function: _Function) -> _Function:
        return function
