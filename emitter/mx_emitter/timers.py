"""Timers: an event when a span starts, another when it ends, however it ends."""

from __future__ import annotations

import functools
import time
from _thread import get_ident
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, cast

from .context import load
from .log import warn_once
from .log.exceptions import describe
from .log.sink import sink
from .logger import log

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: What runs: its thread, when it began, and its load, if it is one.
_Span: TypeAlias = "tuple[int, float, load.Load | None]"


class Kind:
    """What a timer logs: its events, ``started`` None where it logs none, and its outcomes."""

    __slots__ = ("bad", "finished", "good", "started")

    def __init__(
        self, started: str | None, finished: str, good: str | None = None, bad: str | None = None
    ) -> None:
        self.started = started
        self.finished = finished
        self.good = good
        self.bad = bad


LOAD = Kind("load_started", "load_finished", "success", "error")
LOAD_PHASE = Kind("load_phase_started", "load_phase_finished")
ATTEMPT_PHASE = Kind("source_attempt_phase_started", "source_attempt_phase_finished", "ok", "error")
INSTALL_STEP = Kind("artifact_install_step_started", "artifact_install_step_finished")
#: A timer that we do not know.
CALL = Kind(None, "recorder_called")


class Timer:
    """A context manager, or a decorator, that times its body; what it yields is itself.

    ``seconds`` is the duration after the exit, whether metrics are on or off. What the body raised
    passes through, and goes on the end event. A timer may be used again, also within itself and
    by several threads; to leave one that was not entered does nothing. No method raises.
    """

    __slots__ = ("_fields", "_kind", "_spans", "seconds")

    def __init__(self, kind: Kind, fields: dict[str, Any]) -> None:
        """``fields`` go on both events."""
        self.seconds = 0.0
        self._kind = kind
        self._fields = fields
        self._spans: list[_Span] = []  # those that run

    def with_fields(self, fields: dict[str, Any], /) -> Timer:
        """The timer, whose events carry ``fields``, too."""
        self._fields = {**self._fields, **fields}
        return self

    def __enter__(self) -> Timer:
        try:
            started = self._kind.started
            if started is not None and not sink.off:
                log.log_fields("info", started, self._fields.copy())
            self._spans.append((get_ident(), time.perf_counter(), None))
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        spans = self._spans
        span = None
        try:
            now = time.perf_counter()
            if len(spans) > 1:
                span = self._find_span()
                spans.remove(span)
            elif spans:
                span = spans.pop()
            else:
                return
            self.seconds = now - span[1]
            if span[2] is not None:
                self._finish_load(span[2], error)
            elif not sink.off:
                self._finish(error)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)
            if span is None and spans:
                span = spans[-1]
                del spans[-1]
            if span is not None and span[2] is not None:
                span[2].running = False

    def __call__(self, function: _Function) -> _Function:
        """Time each call of ``function``."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self._kind, self._fields):
                return function(*args, **kwargs)

        return cast(_Function, timed)

    def _finish(self, error: BaseException | None) -> None:
        """Log the end of a span."""
        kind = self._kind
        fields = self._fields.copy()
        if kind.good is not None:
            fields["outcome"] = kind.good if error is None else kind.bad
        fields["seconds"] = self.seconds
        if error is not None:
            fields.update(describe(error))
        log.log_fields("info", kind.finished, fields)

    def _finish_load(self, of_load: load.Load, error: BaseException | None) -> None:
        before = None
        try:
            before = load.resume(of_load)  # the end may come in another context than the start
            if not sink.off:
                self._finish(error)
        finally:
            of_load.running = False
            load.end(of_load, before)

    def _find_span(self) -> _Span:
        """Of several spans the one that ends: the last of this thread and load, else the last."""
        thread, here = get_ident(), load.of_context()
        for span in self._spans[::-1]:
            if span[0] == thread and span[2] in (None, here):
                return span
        return self._spans[-1]


class LoadTimer(Timer):
    """The timer of a load: its body's events carry the load's id, and so do its own two."""

    __slots__ = ()

    def __enter__(self) -> Timer:
        if sink.off:
            return Timer.__enter__(self)
        running = None
        try:
            sink.ask_torch()
            running = load.Load()
            load.begin(running)
            log.log_fields("info", "load_started", self._fields.copy())
            self._spans.append((get_ident(), time.perf_counter(), running))
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)
            if running is not None:
                running.running = False
        except BaseException as error:  # of a signal handler: the body will not run
            if running is not None:
                if all(span[2] is not running for span in self._spans):
                    self._spans.append((get_ident(), time.perf_counter(), running))
                self.__exit__(type(error), error, None)
            raise
        return self


class NoTimer(Timer):
    """Times and logs nothing: for where there is no room to make one of the others."""

    __slots__ = ()

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __call__(self, function: _Function) -> _Function:
        return function
