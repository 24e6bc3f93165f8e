"""The one structlog logger of the log: recorders, timers and engines log by it.

It is made here with all that ``structlog.configure`` could change, so no configuration of the
application reaches it, and it reaches none.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import structlog

from .log import warn_once
from .log.encode import text
from .log.sink import sink
from .processors import ENGINE_PROCESSORS, PROCESSORS, EventDict, rename

_Logger = TypeVar("_Logger", bound="EventLogger")

_LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_OF_NAME = {"warn": "warning", "fatal": "critical", "exception": "error"}

#: What a chain for the standard library's logging adds to an event for its own use.
_OF_A_CHAIN = ("_record", "_from_structlog", "_logger", "_name")


def _method(level: str) -> Callable[..., None]:
    """A logger's method that logs at ``level``."""

    def method(self: EventLogger, event: object = None, /, *args: object, **fields: Any) -> None:
        try:
            if self._context:
                fields = {**self._context, **fields}
            if args or type(event) is not str:
                event = _name(event, args, fields)
            self.log_fields(level, event, fields)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    method.__name__, method.__qualname__ = level, f"EventLogger.{level}"
    method.__doc__ = f"Log at level ``{level}``."
    return method


def _asynchronous(method: Callable[..., None]) -> Callable[..., Coroutine[Any, Any, None]]:
    """The method for coroutines: an event takes microseconds, so it is logged at once."""

    async def log_at_once(self: EventLogger, /, *args: object, **fields: Any) -> None:
        method(self, *args, **fields)

    name = f"a{method.__name__}"
    log_at_once.__name__, log_at_once.__qualname__ = name, f"EventLogger.{name}"
    log_at_once.__doc__ = method.__doc__
    return log_at_once


class EventLogger(structlog.BoundLoggerBase):
    """A bound logger that logs events. No method raises into its caller for what it is given.

    The first argument names the event, or ``event=`` does. Further positional arguments are
    formatted into it by ``%``; where they do not fit, they are kept in ``positional_args``.
    ``exc_info`` gives the field ``exception``, the text of the traceback. Keys that every line
    carries are reserved: a field of such a name is logged as ``field_<name>``.
    """

    def __init__(
        self,
        logger: Any,
        processors: Iterable[Callable[[Any, str, Any], Any]],
        context: dict[str, Any],
        first: Iterable[Callable[[Any, str, Any], Any]] = (),
    ) -> None:
        """``first`` are processors that its events pass before those of all events."""
        super().__init__(logger, processors, context)
        self._first = first

    debug = _method("debug")
    info = msg = _method("info")
    warning = warn = _method("warning")
    error = _method("error")
    critical = fatal = _method("critical")

    def exception(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at level ``error`` with the traceback of the exception that is being handled."""
        try:
            fields.setdefault("exc_info", True)
            self.error(event, *args, **fields)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    def log(
        self, level: object = "info", event: object = None, /, *args: object, **fields: Any
    ) -> None:
        """Log at a level given as a number of ``logging`` or by name (unknown ones: ``info``)."""
        try:
            getattr(self, _level(level))(event, *args, **fields)
        except Exception:  # close to the recursion limit
            warn_once.uncounted += ("unencodable",)

    def log_fields(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Log an event with the fields of a dict, which it takes for its own, and nothing bound.

        Raises a RecursionError where there is no room to do anything.
        """
        try:
            if "event" in fields:
                rename(fields, "event")
            fields["event"] = event
            # Now: where a signal handler forks in the middle, the event is the parent's.
            logger = self._logger
            msg = logger.msg
            result: Any = fields
            for process in self._first:
                result = process(logger, level, result)
            for process in self._processors:
                result = process(logger, level, result)
        except structlog.DropEvent:
            return
        except Exception:
            sink.drop("unencodable")
            return
        (name, own, as_level), _ = result
        msg(name, own, as_level)

    adebug = _asynchronous(debug)
    ainfo = amsg = _asynchronous(info)
    awarning = awarn = _asynchronous(warning)
    aerror = _asynchronous(error)
    acritical = afatal = _asynchronous(critical)
    aexception = _asynchronous(exception)
    alog = _asynchronous(log)

    def is_enabled_for(self, level: int) -> bool:  # noqa: ARG002 - all levels are logged alike
        """Whether an event of that level would be logged: whether metrics are on."""
        return not sink.off

    def get_effective_level(self) -> int:
        """The lowest level that is logged: all are."""
        return logging.NOTSET

    def bind(self: _Logger, /, **new_values: Any) -> _Logger:
        """A logger whose events carry ``new_values``, too."""
        return self._with({**self._context, **new_values})

    def unbind(self: _Logger, /, *keys: object) -> _Logger:
        """A logger without the values of those names, whether it had them or not."""
        names = {text(key) for key in keys}
        return self._with({key: value for key, value in self._context.items() if key not in names})

    try_unbind = unbind

    def new(self: _Logger, /, **new_values: Any) -> _Logger:
        """A logger whose events carry ``new_values`` alone."""
        return self._with(new_values)

    def _with(self: _Logger, context: dict[str, Any]) -> _Logger:
        return type(self)(self._logger, self._processors, context, self._first)


def _name(event: object, args: tuple[object, ...], fields: dict[str, Any]) -> str:
    """The name of an event, with arguments formatted into it where they fit."""
    if event is None:
        event = fields.pop("event", None)
    name = text(event)
    if args:
        try:
            given = args[0] if len(args) == 1 and issubclass(type(args[0]), dict) else args
            return text(name % given)
        except Exception:  # "100% done", or an argument that cannot be formatted
            fields["positional_args"] = args
    return name


def _level(level: object) -> str:
    if issubclass(type(level), int):
        level = logging.getLevelName(operator.index(level))  # type: ignore[arg-type]
    name = text(level).strip().lower()
    name = _LEVEL_OF_NAME.get(name, name)
    return name if name in _LEVELS else "info"


#: The logger of this process.
log: EventLogger = structlog.wrap_logger(
    sink,
    processors=PROCESSORS,
    wrapper_class=EventLogger,
    context_class=dict,
    cache_logger_on_first_use=False,
).bind()

#: The same for engines. Their events pass what vets them first, and there get what was bound by
#: ``structlog.contextvars``; recorders' events do not: it may be what does not belong there.
_engines = EventLogger(sink, PROCESSORS, {}, ENGINE_PROCESSORS)


def get_logger(**initial_values: Any) -> EventLogger:
    """A structlog logger for events of the engine's own, in the same log.

    ``initial_values`` go on each event. It has all levels, ``log``, ``exception``, the methods for
    coroutines (``ainfo`` and the like), ``bind``, ``unbind`` and ``new``. While metrics are off
    its events go nowhere.
    """
    return _engines.new(**initial_values)


def copy_to_log(_logger: object, method_name: str, event_dict: EventDict) -> EventDict:
    """A processor for an engine's own structlog chain: logs each event here, too.

    The event goes on through the chain as it is. It stands before those that render it.
    """
    try:
        if not sink.off:
            fields = {text(key): event_dict[key] for key in event_dict if key not in _OF_A_CHAIN}
            level = fields.pop("level", method_name)
            _engines.log(level, fields.pop("event", None), **fields)
    except Exception:
        warn_once.uncounted += ("unencodable",)
    return event_dict
