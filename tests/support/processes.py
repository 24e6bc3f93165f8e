"""Real processes: started with a clean environment, ended with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.basics import clean_environment


class Process(subprocess.Popen[bytes]):
    """A real process in a session of its own, whose output goes to files.

    Files, not pipes: nobody has to read for it to go on. ``output`` and ``error_output``
    are what it has written so far.
    """

    def __init__(
        self,
        argv: Iterable[str | os.PathLike[str]],
        logs: Path,
        env: Mapping[str, str],
        **more: Any,
    ) -> None:
        self._logs = logs
        logs.mkdir(parents=True)
        with open(logs / "stdout", "wb") as out, open(logs / "stderr", "wb") as err:
            more.setdefault("stdin", subprocess.DEVNULL)
            more.setdefault("stdout", out)
            more.setdefault("stderr", err)
            super().__init__(list(argv), env=dict(env), start_new_session=True, **more)

    @property
    def output(self) -> str:
        return (self._logs / "stdout").read_text("utf-8", "replace")

    @property
    def error_output(self) -> str:
        return (self._logs / "stderr").read_text("utf-8", "replace")

    def result(self, limit: float = 60.0) -> int:
        """Wait for the end and return the exit status (-n when signal n ended it)."""
        try:
            return self.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.args!r} still runs after {limit:g} s\n{self.output}\n{self.error_output}"
            ) from None

    def end(self) -> None:
        """Kill it and everything it started in its session's process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()


class Spawner:
    """What the ``spawn`` fixture gives: starts processes, and ends them with the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.processes: list[Process] = []

    def __call__(
        self, *argv: str | os.PathLike[str], env: Mapping[str, str] | None = None, **more: Any
    ) -> Process:
        """Start ``argv``; ``env`` is added to the clean environment, the rest goes to Popen."""
        process = Process(
            argv,
            self._directory / f"process-{len(self.processes)}",
            clean_environment(**(env or {})),
            **more,
        )
        self.processes.append(process)
        return process

    def python(self, *arguments: str | os.PathLike[str], **more: Any) -> Process:
        """Start this interpreter, for example with ``"-c", code`` or ``"-m", module``."""
        return self(sys.executable, "-W", "error", *arguments, **more)

    def end(self) -> None:
        for process in self.processes:
            process.end()
