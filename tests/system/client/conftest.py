"""Programs that use a real release of the client."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import support
from tests.support.emitting import Program


class ClientProgram(Program):
    """Programs that find a release of the client, and emit into a directory of their own."""

    def __init__(self, spawn: support.Spawner, directory: Path, version: str, folder: Path) -> None:
        super().__init__(spawn, directory)
        self.version = version
        self.path = str(folder)

    def start(self, code: str, *arguments: str, **env: str) -> support.Process:
        path = os.pathsep.join(filter(None, [env.pop("PYTHONPATH", ""), self.path]))
        return super().start(code, *arguments, **{"PYTHONPATH": path, **env})

    def names_and_levels(self) -> list[tuple[str, str]]:
        return [(event["event"], event["level"]) for event in self.log.events()]


@pytest.fixture
def program(client: tuple[str, Path], spawn: support.Spawner, tmp_path: Path) -> ClientProgram:
    """Runs programs with each release of the client."""
    return ClientProgram(spawn, tmp_path / "log", *client)
