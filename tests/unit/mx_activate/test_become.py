"""A command that cannot be run: the status that a shell gives, and why."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mx_activate.become import become
from tests import support

EXECUTABLE, PLAIN = 0o755, 0o644


@pytest.mark.parametrize(
    ("text", "mode", "status", "words"),
    [
        (b"#!/no/such\n", EXECUTABLE, 127, "the interpreter of {path}, '/no/such', is missing"),
        (b"#! /no/such -x\n", EXECUTABLE, 127, "'/no/such', is missing"),
        (b"#!/bin/sh\r\n", EXECUTABLE, 127, "'/bin/sh\\r', is missing, for its lines end in CR LF"),
        (b"#!/etc/passwd\n", EXECUTABLE, 126, "'/etc/passwd', may not be executed"),
        (b"true\n", EXECUTABLE, 126, "names no interpreter after #!"),
        (b"", EXECUTABLE, 126, "names no interpreter after #!"),
        (b"#!/bin/sh\n", PLAIN, 126, "{path} is not executable; chmod +x"),
    ],
)
def test_a_file_that_cannot_be_run(
    text: bytes, mode: int, status: int, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "engine"
    path.write_bytes(text)
    path.chmod(mode)
    for name, environ in ((str(path), {}), ("engine", {"PATH": f"/nowhere:{tmp_path}"})):
        found, why = become([name, "x"], environ)
        assert found == status
        assert why.startswith(f"cannot run {name}: ")
        assert words.format(path=path) in why
        assert "\n" not in why
        assert "\r" not in why


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("", 127, "the command is empty; is the variable that should name it set?"),
        (" ", 127, "the command is empty"),
        ("no-such-command", 127, "No such file or directory"),
        ("/no/such/command", 127, "No such file or directory"),
        ("/tmp", 126, "/tmp is a directory"),
        ("/etc/passwd/x", 126, "Not a directory"),
    ],
)
def test_a_name_that_names_no_program(name: str, status: int, words: str) -> None:
    found, why = become([name], dict(os.environ))
    assert found == status
    assert words in why


def test_a_program_for_another_system(tmp_path: Path) -> None:
    program = bytearray(Path(shutil.which("true") or "").read_bytes())
    loader = program.find(b"/lib")
    program[loader : loader + 4] = b"/nil"
    path = tmp_path / "engine"
    path.write_bytes(program)
    path.chmod(EXECUTABLE)
    status, why = become([str(path)], {})
    assert (status, "it was built for another system" in why) == (127, True), why


@pytest.mark.parametrize("runner", ["mx_emitter", "mx_exporter"])
def test_both_command_lines_say_it_in_one_line(
    runner: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    options = ["--dir", str(tmp_path), "--port", "0"] if runner == "mx_exporter" else []
    done = spawn.python("-m", runner, "run", *options, "--", "")
    assert done.result() == 127
    (line,) = [each for each in done.error_output.splitlines() if "cannot run" in each]
    assert line.endswith("is the variable that should name it set?")
    assert "Traceback" not in done.error_output
