"""Recorders out of their declarations: a name, its parameters, and what each is logged as.

The code of each recorder is written out and compiled once, at import. Called as they mostly are,
by position, recorders then run no code but their own: what is looked up and called at run time to
get at the same fields costs as much as all the rest of an event but its write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from .log import warn_once
from .log.encode import number, plain, plain_fields, text
from .log.sink import sink
from .timers import LoadTimer, Span, Timer

_Self = TypeVar("_Self")
_Given = ParamSpec("_Given")

Fields: TypeAlias = dict[str, Any]

#: How a parameter is annotated says what its value is logged as: its text; its text, or null when
#: it is falsy; a number.
Label: TypeAlias = object
OptionalLabel: TypeAlias = object
Number: TypeAlias = object

#: For each kind the common case, and what is called for all others.
_VALUES = {
    "Label": "{0} if type({0}) is str else text({0})",
    "OptionalLabel": "{0} if type({0}) is str and {0} else text_or_none({0})",
    "Number": (
        "{0} if type({0}) is float and SMALLEST < {0} < LARGEST"
        " or type({0}) is int and 0 <= {0} < 1 << 63 else number({0})"
    ),
}

#: Parameters that give their fields another name.
_RENAMED = {"nbytes": "bytes"}

CALLED = b'"recorder_called"'
_UNKNOWN_SPAN = Span(None, CALLED, None, None)
_NOT_GIVEN = object()

_FIELDS = """
def fields_of(self, /, {parameters}, **_more):
    return {fields}
"""

# No signature that Python checks: what it refuses would be raised into the caller.
#
# ``emit`` gets a name before it is called: Python 3.11 finds an object's attribute at once, but not
# where it is called right away, as a method of its class is.
_RECORDER = """
def record(self, {by_position}, /, *rest, **more):
    if sink.off:
        return
    try:
        if not (rest or more or {last} is NOT_GIVEN):
            fields = {fields}
            if fields is not None:
                emit = sink.emit
                emit(EVENT, fields)
            return
    except Exception:  # of the fields: once called, emit raises nothing
        pass
    try:
        given = [each for each in ({given},) if each is not NOT_GIVEN]
        record_any(self, *given, *rest, **more)
    except Exception:
        warn_once.uncounted += ("unencodable",)
"""

_TIMER = """
def timer(self, {by_position}, /, *rest, **more):
    try:
        if sink.off:
            return KIND().of(SPAN, {{}})
        if not (rest or more or {last} is NOT_GIVEN):
            made = KIND()
            made._span = SPAN
            made._fields = {fields}
            made.seconds = made._began = 0.0
            return made
    except Exception:
        pass
    given = [each for each in ({given},) if each is not NOT_GIVEN]
    return time_any(self, *given, *rest, **more)
"""


def records(
    event: str, **constants: object
) -> Callable[
    [Callable[Concatenate[_Self, _Given], None]], Callable[Concatenate[_Self, _Given], None]
]:
    """Make a recorder of a declaration: ``event`` with its parameters and ``constants``."""

    def decorate(
        declared: Callable[Concatenate[_Self, _Given], None],
    ) -> Callable[Concatenate[_Self, _Given], None]:
        fields = _fields(declared, constants)
        return _recorder(event, declared, _compiled_fields(declared, fields), fields)

    return decorate


def logs(
    event: str,
) -> Callable[
    [Callable[Concatenate[_Self, _Given], Fields | None]],
    Callable[Concatenate[_Self, _Given], None],
]:
    """Make a recorder of a method that returns its event's fields (None: nothing to log)."""

    def decorate(
        fields_of: Callable[Concatenate[_Self, _Given], Fields | None],
    ) -> Callable[Concatenate[_Self, _Given], None]:
        fields = f"fields_of(self, {', '.join(parameters_of(fields_of))})"
        return _recorder(event, fields_of, fields_of, fields)

    return decorate


def _recorder(
    event: str,
    declared: Callable[Concatenate[_Self, _Given], object],
    fields_of: Callable[..., Fields | None],
    fields: str,
) -> Callable[Concatenate[_Self, _Given], None]:
    """The recorder of what was declared; ``fields`` is the code of its fields."""
    name = _as_json(event)
    parameters = frozenset(parameters_of(declared))

    def record_any(self: object, /, *args: object, **kwargs: object) -> None:
        event = name
        try:
            fields = fields_of(self, *args, **kwargs)
            if kwargs and fields is not None:
                _add(fields, kwargs, parameters)
        except Exception:  # arguments that we have no place for: a newer client's
            event, fields = CALLED, _call(fields_of.__name__, args, kwargs)
        if fields is not None:
            sink.emit(event, fields)

    record: Callable[Concatenate[_Self, _Given], None] = _compiled(
        "record",
        _RECORDER,
        declared,
        fields,
        EVENT=name,
        fields_of=fields_of,
        record_any=record_any,
    )
    return record


