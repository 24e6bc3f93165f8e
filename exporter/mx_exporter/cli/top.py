"""``mx-metrics top``."""

from __future__ import annotations

import click

from ..option_values import parse_duration
from .extras import require_packages
from .options import complete, parsed


@click.command()
@click.argument("where", required=False, metavar="[DIR|URL]", shell_complete=complete("dir"))
@click.option(
    "--interval",
    callback=parsed(parse_duration),
    metavar="SECONDS",
    help="Seconds between two looks. [default: 1]",
)
def top(where: str | None, interval: float | None) -> None:
    """Show loads in the terminal as they go: those in progress, then the latest.

    Of DIR, which is only read, also beside its exporter, or of an exporter elsewhere by its URL.
    Without either it is the directory of the environment. Keys: s sorts, Enter opens a load, q
    quits.
    """
    require_packages("top")
    from ..top.sources import source_of
    from ..top.terminal import run

    run(source_of(where), max(0.1, 1.0 if interval is None else interval))
