"""The load that is running: a context variable, so that its events can be told from another's."""

from __future__ import annotations

import contextvars
import os

#: The running load's id, None outside of loads. A forked child inherits it, a new thread does not.
load_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("mx_load_id", default=None)


def new_load_id() -> str:
    """12 random hex digits."""
    return os.urandom(6).hex()
