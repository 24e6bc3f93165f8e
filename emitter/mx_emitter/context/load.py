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

#: The running load as it stands on a line, its ``load_id``; None outside of loads. A forked child
#: inherits it, a new thread does not.
mark: contextvars.ContextVar[bytes | None] = contextvars.ContextVar("mx_load", default=None)

#: The loads that run in this process, by mark, each with the threads that were there before it.
running: dict[bytes, frozenset[int]] = {}


def new_mark() -> bytes:
    """How the lines of a new load end: the field ``load_id``, 12 random hex digits."""
    return b',"load_id":"%b"}\n' % os.urandom(6).hex().encode()


def begin(load: bytes) -> contextvars.Token[bytes | None]:
    """A load begins in this context."""
    running[load] = frozenset(sys._current_frames())
    return mark.set(load)


def end(load: bytes, token: contextvars.Token[bytes | None]) -> None:
    """The load is over, perhaps in another context than it began in."""
    running.pop(load, None)
    try:
        mark.reset(token)
    except ValueError:
        mark.set(None)


def forget() -> None:
    """In a forked child: its threads are none of its parent's loads."""
    running.clear()


def only_one() -> bytes | None:
    """The load that runs, where it is the only one and this thread was started during it."""
    # A copy: loads come and go while other threads look.
    found = list(running.items())
    if len(found) == 1 and threading.get_ident() not in found[0][1]:
        return found[0][0]
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
