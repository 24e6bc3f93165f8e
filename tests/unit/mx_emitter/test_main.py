"""The emitter's commands fail with a message where they cannot print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import support

COMMANDS = {"doctor": [], "doctor as json": ["doctor", "--json"], "reset": ["reset"]}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("redirect", "said"),
    [
        (">/dev/full", "mx_emitter: standard output cannot be written: No space left on device\n"),
        (">&-", "mx_emitter: standard output is closed; nothing can be printed\n"),
        (">/dev/full 2>&-", ""),
    ],
    ids=["full", "closed", "both"],
)
def test_output_that_cannot_be_written_is_a_failure(
    arguments: list[str], redirect: str, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m mx_emitter "$@" {redirect}', sys.executable, *arguments],
        env=support.clean_environment(MX_METRICS_DIR=str(tmp_path / "none")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == said
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_closed_pipe_gives_no_message(arguments: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mx_emitter", *arguments],
            env=support.clean_environment(MX_METRICS_DIR=str(tmp_path / "none")),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 1
