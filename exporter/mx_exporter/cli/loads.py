"""``mx-metrics loads``: which loads there were, how long each took, and why."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..option_values import parse_at_least_one
from .engine import cluster_options
from .filters import filters
from .options import complete, jobs_option, parsed
from .reading import Progress, read_loads, say_absent, say_problems, style
from .stdio import PROG, put, say

if TYPE_CHECKING:
    from ..analysis.summary import Summary
    from ..loads.model import Load
    from ..loads.selection import Selection
    from ..offline.engines.engine import Engine
    from ..offline.read_loads import LoadReader

#: Rows that are shown unless more are asked for.
_ROWS = 20


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option("--json", "output", flag_value="json", help="Print one JSON object a load.")
@click.option("--csv", "output", flag_value="csv", help="Print CSV.")
@click.option(
    "--by",
    type=click.Choice(["pod", "node", "peer", "model", "scheme", "version"]),
    metavar="KEY",
    help="Print a row a group, with exact quantiles: by pod, node, peer, model, scheme or version.",
)
@click.option("--starts", is_flag=True, help="Print a row a start of a pod: its slowest rank.")
@click.option(
    "--slowest",
    callback=parsed(parse_at_least_one),
    metavar="N",
    help=f"Print so many, those that matter most. [default: {_ROWS}]",
)
@click.option("--all", "everything", is_flag=True, help="Print all.")
@click.option("--failed", is_flag=True, help="Only loads that ended in error or never ended.")
@click.option("--running", is_flag=True, help="Only loads that run.")
@cluster_options
@filters
@jobs_option
def loads(
    logs: tuple[str, ...],
    output: str | None,
    by: str | None,
    starts: bool,
    slowest: int | None,
    everything: bool,
    failed: bool,
    running: bool,
    selection: Selection,
    jobs: int | Engine | None,
) -> int:
    """List the loads in LOGS: how long each took, what came of it, and why.

    LOGS are given as for replay. Without LOGS it is the directory of the environment, also beside
    an exporter: loads that run come first, then those that came to a bad end, then the slowest.
    Exits with 1 when LOGS hold no event.
    """
    from msgspec.structs import replace

    if failed or running:
        outcomes = {"error", "killed", "unknown"} if failed else set()
        selection = replace(
            selection, outcomes=frozenset(outcomes | ({"running"} if running else set()))
        )
    with Progress() as progress:

        def lines_of(reader: LoadReader) -> Iterator[bytes]:
            if output:
                return _sorted(reader, output)
            if starts:
                return _starts(reader)
            return _table(reader, None if everything else slowest or _ROWS, by, logs)

        reader, lines = read_loads(logs, lines_of, progress, selection=selection, jobs=jobs)
        for line in lines:
            progress.clear()
            put(line)
    if reader.compacted:
        say(
            f"{reader.compacted} events are left in a snapshot alone, and their loads cannot be "
            "listed"
        )
    say_problems(reader.read)
    absent = say_absent(reader.found, reader.snapshots, reader.read)
    return int(reader.read.short or absent)


def _sorted(reader: LoadReader, output: str) -> Iterator[bytes]:
    """In the order in which they began."""
    from ..analysis.load_lines import csv_head, csv_line, json_line
    from ..offline.sorted_runs import SortedRuns

    runs = SortedRuns()
    for key, line in reader.each(json_line if output == "json" else csv_line):
        runs.add(key, line)
    if output == "csv":
        yield csv_head() + b"\n"
    yield from runs


def _starts(loads: Iterable[Load]) -> Iterator[bytes]:
    from ..analysis.load_table import start_lines
    from ..loads.starts import pod_starts

    for line in start_lines(pod_starts(loads), style()):
        yield _line(line)


def _table(
    loads: Iterable[Load], most: int | None, by: str | None, logs: tuple[str, ...]
) -> Iterator[bytes]:
    from ..analysis.load_table import group_lines, headline, load_lines, peer_lines
    from ..analysis.summary import Summary

    look = style()
    summary = Summary(most=0 if by else most, by=by)
    for load in loads:
        summary.add(load)
    yield _line(textwrap.fill(headline(summary), look.width or sys.maxsize))
    if not summary.all.total:
        return
    yield b"\n"
    if by:
        groups = summary.peers if by == "peer" else summary.groups
        yield from map(_line, group_lines(by, groups, look))
        return
    yield from map(_line, load_lines(summary.worst(), look))
    rest = summary.all.total - len(summary.worst())
    if rest:
        first, last = summary.left
        yield _line(f"… {rest} more, {first:.1f} to {last:.1f} s (--all)")
    peers = peer_lines(summary, look)
    if peers:
        yield b"\n"
        yield from map(_line, peers)
    yield from _next(summary, logs)


def _next(summary: Summary, logs: tuple[str, ...]) -> Iterator[bytes]:
    from ..offline.stores import shown

    first = next((load.load_id for load in summary.worst() if load.load_id), None)
    if first and "-" not in logs:
        yield _line(f"\nNext: {PROG} explain {shlex.join([first, *map(shown, logs)])}")


def _line(text: str) -> bytes:
    return f"{text}\n".encode("utf-8", "backslashreplace")
