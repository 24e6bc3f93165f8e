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
running: dict[str, frozenset[int]] = {}


def new_load_id() -> str:
    """12 random hex digits."""
    return os.urandom(6).hex()


def begin(load: str) -> contextvars.Token[str | None]:
    """A load begins in this context."""
    running[load] = frozenset(sys._current_frames())
    return load_id.set(load)


def end(load: str, token: contextvars.Token[str | None]) -> None:
    """The load is over, perhaps in another context than it began in."""
    running.pop(load, None)
    try:
        load_id.reset(token)
    except ValueError:
        load_id.set(None)


def forget() -> None:
    """In a forked child: its threads are none of its parent's loads."""
    running.clear()


def mark(fields: dict[str, Any], load: str | None) -> dict[str, Any]:
    """The fields of an event, with the load that it belongs to and its trace, if any.

    ``load`` is what `load_id` says in this context.
    """
    if load is None:
        load = _only_one()
        if load is None:
            return fields
    fields["load_id"] = load
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is not None:
        return {**_trace(opentelemetry), **fields}
    return fields


def _only_one() -> str | None:
    """The load that runs, where it is the only one and this thread was started during it."""
    # A copy: loads come and go while other threads look.
    found = list(running.items())
    if len(found) == 1 and threading.get_ident() not in found[0][1]:
        return found[0][0]
    return None


def _trace(opentelemetry: Any) -> dict[str, str]:
    """``trace_id`` and ``span_id`` of OpenTelemetry's current span, if any. Never raises."""
    try:
        context = opentelemetry.get_current_span().get_span_context()
        if not context.is_valid:
            return {}
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    except Exception:  # half imported, or taken down
        return {}
