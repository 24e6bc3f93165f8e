"""``mx-metrics report``: one HTML file about the loads in some logs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from .filters import filters
from .options import complete, jobs_option, output_option
from .output import Output
from .reading import Progress
from .stdio import PROG, say

if TYPE_CHECKING:
    from ..loads.selection import Selection


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@output_option("Where to write it; - is standard output.", required=True)
@filters
@jobs_option
def report(logs: tuple[str, ...], output: str, selection: Selection, jobs: int | None) -> int:
    """Write one HTML file about the loads in LOGS: what stands out, and where the time went.

    LOGS are given as for replay; two of them are compared, as diff does. The file holds all that it
    shows, at most 2 MB, and is there whole or not at all. Exits with 1 when something of LOGS is
    missing from it.
    """
    from ..analysis.report import Gathered
    from ..core.builtin import CATALOG
    from ..directory.generations import retry_overtaken
    from ..offline.stores import shown
    from ..pages.report import pieces

    command = shlex.join([PROG, "report", *map(shown, logs), "-o", output])
    with Progress() as progress:
        found = retry_overtaken(
            lambda: Gathered(
                CATALOG,
                logs,
                selection=selection,
                command=command,
                jobs=jobs,
                progress=progress.begin,
            )
        )
    with Output(output) as target:
        for piece in pieces(found.sums, found.sources, found.compared):
            target.write(piece.encode("utf-8", "replace"))
    for problem in found.sources.problems[:10]:
        say(problem)
    return int(found.short)
