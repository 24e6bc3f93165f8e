"""A real pseudo-terminal with a program in it, and what it shows."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import time
from collections.abc import Callable

import pyte

from tests import support

#: Pieces of output that are read before somebody looks: a program may draw as fast as they are.
_AT_ONCE = 20


class Terminal:
    """A terminal of so many columns and lines.

    :param start: starts the program, given the terminal's descriptor.
    """

    def __init__(
        self, start: Callable[[int], support.Process], columns: int = 80, lines: int = 24
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._fd, inner = os.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(inner)
        self._inner = inner
        self.process = start(inner)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read(self) -> list[str]:
        """What the terminal shows now, line by line."""
        for _ in range(_AT_ONCE):
            if not select.select([self._fd], [], [], 0)[0]:
                break
            self._stream.feed(os.read(self._fd, 65536))
        return [line.rstrip() for line in self._screen.display]

    def wait_for(self, *texts: str, limit: float = 30.0) -> list[str]:
        """Read until the terminal shows all texts."""
        deadline = time.monotonic() + limit
        while True:
            shown = self.read()
            if all(any(text in line for line in shown) for text in texts):
                return shown
            assert time.monotonic() < deadline, "\n".join([f"no {texts}", *shown])
            select.select([self._fd], [], [], 0.1)

    def result(self) -> int:
        """Wait for the program's end and return its exit status.

        Its output is read meanwhile: a program that leaves a terminal waits until all is read.
        """
        support.wait_until(lambda: (self.read(), self.process.poll() is not None)[1])
        return self.process.result()

    @property
    def attributes(self) -> list[object]:
        """The terminal's own settings, as programs leave them."""
        return termios.tcgetattr(self._inner)

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._inner)


def output_of(
    spawn: support.Spawner,
    arguments: list[str | os.PathLike[str]],
    *,
    columns: int,
    environment: dict[str, str] | None = None,
) -> str:
    """All that a command of ``mx-metrics`` prints on a terminal of so many columns."""
    fd, inner = os.openpty()
    try:
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        # What a shell said of another terminal is of no account.
        env = {"TERM": "xterm", "COLUMNS": "0", **(environment or {})}
        process = spawn.python("-m", "mx_exporter", *arguments, stdout=inner, env=env)
    finally:
        os.close(inner)
    told = b""
    with open(fd, "rb", buffering=0) as terminal:
        while True:
            try:
                told += terminal.read(65536)
            except OSError:  # nobody has the other end any more
                break
    assert process.result() == 0, process.error_output
    return told.decode().replace("\r\n", "\n")
