"""What stands before recorders and timers, so that no call of them raises.

Python checks none of their signatures: what it refuses would be raised into the load path. A call
that does not fit is logged as one of a recorder that we do not know.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from mx_log.schema import EVENTS, RESERVED_KEYS

from .log import warn_once
from .log.sink import sink
from .logger import log
from .processors import rename
from .timers import CALL, Kind, NoTimer, Timer


class _Recorders(Protocol):
    def _with_fields(self: _Self, fields: dict[str, Any], /) -> _Self:
        """Recorders whose events carry ``fields``, too."""


_Self = TypeVar("_Self", bound=_Recorders)
_Given = ParamSpec("_Given")

_NOT_GIVEN: Any = object()
_NO_TIMER = NoTimer(CALL, {})


def recorder(
    event: str,
) -> Callable[
    [Callable[Concatenate[_Self, _Given], None]], Callable[Concatenate[_Self, _Given], None]
]:
    """Make a recorder of a method that logs ``event``: one that never raises.

    It does nothing while metrics are off. Further fields are bound to the recorders that the method
    is called on; one that is named as one of the event's own gets another name.
    """
    own = _field_names(event)

    def decorate(
        method: Callable[Concatenate[_Self, _Given], None],
    ) -> Callable[Concatenate[_Self, _Given], None]:
        name = method.__name__
        parameters = parameters_of(method)
        call: Callable[..., None] = method

        def call_any(self: _Self, /, *given: object, **named: object) -> None:
            """A call that is none by position with all arguments."""
            given = tuple(each for each in given if each is not _NOT_GIVEN)
            further = {key: named[key] for key in named if key not in parameters}
            known = {key: named[key] for key in named if key in parameters}
            recorders = self._with_fields(_renamed(further, own)) if further else self
            try:
                call(recorders, *given, **known)
            except TypeError:  # they do not fit; what logs the event raises nothing
                log_call(name, *given, **named)

        guard = functools.wraps(method)(_GUARDS[len(parameters)](call, call_any))
        return cast("Callable[Concatenate[_Self, _Given], None]", guard)

    return decorate


def timer(
    kind: Kind,
) -> Callable[
    [Callable[Concatenate[_Self, _Given], Timer]], Callable[Concatenate[_Self, _Given], Timer]
]:
    """Decorate a method that returns a timer of a ``kind``, so that it never raises."""
    own = _field_names(kind.finished) | (_field_names(kind.started) if kind.started else set())

    def decorate(
        method: Callable[Concatenate[_Self, _Given], Timer],
    ) -> Callable[Concatenate[_Self, _Given], Timer]:
        name = method.__name__
        parameters = parameters_of(method)
        call: Callable[..., Timer] = method

        def guard(
            self: object,
            a: object = _NOT_GIVEN,
            b: object = _NOT_GIVEN,
            c: object = _NOT_GIVEN,
            /,
            *rest: object,
            **named: object,
        ) -> Timer:
            # Timers have two arguments or three. With ``*given`` alone this takes twice as long.
            try:
                if not (rest or named):
                    return call(self, a, b) if c is _NOT_GIVEN else call(self, a, b, c)
            except Exception:
                pass
            given = tuple(each for each in (a, b, c, *rest) if each is not _NOT_GIVEN)
            try:
                further = {key: named[key] for key in named if key not in parameters}
                known = {key: named[key] for key in named if key in parameters}
                return call(self, *given, **known).with_fields(_renamed(further, own))
            except Exception:
                pass
            try:
                return time_call(name, *given, **named)
            except Exception:  # close to the recursion limit
                warn_once.uncounted += ("unencodable",)
                return _NO_TIMER

        return cast("Callable[Concatenate[_Self, _Given], Timer]", functools.wraps(method)(guard))

    return decorate


def log_call(name: str, /, *args: object, **kwargs: object) -> None:
    """Log the call of a recorder that we do not know."""
    try:
        if not sink.off:
            log.info("recorder_called", recorder=name, args=args, kwargs=kwargs)
    except Exception:  # close to the recursion limit
        warn_once.uncounted += ("unencodable",)


def time_call(name: str, /, *args: object, **kwargs: object) -> Timer:
    """A timer that logs the call of one that we do not know."""
    return Timer(CALL, {"recorder": name, "args": args, "kwargs": kwargs})


def unknown(name: str) -> Callable[..., Any]:
    """What is called for a recorder, or a timer, that we do not know."""
    return functools.partial(time_call if name.startswith("time_") else log_call, name)


def parameters_of(method: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that may be given by position, but the first."""
    code = method.__code__
    return code.co_varnames[1 : code.co_argcount]


