"""``mx-metrics run``."""

from __future__ import annotations

import click

from ..config import PUSHING, doubts, read_settings
from .options import SERVING, complete, settings_options


# Options after the command's name belong to the command: `run sleep --help` is sleep's help.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=complete("file")
)
@click.option("--reset", is_flag=True, help="Remove what earlier runs left in the directory.")
@settings_options(*SERVING, *PUSHING)
def run(command: tuple[str, ...], reset: bool, **flags: str | bool | None) -> int:
    """Run COMMAND with metrics on, and their exporter beside it.

    For one container without a sidecar: write `mx-metrics run -- COMMAND ARGUMENTS`. Signals are
    passed on, orphans are reaped, and the exit status is the command's (128+n for signal n).
    Nothing that happens to the exporter ends the command. With --pushgateway, --remote-write or
    --otlp and no port, the metrics are pushed once, when the command has ended.
    """
    warnings: list[str] = []
    settings = read_settings(
        flags, tolerate=lambda message: warnings.append(f"{message}; going on without it")
    )
    warnings += doubts()
    from ..service.supervisor import run as run_engine

    return run_engine(settings, command, reset=reset, warnings=warnings)
