"""Trouble is said once for each kind, on the standard logger ``mx_emitter``.

Never called under the stream's lock: a logging handler may hold a lock of its own while it calls
a recorder.

Close to the recursion limit nothing can be called any more, not even what counts a dropped event.
Whoever may be called there ends in a handler that calls nothing: ``uncounted += (reason,)``.
"""

from __future__ import annotations

import contextlib
import logging

_logger = logging.getLogger("mx_emitter")
_said: set[str] = set()

#: Why events were dropped that nobody could count yet. The next event that is logged counts them.
uncounted: list[str] = []

#: Frames that whatever must not be left half done may need.
FRAMES = 60


def need_room(frames: int = FRAMES) -> None:
    """Raise RecursionError now, where it would be raised in the middle of what follows."""
    if frames:
        need_room(frames - 1)


def say(kind: str, message: str) -> None:
    """Warn, unless a warning of this kind was given before. Never raises."""
    with contextlib.suppress(Exception):
        if kind not in _said:
            _said.add(kind)
            _logger.warning("%s", message)
