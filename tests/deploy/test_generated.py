"""The generated files in deploy/ match their sources."""

from __future__ import annotations

import sys

import pytest

from tests import support


@pytest.mark.usefixtures("kubectl")  # without it, what is built from examples is not compared
def test_generated_files_are_not_stale(spawn: support.Spawner) -> None:
    check = spawn(sys.executable, support.ROOT / "deploy" / "generate.py", "--check")
    assert check.result() == 0, check.error_output
    assert check.error_output == ""
