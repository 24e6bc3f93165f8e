"""``mx-metrics backfill``: samples of a time in which nobody scraped."""

from __future__ import annotations

import shlex
import time

import click

from ..config import read_settings
from ..errors import UsageError
from ..option_values import parse_label, parse_step, parse_time
from .options import all_parsed, complete, parsed, settings_options
from .output import Output
from .reading import Progress, say_absent, say_problems
from .stdio import put, say

#: Seconds before now whose blocks may collide with what a running server holds in memory.
_HEAD_SECONDS = 3 * 3600

#: By which pods are told apart.
_POD = ("pod", "namespace", "node")


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete("file"),
    help="Write OpenMetrics there; - is standard output.",
)
@click.option(
    "--step",
    callback=parsed(parse_step),
    metavar="TIME",
    default="15s",
    help="Time between two scrapes. [default: 15s]",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    callback=all_parsed(parse_label),
    metavar="NAME=VALUE",
    help="A label of all series, such as job=NAME; pod, namespace and node stand for those of the "
    "headers, and are left out where the value is empty. May be given for several.",
)
@click.option(
    "--since", callback=parsed(parse_time), metavar="TIME", help="Only samples from then on."
)
@click.option(
    "--until", callback=parsed(parse_time), metavar="TIME", help="Only samples before then."
)
@settings_options("catalog")
def backfill(
    logs: tuple[str, ...],
    output: str | None,
    step: int,
    labels: list[tuple[str, str]],
    since: str | None,
    until: str | None,
    **flags: str | bool | None,
) -> int:
    """Write what scrapes of LOGS would have seen, for Prometheus to take up afterwards.

    There is a sample at each step from a series' first event to the end of its pod's log, and a
    zero before what only grows. LOGS are given as for replay, without snapshots. The file is there
    whole or not at all. Exits with 1 when something of LOGS is missing from it.
    """
    if output is None:
        raise UsageError("-o: name the file to be written, or - for standard output")
    settings = read_settings(flags, names=["catalog"])
    from ..backfill.history import History
    from ..backfill.openmetrics import pages
    from ..directory.generations import retry_overtaken
    from ..tables.read import catalog_of
    from .deriving import check_free

    catalog = catalog_of(settings.catalog)
    fixed = dict(labels)
    check_free(catalog, "--label", [*_POD, *fixed])
    with Progress() as progress:
        history = retry_overtaken(
            lambda: History(
                catalog,
                logs,
                step=step,
                labels=_POD,
                fixed=fixed,
                since=since,
                until=until,
                progress=progress.begin,
            )
        )
    with Output(None if output == "-" else output) as file:
        for part in pages(history, step):
            file.write(part)
    say_problems(history.read)
    absent = say_absent(history.found, history.snapshots, history.read)
    if output != "-":
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics"]
        put(f"{shlex.join([*command, '--max-block-duration=720h', output])} DATADIR\n".encode())
    if history.last > time.time() - _HEAD_SECONDS:
        say(
            "some samples are of the last three hours: blocks of them collide with what a running "
            "server holds; make those later, or leave the time out by --until 3h"
        )
    return int(history.read.short or absent)
