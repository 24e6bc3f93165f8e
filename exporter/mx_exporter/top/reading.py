"""Reading a source in a thread, since one that is slow must not hold up a key."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from .sources import Source


class Answer(NamedTuple):
    """What a source gave.

    :ivar load_id: the load that was asked for; None: all of them.
    :ivar error: why there is nothing.
    """

    load_id: str | None
    found: dict[str, Any]
    error: Exception | None = None


class Reading:
    """As a context manager. It can be waited for as a file: there are answers when it has input.

    :param source: used by that thread alone.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._bell, self._ring = socket.socketpair()

    def __enter__(self) -> Reading:
        # A daemon: a source that does not answer must not keep the process from ending.
        threading.Thread(target=self._run, name="mx-top", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bell.close()
        self._ring.close()

    def fileno(self) -> int:
        """By which it is waited for."""
        return self._bell.fileno()

    def ask(self, load_id: str | None = None) -> None:
        """Have the source read, after all that was asked for before."""
        self._asked.put(load_id)

    def answers(self) -> Iterator[Answer]:
        """The answers that there are, once there is input."""
        for _ in self._bell.recv(1024):
            yield self._answers.get()

    def _run(self) -> None:
        while True:
            load_id = self._asked.get()
            try:
                answer = Answer(load_id, self._source.read(load_id))
            except Exception as error:  # noqa: BLE001 - judged where it is taken
                answer = Answer(load_id, {}, error)
            self._answers.put(answer)
            with contextlib.suppress(OSError):  # the terminal was left
                self._ring.send(b".")
