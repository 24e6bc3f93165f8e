"""The structlog logger of the log: ours alone, whatever the application configures.

It is made here with all that ``structlog.configure`` could change, so neither reaches the other.
"""

from __future__ import annotations

import logging
import operator
import sys
import traceback
from collections.abc import Callable
from typing import Any

import structlog

from .log import warn_once
from .log.encode import encode, plain_fields, text
from .log.exceptions import without_secrets
from .log.sink import sink

_LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_OF_NAME = {"warn": "warning", "fatal": "critical", "exception": "error"}


def _method(level: str) -> Callable[..., None]:
    """A logger's method that logs at ``level``."""
    as_bytes = level.encode()

    def method(self: EventLogger, event: object = None, /, *args: object, **fields: Any) -> None:
        try:
            self._emit(as_bytes, event, args, fields)
        except Exception:
            warn_once.uncounted += ("unencodable",)

    method.__name__, method.__qualname__ = level, f"EventLogger.{level}"
    method.__doc__ = f"Log at level ``{level}``."
    return method


class EventLogger(structlog.BoundLoggerBase):
    """A bound logger that logs events. No method raises into its caller for what it is given.

    The first argument names the event, or ``event=`` does. Further positional arguments are
    formatted into it by ``%``; where they do not fit, they are kept in ``positional_args``.
    ``exc_info`` gives the field ``exception``, the text of the traceback. Keys that every line
    carries are reserved: a field of such a name is logged as ``field_<name>``.
    """

    debug = _method("debug")
    info = msg = _method("info")
    warning = warn = _method("warning")
    error = _method("error")
    critical = fatal = _method("critical")

    def exception(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``error`` with the traceback of the exception that is being handled."""
        try:
            fields.setdefault("exc_info", True)
            self._emit(b"error", event, args, fields)
        except Exception:
            warn_once.uncounted += ("unencodable",)

    def log(
        self, level: object = "info", event: object = None, /, *args: object, **fields: Any
    ) -> None:
        """Log at a level given as a number of ``logging`` or by name (unknown ones: ``info``)."""
        try:
            self._emit(_level(level), event, args, fields)
        except Exception:
            warn_once.uncounted += ("unencodable",)

    def bind(self, /, **new_values: Any) -> EventLogger:
        """A logger whose events carry ``new_values``, too."""
        return EventLogger(sink, (), {**self._context, **new_values})

    def unbind(self, /, *keys: object) -> EventLogger:
        """A logger without the values of those names, whether it had them or not."""
        names = {text(key) for key in keys}
        kept = {key: value for key, value in self._context.items() if key not in names}
        return EventLogger(sink, (), kept)

    try_unbind = unbind

    def new(self, /, **new_values: Any) -> EventLogger:
        """A logger whose events carry ``new_values`` alone."""
        return EventLogger(sink, (), new_values)

    def _emit(
        self, level: bytes, event: object, args: tuple[object, ...], fields: dict[str, Any]
    ) -> None:
        if sink.off:
            return
        try:
            if self._context:
                fields = {**self._context, **fields}
            if event is None:
                event = fields.pop("event", None)
            if args:
                event = _formatted(event, args, fields)
            if "exc_info" in fields:
                fields.update(_exception(fields.pop("exc_info")))
            name = encode({"event": text(event)})[9:-2]
            line_fields = plain_fields(fields)
        except Exception:
            sink.drop("unencodable")
            return
        sink.emit(name, line_fields, level)


def _formatted(event: object, args: tuple[object, ...], fields: dict[str, Any]) -> object:
    try:
        return text(event) % (
            args[0] if len(args) == 1 and issubclass(type(args[0]), dict) else args
        )
    except Exception:  # "100% done", or an argument that cannot be formatted
        fields["positional_args"] = args
        return event


def _exception(exc_info: Any) -> dict[str, str]:
    try:
        if not exc_info:
            return {}
        kind = type(exc_info)
        if issubclass(kind, BaseException):
            error = exc_info
        elif issubclass(kind, tuple) and len(exc_info) == 3:
            error = exc_info[1]
        else:
            error = sys.exc_info()[1]
        if error is None:
            return {}
        lines = traceback.format_exception(error)
        return {"exception": without_secrets("".join(lines).rstrip("\n"))}
    except Exception:  # no exception, or one whose own code raises
        return {"exception": without_secrets(text(exc_info))}


def _level(level: object) -> bytes:
    if issubclass(type(level), int):
        level = logging.getLevelName(operator.index(level))  # type: ignore[arg-type]
    name = text(level).strip().lower()
    name = _LEVEL_OF_NAME.get(name, name)
    return name.encode() if name in _LEVELS else b"info"


def make_logger(**initial_values: Any) -> EventLogger:
    """A logger whose events carry ``initial_values``."""
    return EventLogger(sink, (), initial_values)
