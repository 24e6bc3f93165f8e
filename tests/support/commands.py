"""The commands that read logs, run in this process. Fixtures of `tests/unit/mx_exporter`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mx_exporter.cli import check, main, replay

Run: TypeAlias = Callable[..., tuple[int, bytes, str]]
Checked: TypeAlias = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a replay: its exit code, standard output and standard error."""

    def run(*logs: Path | str, **options: Any) -> tuple[int, bytes, str]:
        code = replay.run(tuple(map(str, logs)), **options)
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


@pytest.fixture
def checked(capfdbinary: pytest.CaptureFixture[bytes]) -> Checked:
    """Run a check, which says nothing on standard error: its exit code, and its report's lines."""

    def run(*logs: Path | str, **options: Any) -> tuple[int, list[str]]:
        code = check.run(tuple(map(str, logs)), **options)
        out, err = capfdbinary.readouterr()
        assert err == b""
        return code, out.decode().splitlines()

    return run


@pytest.fixture
def mx_metrics(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Run]:
    """Run a command line: its exit code, standard output and standard error."""
    root, ours = logging.getLogger(), logging.getLogger("mx_exporter")
    levels, handlers = (root.level, ours.level), root.handlers[:]

    def run(*args: Path | str) -> tuple[int, bytes, str]:
        code = main.main(list(map(str, args)))
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    yield run
    # A command that logs says so of its whole process.
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    root.handlers[:] = handlers