def times(
    started: str, finished: str, good: str | None = None, bad: str | None = None
) -> Callable[
    [Callable[Concatenate[_Self, _Given], None]], Callable[Concatenate[_Self, _Given], Timer]
]:
    """Make a timer of a declaration; its parameters go on both events."""
    span = Span(_as_json(started), _as_json(finished), good, bad)
    kind = LoadTimer if started == "load_started" else Timer

    def decorate(
        declared: Callable[Concatenate[_Self, _Given], None],
    ) -> Callable[Concatenate[_Self, _Given], Timer]:
        parameters = frozenset(parameters_of(declared))
        fields = _fields(declared, {})
        fields_of = _compiled_fields(declared, fields)

        def time_any(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> Timer:
            if sink.off:
                return kind().of(span, {})
            try:
                fields = fields_of(self, *args, **kwargs)
                if kwargs:
                    _add(fields, kwargs, parameters)
                return kind().of(span, fields)
            except Exception:
                return call_timer(fields_of.__name__, args, kwargs)

        timer: Callable[Concatenate[_Self, _Given], Timer] = _compiled(
            "timer", _TIMER, declared, fields, KIND=kind, SPAN=span, time_any=time_any
        )
        return timer

    return decorate


# --------------------------------------------------------------------------------------
# Recorders of newer clients


def log_call(name: str, /, *args: object, **kwargs: object) -> None:
    """Log the call of a recorder that we do not know."""
    if not sink.off:
        try:
            sink.emit(CALLED, _call(name, args, kwargs))
        except Exception:
            warn_once.uncounted += ("unencodable",)


def call_timer(name: str, args: tuple[object, ...], kwargs: Fields) -> Timer:
    """A timer that logs the call of one that we do not know."""
    try:
        fields = {} if sink.off else _call(name, args, kwargs)
    except Exception:
        fields = {"recorder": name}
    return Timer().of(_UNKNOWN_SPAN, fields)


def _call(name: str, args: tuple[object, ...], kwargs: Fields) -> Fields:
    return {"recorder": name, "args": plain(args), "kwargs": plain(kwargs)}


def _add(fields: Fields, kwargs: Mapping[str, object], parameters: frozenset[str]) -> None:
    """Add the keyword arguments that are no parameters; an event's own fields stay as they are."""
    more = {key: value for key, value in kwargs.items() if key not in parameters}
    for key, value in plain_fields(more).items():
        # What ``timed`` says of an event is for us to say: see `Recorders.observe_load_seconds`.
        fields.setdefault("field_timed" if key == "timed" else key, value)


# --------------------------------------------------------------------------------------
# Code


def _as_json(event: str) -> bytes:
    return b'"%b"' % event.encode()


def parameters_of(method: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that may be given by position, but the first."""
    code = method.__code__
    return code.co_varnames[1 : code.co_argcount]


def _fields(declared: Callable[..., Any], constants: Mapping[str, object]) -> str:
    """The code of an event's fields."""
    kinds = declared.__annotations__
    fields = {
        _RENAMED.get(name, name): _VALUES[kinds[name]].format(name)
        for name in parameters_of(declared)
    }
    fields.update((name, repr(value)) for name, value in constants.items())
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in fields.items()) + "}"


def _compiled(
    name: str, code: str, declared: Callable[..., Any], fields: str, **known: object
) -> Any:
    """The function ``name`` of ``code``, for what was declared."""
    names = parameters_of(declared)
    space = {**_SPACE, **known}
    source = code.format(
        by_position=", ".join(f"{each}=NOT_GIVEN" for each in names),
        given=", ".join(names),
        last=names[-1],
        fields=fields,
    )
    exec(source, space)
    return functools.update_wrapper(space[name], declared)


def _compiled_fields(declared: Callable[..., Any], fields: str) -> Callable[..., Fields]:
    """A function of the declared signature that returns the fields."""
    defaults = declared.__defaults__ or ()
    names = parameters_of(declared)
    required = len(names) - len(defaults)
    parameters = [*names[:required], *(f"{name}=None" for name in names[required:])]
    assert defaults == (None,) * len(defaults)
    space = dict(_SPACE)
    exec(_FIELDS.format(parameters=", ".join(parameters), fields=fields), space)
    fields_of: Callable[..., Fields] = space["fields_of"]
    functools.update_wrapper(fields_of, declared)
    del fields_of.__wrapped__  # type: ignore[attr-defined]
    return fields_of


def _text_or_none(value: object) -> str | None:
    """None when ``value`` is falsy; one whose truth cannot be told is not falsy."""
    try:
        falsy = not value
    except Exception:
        falsy = False
    return None if falsy else text(value)


#: What the code refers to.
_SPACE: dict[str, Any] = {
    "LARGEST": float("inf"),
    "NOT_GIVEN": _NOT_GIVEN,
    "SMALLEST": float("-inf"),
    "number": number,
    "sink": sink,
    "text": text,
    "text_or_none": _text_or_none,
    "warn_once": warn_once,
}
