"""The terminal of `top`: what is drawn on it, and which keys are pressed on it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from ..errors import MxError, UsageError
from .sources import Source
from .view import View

#: What keys send. Escape alone is `back`; one that is in no table is its own name.
_KEYS = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\r": "enter",
    "\n": "enter",
    "\x1b[C": "enter",
    "\x1bOC": "enter",
    "\x1b": "back",
    "\x7f": "back",
    "\x08": "back",
    "\x1b[D": "back",
    "\x1bOD": "back",
}


def run(source: Source, interval: float) -> None:
    """Show the loads until ``q`` is pressed.

    :param interval: seconds between two looks at the source.
    :raises UsageError: there is no terminal.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal; `mx-metrics loads` prints the loads")
    console = Console()

    def open_load(load_id: str) -> dict[str, Any] | None:
        try:
            found = source.read(load_id)
        except MxError as error:
            view.fail(str(error))
            return None
        return next(iter([*found["running"], *found["loads"]]), None)

    view = View(source.name, open_load)
    with (
        _keys_at_once(),
        _ended_by_sigterm(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        due = time.monotonic()
        while not view.done:
            live.update(Group(*view.lines(*console.size)), refresh=True)
            if time.monotonic() >= due:
                try:
                    view.show(source.read())
                except MxError as error:
                    view.fail(str(error))
                due = time.monotonic() + interval
                continue
            for key in _pressed(due - time.monotonic()):
                view.press(key)


def _pressed(seconds: float) -> Iterator[str]:
    """Keys that were pressed, once there is one; none after so many seconds."""
    fd = sys.stdin.fileno()
    ready, _, _ = select.select([fd], [], [], max(0.0, seconds))
    if not ready:
        return
    text = os.read(fd, 1024).decode("utf-8", "replace")
    if not text:
        yield "q"  # the terminal is gone
    while text:
        known = [keys for keys in _KEYS if text.startswith(keys)]
        sent = max(known, key=len, default=text[0])
        if sent == "\x1b" and len(text) > 1:
            return  # keys that nobody knows
        yield _KEYS.get(sent, sent)
        text = text[len(sent) :]


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have keys arrive as they are pressed, unseen."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Leave the terminal as it was, too, when somebody ends us."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
