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


class Load:
    """A load: its id, whether it runs, the load it runs within, and the threads that were there
    before it."""

    __slots__ = ("id", "outer", "running", "threads")

    def __init__(self) -> None:
        self.id = os.urandom(6).hex()
        self.outer = _still_running(of_context())
        self.running = True
        self.threads = frozenset(sys._current_frames())


#: The load that this context is in. A forked child inherits it, a new thread does not. It may
#: have ended, in another context or out of turn: `current` passes those over.
_context: contextvars.ContextVar[Load | None] = contextvars.ContextVar("mx_load", default=None)
of_context = _context.get

#: The loads that run in this process.
_running: set[Load] = set()


def current() -> Load | None:
    """The load that an event belongs to which is logged here and now."""
    load = of_context()
    if load is None and not _running:
        return None
    return _still_running(load) or _only_one()


def begin(load: Load) -> None:
    """A load begins in this context."""
    for other in tuple(_running):
        if not other.running:  # it could not be ended as it should
            _running.discard(other)
    _running.add(load)
    _context.set(load)


def resume(load: Load) -> Load | None:
    """Be in ``load`` again, which is about to end here; returns the load this context was in."""
    before = of_context()
    _context.set(load)
    return before


def end(load: Load, before: Load | None) -> None:
    """The load is over; its context is then in what still runs of ``before``."""
    load.running = False
    _running.discard(load)
    _context.set(_still_running(before))


def forget() -> None:
    """In a forked child: its threads are none of its parent's loads."""
    _running.clear()


def _still_running(load: Load | None) -> Load | None:
    while load is not None and not load.running:
        load = load.outer
    return load


def _only_one() -> Load | None:
    """The load that runs, where it is the only one and this thread was started during it."""
    # A copy: loads come and go while other threads look.
    found = [load for load in tuple(_running) if load.running]
    if len(found) == 1 and threading.get_ident() not in found[0].threads:
        return found[0]
    return None


def trace() -> dict[str, str]:
    """``trace_id`` and ``span_id`` of OpenTelemetry's current span, if there is one.

    Asked only where somebody has imported OpenTelemetry. Never raises.
    """
    try:
        opentelemetry: Any = sys.modules["opentelemetry.trace"]
        context = opentelemetry.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    except Exception:  # half imported, or taken down
        return {}
