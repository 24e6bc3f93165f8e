"""An emitter of its own for each test, in this process, and what it has written."""

# ruff: noqa: ARG001 - a fixture is asked for by naming it

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_emitter.log import warn_once
from mx_emitter.log.sink import sink
from tests import support
from tests.support.emitting import Log, Program


def _as_if_just_imported() -> None:
    if sink.stream is not None:
        sink.stream.abandon()
    watching = sink._watching_forks
    sink.__init__()
    sink._watching_forks = watching
    warn_once._said.clear()


@pytest.fixture
def undecided() -> Iterator[None]:
    """The emitter as it is before its first event."""
    _as_if_just_imported()
    yield
    _as_if_just_imported()


@pytest.fixture
def log(undecided: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log of an emitter that is on; the directory is not made yet."""
    monkeypatch.setenv("MX_METRICS_ENABLED", "1")
    monkeypatch.setenv("MX_METRICS_DIR", str(tmp_path / "log"))
    return Log(tmp_path / "log")


@pytest.fixture
def program(spawn: support.Spawner, tmp_path: Path) -> Program:
    """Runs programs that emit; ``program.log`` is what they wrote."""
    return Program(spawn, tmp_path / "log")
