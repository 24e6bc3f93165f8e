"""Help in one style and as wide as the terminal, and what a shell completes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mx_exporter.cli.main import cli
from tests import support

COMMANDS = [
    ("-m", "mx_exporter"),
    *(("-m", "mx_exporter", name) for name in cli.commands),
    ("-m", "mx_emitter"),
    *(("-m", "mx_emitter", name) for name in ("doctor", "reset", "run")),
]


def help_of(command: tuple[str, ...], columns: int) -> str:
    done = subprocess.run(
        [sys.executable, *command, "--help"],
        env=support.clean_environment(COLUMNS=str(columns)),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_in_one_style_and_as_wide_as_the_terminal(command: tuple[str, ...]) -> None:
    text = help_of(command, 500)
    lines = text.splitlines()
    assert lines[0].startswith("Usage: ")
    assert max(map(len, lines)) <= 120
    assert max(map(len, help_of(command, 60).splitlines())) <= 60
    # Whole sentences, the default behind them.
    flat = " ".join(text.split())
    assert "Show this message and exit." in flat
    options = text.partition("Options:\n")[2].partition("\n\n")[0].split("\n  -")
    for option in options:
        words = " ".join(option.split())
        assert words.endswith((".", "]")), words
        assert not words.endswith("].")
        assert ". [" in words or "[" not in words, words
    for words in ("optional", "positional", "[x>=1]", "INTEGER"):
        assert words not in text


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("serve --dir /t", "dir,/t"),
        ("serve --archive-dir /t", "dir,/t"),
        ("serve --web.config.file /t", "file,/t"),
        ("reset --dir /t", "dir,/t"),
        ("push /t", "dir,/t"),
        ("replay /t", "file,/t"),
        ("check a /t", "file,/t"),
        ("run -- /t", "file,/t"),
        ("se", "plain,serve"),
        ("serve --web", "plain,--web.config.file"),
        ("reset --dry", "plain,--dry-run"),
    ],
)
def test_a_shell_completes_commands_options_and_paths(words: str, completed: str) -> None:
    given = words.split()
    done = subprocess.run(
        [sys.executable, "-m", "mx_exporter"],
        env=support.clean_environment(
            _MX_METRICS_COMPLETE="bash_complete",
            COMP_WORDS=f"mx-metrics {words}",
            COMP_CWORD=str(len(given)),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [completed], done.stderr
