"""Certificates, and a log to serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import serving
from tests.support.secured import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "web")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    serving.attempts(tmp_path / "log", 3)
    return tmp_path / "log"
