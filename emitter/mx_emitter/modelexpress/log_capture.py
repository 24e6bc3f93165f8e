"""The client's own log records as events: why there was no peer, which strategy loaded the model.

A handler on the client's loggers of the standard library. It sees what their levels let through,
and changes nothing about them.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from typing import Any

from ..log import warn_once
from ..log.encode import text
from ..log.exceptions import describe, without_secrets
from ..log.sink import sink
from ..logger import log
from ..settings import read_settings

#: The client's loggers; all others of its are below these.
NAMESPACES = ("modelexpress", "modelexpress_rl")

#: Longest ``message``, in characters.
MAX_MESSAGE = 2000

_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class Capture(logging.Handler):
    """Logs records as ``log_recorded``. Never raises, and holds no lock while it does so."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._busy = threading.local()

    def createLock(self) -> None:
        """None is needed: what holds one could be waited for by a signal handler or a fork."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Log ``record``, unless it was logged while another was turned into an event."""
        logged = False
        try:
            if getattr(self._busy, "now", False):
                return True
            self._busy.now = True
            try:
                self._log(record)
                logged = True
                self._stand_aside(record)
            finally:
                self._busy.now = False
        except Exception:  # close to the recursion limit
            if not logged:
                warn_once.uncounted += ("unencodable",)
        return True

    def _log(self, record: logging.LogRecord) -> None:
        try:
            fields = _fields(record)
        except Exception as error:
            warn_once.say("capture", f"a log record could not be logged as an event: {text(error)}")
            sink.drop("unencodable")
            return
        log.log_fields(_level(record.levelno), "log_recorded", fields)

    def _stand_aside(self, record: logging.LogRecord) -> None:
        """Where nobody else handles it, Python would have printed it but for us."""
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        last.handle(record)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    try:
        message = record.getMessage()
    except Exception:  # arguments that do not fit, which the logging module would report
        message = text(record.msg)
    # Bounded before it is searched, and far above what is kept.
    message = without_secrets(text(message)[: 40 * MAX_MESSAGE])[:MAX_MESSAGE]
    fields = {"logger": text(record.name), "message": message}
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields.update(describe(error))
    return fields


def _level(number: int) -> str:
    return next((name for least, name in _LEVELS if number >= least), "debug")


@functools.cache
def _capture() -> Capture | None:
    """The one handler of this process; None where nothing is to be captured."""
    settings = read_settings()
    return Capture(settings.capture_logs) if settings.capture_logs is not None else None


def attach() -> None:
    """Attach the handler to the client's loggers, if ``MX_METRICS_CAPTURE_LOGS`` says so.

    Idempotent, never raises.
    """
    try:
        handler = _capture()
        if handler is None:
            return
        _leave_setup_alone()
        for name in NAMESPACES:
            logger = logging.getLogger(name)
            if handler not in logger.handlers:
                logger.addHandler(handler)
    except Exception as error:
        warn_once.say("capture", f"the client's log records are not captured: {text(error)}")


def detach() -> None:
    """Take the handler off again."""
    handler = _capture()
    if handler is not None:
        for name in NAMESPACES:
            logging.getLogger(name).removeHandler(handler)


def _leave_setup_alone() -> None:
    """The client gives its loggers those of the engine, but only while they have none at all."""
    package: Any = sys.modules.get("modelexpress")
    setup = getattr(package, "_configure_engine_logging", None)
    if setup is None or getattr(setup, "by_mx_emitter", False):
        return

    @functools.wraps(setup)
    def without_us(*args: Any, **kwargs: Any) -> Any:
        detach()
        try:
            return setup(*args, **kwargs)
        finally:
            attach()

    without_us.by_mx_emitter = True  # type: ignore[attr-defined]
    package._configure_engine_logging = without_us
