"""Trouble is said once for each kind, on the standard logger ``mx_emitter``.

Never called under the stream's lock: a logging handler may hold a lock of its own while it calls
a recorder.
"""

from __future__ import annotations

import contextlib
import logging

_logger = logging.getLogger("mx_emitter")
_said: set[str] = set()


def say(kind: str, message: str) -> None:
    """Warn, unless a warning of this kind was given before. Never raises."""
    with contextlib.suppress(Exception):
        if kind not in _said:
            _said.add(kind)
            _logger.warning("%s", message)
