"""A writer of segments that tests can stop at any byte: locks as the emitter does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tests.support import Lines


class Writer:
    """Holds its newest segment locked until `close`, as a living process does."""

    def __init__(self, directory: Path, proc: str = "aaaaaaaaaaaa") -> None:
        self.directory = directory
        self.lines = Lines(proc)
        self.n = 0
        self._fd = self._open()

    @property
    def path(self) -> Path:
        return self.directory / f"events-{self.lines.proc}-{self.n}.jsonl"

    def _open(self) -> int:
        """Whoever sees the segment by its name sees the lock and the header, too."""
        temporary = self.path.with_name(f".{self.path.name}")
        fd = os.open(temporary, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, self.lines.header(self.n))
        temporary.rename(self.path)
        return fd

    def write(self, text: bytes) -> None:
        os.write(self._fd, text)

    def log(self, event: str = "source_attempted", **fields: object) -> bytes:
        if event == "source_attempted":
            fields = {"policy": "random", "result": "success", **fields}
        line = self.lines(event, **fields)
        self.write(line)
        return line

    def rotate(self) -> None:
        old = self._fd
        self.n += 1
        self._fd = self._open()
        os.close(old)

    def reopen(self) -> None:
        """After `close`: go on in another segment, as a process does whose descriptor was taken."""
        self.n += 1
        self._fd = self._open()

    def close(self) -> None:
        """Let go of the lock: to everyone else the process is dead."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
