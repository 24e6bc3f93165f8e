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
@click.option("--force", is_flag=True, help="Ask nobody: events of living ranks may be lost.")
def reset(force: bool, **flags: str | bool | None) -> None:
    """Remove what earlier runs left in the directory, for an entrypoint.

    Segments and snapshots go; the lock and files of others stay. Exits with 1, having removed
    nothing, while a rank or an exporter uses the directory. It is the emitter's own: containers
    without this command have `python -m mx_emitter reset`.
    """
    directory = read_settings(flags, names=["directory"]).directory
    given = [f"--dir={directory.path}"] if directory.named else []
    asked = ["--force"] if force else []
    need_stdout()
    emitter = [sys.executable, "-m", "mx_emitter", "reset", f"--program={PROG}"]
    os.execv(sys.executable, [*emitter, *given, *asked])
