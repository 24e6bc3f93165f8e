"""ruff and mypy find nothing."""

from __future__ import annotations

import sys

import pytest

from tests import support


def test_ruff(spawn: support.Spawner) -> None:
    ruff = spawn(sys.executable, "-m", "ruff", "check", cwd=support.ROOT)
    assert ruff.result() == 0, ruff.output


@pytest.mark.long
def test_mypy(spawn: support.Spawner) -> None:
    mypy = spawn(sys.executable, "-m", "mypy", cwd=support.ROOT)
    assert mypy.result(300) == 0, mypy.output
