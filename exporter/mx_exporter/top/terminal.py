"""The terminal of `top`: what is drawn on it, and which keys are pressed on it."""

from __future__ import annotations

import contextlib
import os
import re
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
from .reading import Answer, Reading
from .sources import Source
from .view import View

#: What one key sends, of all that was sent: Escape begins some of these, and is a key itself.
_SENT = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)

#: Which key that is; one that is not here is its own name.
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
    console, view = Console(), View(source.name)
    with (
        Reading(source) as reading,
        _keys_at_once(),
        _ended_by_sigterm(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        reading.ask()
        #: When the next look is due; None while one is under way.
        due: float | None = None
        while not view.done:
            live.update(Group(*view.lines(*console.size)), refresh=True)
            ready: list[Any] = []
            while not ready:
                left = None if due is None else max(0.0, due - time.monotonic())
                ready, _, _ = select.select([sys.stdin, reading], [], [], left)
                if not ready:
                    due = None
                    if view.opened is not None:
                        reading.ask(view.opened)
                    reading.ask()
            if reading in ready:
                for answer in reading.answers():
                    _take(view, answer)
                    if answer.load_id is None:
                        due = time.monotonic() + interval
            if sys.stdin in ready:
                before = view.opened
                for key in _pressed():
                    view.press(key)
                if view.opened not in (None, before):
                    reading.ask(view.opened)


def _take(view: View, answer: Answer) -> None:
    if isinstance(answer.error, MxError):
        view.fail(str(answer.error))
    elif answer.error is not None:
        raise answer.error
    elif answer.load_id is None:
        view.show(answer.found)
    else:
        view.show_load(answer.found)


def _pressed() -> Iterator[str]:
    """Keys that were pressed, once there is one."""
    text = os.read(sys.stdin.fileno(), 1024).decode("utf-8", "replace")
    if not text:
        yield "q"  # the terminal is gone
    for sent in _SENT.findall(text):
        yield _KEYS.get(sent, sent)


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
