"""The README's first screen and its commands work as they are written."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests import support
from tests.support import serving

README = (support.ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    stripped = (line.partition("#")[0].strip() for line in lines)
    return [command for command in stripped if command.startswith("mx-metrics ")]


@pytest.fixture
def environment(spawn: support.Spawner, tmp_path: Path) -> dict[str, str]:
    """What the README asks for, after its first lines have run in a rank."""
    (snippet,) = blocks("python")
    assert len(snippet.splitlines()) == 3
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(tmp_path / "log"),
        "MX_METRICS_PORT": str(support.free_port()),
    }
    rank = spawn.python("-c", snippet, env=environment)
    assert rank.result() == 0, rank.error_output
    return environment


def test_what_is_promised_comes_out(environment: dict[str, str], spawn: support.Spawner) -> None:
    (promised,) = (block for block in blocks("text") if block.startswith("# HELP"))
    assert len(promised.splitlines()) == 6
    serve, *_ = commands()
    exporter = spawn("sh", "-c", f"exec {serve}", env=environment)
    served = serving.Exporter(exporter, "127.0.0.1", int(environment["MX_METRICS_PORT"]))
    assert promised in support.wait_until(served.page)


@pytest.mark.parametrize("command", commands()[1:])
def test_commands_run(command: str, environment: dict[str, str], spawn: support.Spawner) -> None:
    process = spawn("sh", "-c", f"exec {command}", env=environment)
    assert process.result() == 0, process.error_output
    assert process.output


def test_make_targets_exist(spawn: support.Spawner) -> None:
    makefile = (support.ROOT / "Makefile").read_text()
    pages = README + (support.ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"\bmake (?!are)(\w+)", "\n".join(re.findall(r"`[^`]+`", pages))))
    targets |= set(re.findall(r"^make (\w+)", pages, re.MULTILINE))
    assert {"demo", "test", "lint", "docs"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        dry = spawn("make", "-n", target, "ARGS=--some-argument", cwd=support.ROOT)
        assert dry.result() == 0, dry.error_output
        if target in ("demo", "test"):
            assert "--some-argument" in dry.output
