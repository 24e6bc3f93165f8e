"""Every example of the documentation is what it says it is.

Each fenced block names its language. Python runs, a page's blocks one after the other, and logs
nothing that the product refuses; commands of ours are understood by our own command lines, and run
where that is cheap; YAML, TOML, JSON and PromQL are parsed; SQL runs in the test of
`mx-metrics events`. ``text`` is no example. What cannot be
tried has a comment before it, ``<!-- not tried: why -->``.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

import mx_exporter
from mx_demo.fleet import write_fleet
from mx_exporter.cli.main import cli
from tests import support
from tests.support import serving

PAGES = sorted([*support.ROOT.glob("*.md"), *support.ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(
    r"(?P<skip><!-- not tried: [^>]+ -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    page: str
    language: str
    text: str
    skipped: bool


def blocks(page: Path) -> Iterator[Block]:
    name = str(page.relative_to(support.ROOT))
    for found in _FENCE.finditer(page.read_text()):
        yield Block(name, found["language"], found["text"], found["skip"] is not None)


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(*languages: str) -> list[Block]:
    return [one for one in BLOCKS if one.language in languages and not one.skipped]


def test_each_block_says_what_it_is() -> None:
    known = {"python", "sh", "yaml", "toml", "json", "promql", "sql", "text"}
    for block in BLOCKS:
        assert block.language in known, f"{block.page}: {block.text[:60]!r}"
    # None is overlooked, such as one that is indented.
    fences = sum(page.read_text().count("```") for page in PAGES)
    assert fences == 2 * len(BLOCKS)
    assert {"python", "sh", "yaml", "toml", "json"} <= {block.language for block in BLOCKS}
    # What is not tried is the exception.
    assert sum(block.skipped for block in BLOCKS) <= 3


PYTHON = sorted({block.page for block in of("python")})


@pytest.mark.parametrize("page", PYTHON)
def test_python_runs_and_nothing_of_it_is_refused(
    page: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    program = "\n".join(block.text for block in of("python") if block.page == page)
    log = tmp_path / "log"
    write_fleet(tmp_path / "fleet", 1, start=0)  # as the page's commands do
    env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(log)}
    done = spawn.python("-c", program, env=env, cwd=tmp_path)
    assert done.result() == 0, done.error_output
    assert done.error_output == ""
    if log.exists():
        state = mx_exporter.replay(str(log))
        assert not state.refused, page
        assert not state.rejected, page


def commands(block: Block) -> Iterator[list[str]]:
    """The simple commands of a block, by words; variables that are set for one are left out."""
    joined = block.text.replace("\\\n", " ")
    for line in joined.splitlines():
        words = shlex.split(line, comments=True)
        for bar in ("|", "&&", ";"):
            words = [part for word in words for part in ([bar] if word == bar else [word])]
        command: list[str] = []
        for word in [*words, "|"]:
            if word in ("|", "&&", ";"):
                while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                    del command[0]
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def ours(command: list[str]) -> tuple[str, list[str]] | None:
    """Which of our command lines a command is, with its arguments."""
    name = Path(command[0]).name
    if name == "mx-metrics":
        return "mx_exporter", command[1:]
    if re.fullmatch(r"python3?", name) and command[1:2] == ["-m"]:
        return command[2], command[3:]
    return None


@pytest.mark.parametrize("block", of("sh"), ids=lambda block: block.page)
def test_commands_are_understood(block: Block) -> None:
    done = subprocess.run(
        ["sh", "-n"], input=block.text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    makefile = (support.ROOT / "Makefile").read_text()
    for command in commands(block):
        name = Path(command[0]).name
        if (found := ours(command)) is None:
            assert not name.startswith("mx"), command
            if name == "make":
                assert re.search(rf"^{command[1]}:", makefile, re.MULTILINE), command
            continue
        module, arguments = found
        assert module in ("mx_exporter", "mx_emitter", "venv"), command
        if module == "mx_exporter":
            understood(arguments)


def understood(arguments: list[str]) -> None:
    """That the command line takes these, which are not run. An option that it does not have is a
    usage error. Without any it prints its help, or the shell's completion."""
    if not arguments:
        return
    context = cli.make_context("mx-metrics", list(arguments))
    name, command, rest = cli.resolve_command(context, list(arguments))
    assert command is not None
    command.make_context(name, rest, parent=context)


def spans(page: Path) -> Iterator[str]:
    """What stands in backquotes in the text of a page."""
    prose = _FENCE.sub("", page.read_text())
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(support.ROOT)))
def test_commands_in_the_text_are_understood(page: Path) -> None:
    for span in spans(page):
        if span.startswith("mx-metrics ") and "|" not in span:
            # A command's name alone is no call of it.
            with contextlib.suppress(click.MissingParameter):
                understood(shlex.split(span)[1:])


def only_reads(command: list[str]) -> bool:
    """Whether a command of ours reads what the variable names, and nothing else."""
    module, arguments = ours(command) or ("", [])
    first = arguments[0] if arguments else ""
    reading = {"mx_exporter": ("replay", "check"), "mx_emitter": ("", "doctor", "reset")}
    return first in reading.get(module, ()) and all(
        word == "$MX_METRICS_DIR" or word.startswith("--") for word in arguments[1:]
    )


CHEAP = sorted(
    {" ".join(command) for block in of("sh") for command in commands(block) if only_reads(command)}
)


@pytest.mark.parametrize("command", CHEAP)
def test_commands_that_only_read_run(command: str, spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    if "reset" not in command:
        serving.attempts(log, 3)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "MX_METRICS_DIR": str(log), "MX_METRICS_ENABLED": "1"}
    done = spawn("sh", "-c", command, env=env)
    assert done.result() == 0, done.error_output


def test_there_are_commands_that_run() -> None:
    assert {"mx-metrics replay", "mx-metrics check $MX_METRICS_DIR"} <= {*CHEAP}


def test_data_can_be_parsed() -> None:
    for block in of("yaml"):
        assert list(yaml.safe_load_all(block.text)), block
    for block in of("json"):
        for line in block.text.splitlines():
            assert json.loads(line), block
    if sys.version_info >= (3, 11):
        import tomllib

        for block in of("toml"):
            assert tomllib.loads(block.text), block


def queries() -> Iterator[str]:
    """Blocks, and spans that can be nothing else."""
    yield from (" ".join(block.text.split()) for block in of("promql"))
    for page in PAGES:
        for span in spans(page):
            if span.startswith("mx-metrics "):
                continue
            if re.search(r"\bmx_\w+", span) and re.search(r"==|\bunless\b|\bby \(|\{", span):
                yield span


def test_queries_can_be_asked(promtool: str, tmp_path: Path) -> None:
    rules = [{"record": f"q{n}", "expr": query} for n, query in enumerate(queries())]
    assert len(rules) >= 4
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "rules.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
