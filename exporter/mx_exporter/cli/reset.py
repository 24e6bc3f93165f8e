"""``mx-metrics reset``: the emitter's own command, under the exporter's name."""

from __future__ import annotations

import os
import sys

import click

from ..config import read_settings
from .options import settings_options
from .stdio import PROG, need_stdout


@click.command()
@settings_options("directory")
@click.option(
    "--force", is_flag=True, help="Skip the check for living ranks; their events may be lost."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def reset(force: bool, dry_run: bool, **flags: str | bool | None) -> None:
    """Remove what earlier runs left in the directory, for an entrypoint.

    Segments and snapshots are removed; the lock and files of others stay. While a rank or an
    exporter uses the directory, nothing is removed and the exit code is 1. In a container without
    this command, `python -m mx_emitter reset` does the same.
    """
    directory = read_settings(flags, names=["directory"]).directory
    given = [f"--dir={directory.path}"] if directory.named else []
    asked = [*(["--force"] if force else []), *(["--dry-run"] if dry_run else [])]
    need_stdout()
    emitter = [sys.executable, "-m", "mx_emitter", "reset", f"--program={PROG}"]
    os.execv(sys.executable, [*emitter, *given, *asked])