def _field_names(event: str) -> frozenset[str]:
    return RESERVED_KEYS.union(field.name for field in EVENTS[event].fields)


def _renamed(further: dict[str, Any], own: frozenset[str]) -> dict[str, Any]:
    for name in own.intersection(further):
        rename(further, name)
    return further


# --------------------------------------------------------------------------------------
# The guards of recorders, by the number of their arguments. One for all, with ``*args``, would take
# three times as long while metrics are off, and twice as long while they are on.


def _guard_one(call: Callable[..., None], call_any: Callable[..., None]) -> Callable[..., None]:
    def guard(self: object, a: object = _NOT_GIVEN, /, *rest: object, **named: object) -> None:
        if sink.off:
            return
        try:
            if a is _NOT_GIVEN or rest or named:
                call_any(self, a, *rest, **named)
            else:
                call(self, a)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    return guard


def _guard_two(call: Callable[..., None], call_any: Callable[..., None]) -> Callable[..., None]:
    def guard(
        self: object,
        a: object = _NOT_GIVEN,
        b: object = _NOT_GIVEN,
        /,
        *rest: object,
        **named: object,
    ) -> None:
        if sink.off:
            return
        try:
            if b is _NOT_GIVEN or rest or named:
                call_any(self, a, b, *rest, **named)
            else:
                call(self, a, b)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    return guard


def _guard_three(call: Callable[..., None], call_any: Callable[..., None]) -> Callable[..., None]:
    def guard(
        self: object,
        a: object = _NOT_GIVEN,
        b: object = _NOT_GIVEN,
        c: object = _NOT_GIVEN,
        /,
        *rest: object,
        **named: object,
    ) -> None:
        if sink.off:
            return
        try:
            if c is _NOT_GIVEN or rest or named:
                call_any(self, a, b, c, *rest, **named)
            else:
                call(self, a, b, c)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    return guard


def _guard_four(call: Callable[..., None], call_any: Callable[..., None]) -> Callable[..., None]:
    def guard(
        self: object,
        a: object = _NOT_GIVEN,
        b: object = _NOT_GIVEN,
        c: object = _NOT_GIVEN,
        d: object = _NOT_GIVEN,
        /,
        *rest: object,
        **named: object,
    ) -> None:
        if sink.off:
            return
        try:
            if d is _NOT_GIVEN or rest or named:
                call_any(self, a, b, c, d, *rest, **named)
            else:
                call(self, a, b, c, d)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    return guard


def _guard_five(call: Callable[..., None], call_any: Callable[..., None]) -> Callable[..., None]:
    def guard(
        self: object,
        a: object = _NOT_GIVEN,
        b: object = _NOT_GIVEN,
        c: object = _NOT_GIVEN,
        d: object = _NOT_GIVEN,
        e: object = _NOT_GIVEN,
        /,
        *rest: object,
        **named: object,
    ) -> None:
        if sink.off:
            return
        try:
            if e is _NOT_GIVEN or rest or named:
                call_any(self, a, b, c, d, e, *rest, **named)
            else:
                call(self, a, b, c, d, e)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    return guard


_GUARDS = {1: _guard_one, 2: _guard_two, 3: _guard_three, 4: _guard_four, 5: _guard_five}
