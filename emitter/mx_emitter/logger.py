"""The structlog logger of the log: ours alone, whatever the application configures.

``structlog.wrap_logger`` is given all that ``structlog.configure`` could change, so neither
reaches the other.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any, cast

import structlog

from .encode import encode, plain, renamed, text
from .faults import without_secrets
from .sink import sink

_LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_OF_NAME = {"warn": "warning", "fatal": "critical", "exception": "error"}


class EventLogger(structlog.BoundLoggerBase):
    """A bound logger that logs events. No method raises into its caller for what it is given.

    The first argument names the event, or ``event=`` does. Further positional arguments are
    formatted into it by ``%``; where they do not fit, they are kept in ``positional_args``.
    ``exc_info`` gives the field ``exception``, the text of the traceback. Keys that every line
    carries are reserved: a field of such a name is logged as ``field_<name>``.
    """

    def debug(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``debug``."""
        self._emit(b"debug", event, args, fields)

    def info(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``info``."""
        self._emit(b"info", event, args, fields)

    def warning(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``warning``."""
        self._emit(b"warning", event, args, fields)

    warn = warning

    def error(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``error``."""
        self._emit(b"error", event, args, fields)

    def critical(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``critical``."""
        self._emit(b"critical", event, args, fields)

    fatal = critical

    def exception(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``error`` with the traceback of the exception that is being handled."""
        fields.setdefault("exc_info", True)
        self._emit(b"error", event, args, fields)

    def log(self, level: object, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at a level given as a number of ``logging`` or by name (unknown ones: ``info``)."""
        self._emit(_level(level), event, args, fields)

    msg = info

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
            line_fields = cast("dict[str, Any]", plain(renamed(fields)))
        except Exception:
            sink.drop("unencodable")
            return
        sink.emit(name, line_fields, level)


def _formatted(event: object, args: tuple[object, ...], fields: dict[str, Any]) -> object:
    try:
        return text(event) % (args[0] if len(args) == 1 and isinstance(args[0], dict) else args)
    except Exception:  # "100% done", or an argument that cannot be formatted
        fields["positional_args"] = args
        return event


def _exception(exc_info: object) -> dict[str, str]:
    if not exc_info:
        return {}
    if isinstance(exc_info, BaseException):
        error: BaseException | None = exc_info
    elif isinstance(exc_info, tuple) and len(exc_info) == 3:
        error = exc_info[1]
    else:
        error = sys.exc_info()[1]
    if error is None:
        return {}
    try:
        lines = traceback.format_exception(error)
        return {"exception": without_secrets("".join(lines).rstrip("\n"))}
    except Exception:
        return {"exception": text(error)}


def _level(level: object) -> bytes:
    if isinstance(level, int):
        level = logging.getLevelName(level)
    name = text(level).strip().lower()
    name = _LEVEL_OF_NAME.get(name, name)
    return name.encode() if name in _LEVELS else b"info"


def make_logger(**initial_values: Any) -> EventLogger:
    """A logger whose events carry ``initial_values``."""
    proxy = structlog.wrap_logger(
        sink,
        processors=[],
        wrapper_class=EventLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
        **initial_values,
    )
    return cast(EventLogger, proxy.bind())
