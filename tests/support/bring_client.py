"""Brings releases of the published client, for the tests and benchmarks that compare with it.

Each goes into a folder of its own below ``.venv/clients``, without its dependencies, of which the
metrics need none; its package opens empty, so that nothing but the metrics and their settings is
imported.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.shared import locked

CLIENTS = Path(__file__).resolve().parent.parent.parent / ".venv" / "clients"


def bring(version: str) -> Path:
    """The folder of a release. Raises RuntimeError when it cannot be had."""
    folder = CLIENTS / version
    CLIENTS.mkdir(parents=True, exist_ok=True)
    with locked(CLIENTS / ".lock"):
        if folder.exists():
            return folder
        fresh = CLIENTS / f".{version}"
        shutil.rmtree(fresh, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--target", fresh, f"modelexpress=={version}"],
            capture_output=True,
            text=True,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(
                f"modelexpress {version} cannot be installed: {done.stderr[-300:].strip()}"
            )
        (fresh / "modelexpress" / "__init__.py").write_text("")
        fresh.rename(folder)
        return folder


if __name__ == "__main__":
    for each in sys.argv[1:]:
        bring(each)
