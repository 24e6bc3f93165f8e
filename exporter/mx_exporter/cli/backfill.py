"""``mx-metrics backfill``: samples of a time in which nobody scraped."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from ..config import read_settings
from ..errors import UsageError
from ..log_setup import log_to_stderr
from ..option_values import parse_label, parse_step, parse_time
from .engine import cluster_options
from .options import (
    all_parsed,
    complete,
    output_option,
    parsed,
    remote_write_options,
    settings_options,
)
from .output import Output
from .reading import Progress, say_absent, say_problems
from .stdio import PROG, put, say

if TYPE_CHECKING:
    from ..offline.engines.engine import Engine

#: Seconds before now whose blocks may collide with what a running server holds in memory.
_HEAD_SECONDS = 3 * 3600

#: By which pods are told apart.
_POD = ("pod", "namespace", "node")


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@output_option("Write OpenMetrics there; - is standard output.")
@remote_write_options
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
@cluster_options
def backfill(
    logs: tuple[str, ...],
    output: str | None,
    remote_write: str | None,
    bearer_token_file: str | None,
    step: int,
    labels: list[tuple[str, str]],
    since: str | None,
    until: str | None,
    jobs: Engine | None,
    **flags: str | bool | None,
) -> int:
    """Write what scrapes of LOGS would have seen, for Prometheus to take up afterwards, or send it
    there.

    There is a sample at each step from a series' first event to the end of its pod's log, and a
    zero before what only grows. LOGS are given as for replay, without snapshots. The file is there
    whole or not at all. Exits with 1 when something of LOGS is missing from it.
    """
    if (output is None) == (remote_write is None):
        raise UsageError("-o and --remote-write: give one of them")
    settings = read_settings(flags, names=["catalog"])
    from ..backfill.history import History
    from ..backfill.openmetrics import pages
    from ..backfill.remote import send
    from ..directory.generations import retry_overtaken
    from ..push.post import target
    from ..push.remote_write import RemoteWriter
    from ..tables.read import catalog_of
    from .deriving import check_free

    catalog = catalog_of(settings.catalog)
    fixed = dict(labels)
    to = None if remote_write is None else target(remote_write, bearer_token_file)
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
                jobs=jobs,
                progress=progress.begin,
            )
        )
    if to is not None:
        log_to_stderr(f"{PROG} ")
        writer = RemoteWriter(to)
        send(history, step, writer)
        put(f"{writer.sent} samples were sent to {to.shown}\n".encode())
    else:
        with Output(output) as file:
            for part in pages(history, step):
                file.write(part)
    say_problems(history.read)
    absent = say_absent(history.found, history.snapshots, history.read)
    if output is not None and output != "-":
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics"]
        put(f"{shlex.join([*command, '--max-block-duration=720h', output])} DATADIR\n".encode())
        if history.last > time.time() - _HEAD_SECONDS:
            say(
                "some samples are of the last three hours: blocks of them collide with what a "
                "running server holds; make those later, or leave the time out by --until 3h"
            )
    return int(history.read.short or absent)
