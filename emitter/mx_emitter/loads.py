"""Which load an event belongs to, and which trace.

A context variable tells it in the load's own thread and tasks. Threads that are started meanwhile,
as the client starts some for its transfers, have a context of their own; there an event is the
load's while it is the only one that runs.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from typing import Any

#: The running load's id, None outside of loads. A forked child inherits it, a new thread does not.
load_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("mx_load_id", default=None)

#: The loads that run in this process, each with the threads that were there before it.
_running: dict[str, frozenset[int]] = {}


def new_load_id() -> str:
    """12 random hex digits."""
    return os.urandom(6).hex()


def begin(load: str) -> contextvars.Token[str | None]:
    """A load begins in this context."""
    _running[load] = frozenset(sys._current_frames())
    return load_id.set(load)


def end(load: str, token: contextvars.Token[str | None]) -> None:
    """The load is over, perhaps in another context than it began in."""
    _running.pop(load, None)
    try:
        load_id.reset(token)
    except ValueError:
        load_id.set(None)


def forget() -> None:
    """In a forked child: its threads are none of its parent's loads."""
    _running.clear()


def current() -> str | None:
    """The load that an event of this thread belongs to, if any."""
    load = load_id.get()
    if load is not None or not _running:
        return load
    # A copy: loads come and go while other threads look.
    running = list(_running.items())
    if len(running) == 1 and threading.get_ident() not in running[0][1]:
        return running[0][0]
    return None


def trace() -> dict[str, str] | None:
    """``trace_id`` and ``span_id`` of OpenTelemetry's current span.

    None where there is none, or where nobody has imported OpenTelemetry. Never raises.
    """
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    try:
        context = opentelemetry.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    except Exception:  # half imported, or taken down
        return None
