"""Tests of the emitter and the core with each Python that is supported: ``make test-pythons``.

What such a test finds is a difference of the interpreter or of the libraries that it gets, so a
few examples of each property will do, without what takes several seconds; ``make test`` has it all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .basics import ROOT

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")

TESTS = (
    "tests/unit/mx_log",
    "tests/unit/mx_emitter",
    "tests/unit/mx_exporter/core",
    "tests/unit/mx_exporter/exposition",
    "tests/unit/mx_exporter/tables/test_read.py",
)


def find_python(version: str) -> str | None:
    """An interpreter of a release like ``3.10``: this one, on the path, or of pyenv; None: none."""
    if version == _own():
        return sys.executable
    for path in _candidates(version):
        # A version manager's shim is on the path even when it leads nowhere.
        ends = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", ends], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    return None


def _candidates(version: str) -> Iterator[str]:
    found = shutil.which(f"python{version}")
    if found:
        yield found
    for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")):
        yield str(path)


def _own() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _environment(version: str, interpreter: str) -> Path:
    """The Python of an environment with what the tests need; made when there is none."""
    home = ROOT / f".venv-{version}"
    python, stamp = home / "bin" / "python", home / ".made"
    table = ROOT / "pyproject.toml"
    if not stamp.exists() or stamp.stat().st_mtime < table.stat().st_mtime:
        print(f"making {home.name}", flush=True)
        subprocess.run([interpreter, "-m", "venv", home], check=True)
        install = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([python, *install, "-e", ".[exporter,test-core]"], cwd=ROOT, check=True)
        stamp.touch()
    return python


def _passes(version: str, interpreter: str) -> bool:
    try:
        python = _environment(version, interpreter)
    except subprocess.CalledProcessError as error:
        print(f"Python {version}: no environment: {error}", flush=True)
        return False
    print(f"Python {version}:", flush=True)
    # Here a test may be left out: with the Python of `make test` it was not.
    environ = {name: value for name, value in os.environ.items() if name != "MX_TEST_ALL"}
    quick = ["-q", "-n", "2", "--hypothesis-profile=few", "-m", "not long"]
    command = [python, "-m", "pytest", *quick, *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main() -> int:
    """Run them; what is returned is an exit code."""
    others = [version for version in SUPPORTED if version != _own()]
    found = {version: find_python(version) for version in others}
    failed = [version for version, path in found.items() if path and not _passes(version, path)]
    missing = [version for version, path in found.items() if path is None]
    print(f"Python {_own()} is the one of `make test`.")
    if missing:
        print(f"Not tried, since they are not here: Python {', '.join(missing)}.")
    if failed:
        print(f"FAILED with Python {', '.join(failed)}.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
