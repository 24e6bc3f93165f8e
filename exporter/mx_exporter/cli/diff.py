"""``mx-metrics diff``: whether loads take longer than others did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..errors import MxError
from ..option_values import parse_at_least_one
from .engine import cluster_options
from .filters import filters
from .options import complete, jobs_option, parsed
from .output import Output
from .reading import Progress, read_loads, say_absent, say_problems, style
from .stdio import put, say

if TYPE_CHECKING:
    from ..analysis.compare import Comparison, Side
    from ..analysis.gates import Verdict
    from ..loads.selection import Selection
    from ..offline.engines.engine import Engine

#: Exit code when a condition of --fail is met.
FAILED = 4


@click.command()
@click.argument("before", metavar="A", shell_complete=complete("file"))
@click.argument("after", metavar="B", shell_complete=complete("file"))
@click.option(
    "--by",
    type=click.Choice(["model", "engine", "node", "scheme", "version"]),
    metavar="KEY",
    help="Compare group by group: by model, engine, node, scheme or version.",
)
@click.option(
    "--fail",
    "gates",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 4 where it holds: 'receive.p50 > +20%', 'load.p95 > +5s', 'failed > 0'.",
)
@click.option(
    "--min-n",
    "least",
    callback=parsed(parse_at_least_one),
    metavar="N",
    help="Fewest starts of pods of which a difference is judged. [default: 6]",
)
@click.option("--json", "output", flag_value="json", help="Print JSON.")
@click.option("--markdown", "output", flag_value="markdown", help="Print Markdown.")
@click.option(
    "--junit",
    metavar="FILE",
    shell_complete=complete("file"),
    help="Write the conditions as test cases, for a CI, into FILE.",
)
@click.option(
    "--save",
    metavar="FILE",
    shell_complete=complete("file"),
    help="Write the figures of B into FILE, to be A another time.",
)
@click.option("--seed", type=int, default=0, metavar="N", help="Draws the intervals. [default: 0]")
@cluster_options
@filters
@jobs_option
def diff(
    before: str,
    after: str,
    by: str | None,
    gates: tuple[str, ...],
    least: int | None,
    output: str | None,
    junit: str | None,
    save: str | None,
    seed: int,
    selection: Selection,
    jobs: int | Engine | None,
) -> int:
    """Compare the loads of B with those of A: what became slower, and where the time went.

    A and B are each a directory, a file or a pattern, as for replay; A may be what --save wrote.
    Quantiles are exact. Intervals come from draws of starts of pods, since ranks of one start are
    not independent. Exits with 4 when a condition of --fail holds.
    """
    from ..analysis.baseline import dump
    from ..analysis.compare import compare, groups
    from ..analysis.compare_text import junit as junit_of
    from ..analysis.gates import judge, parse_gate
    from ..loads.compare import LEAST_STARTS

    conditions = [parse_gate(text) for text in gates]
    short = False
    sides: list[Side] = []
    with Progress() as progress:
        for name in (before, after):
            side, missing = _read(name, selection, jobs, progress)
            sides.append(side)
            short = short or missing
    if save is not None:
        with Output(save) as target:
            target.write(dump(sides[1]))
    least = LEAST_STARTS if least is None else least
    pairs = [("", sides[0], sides[1])] if by is None else list(groups(sides[0], sides[1], by))
    verdicts: list[Verdict] = []
    for number, (group, ours, theirs) in enumerate(pairs):
        found = compare(ours, theirs, seed=seed, least=least)
        judged = [judge(condition, found) for condition in conditions]
        verdicts += judged
        head = f"{by} {group}" if by else ""
        for line in _printed(found, judged, output, head, first=number == 0):
            put(line)
    if junit is not None:
        with Output(junit) as target:
            target.write(junit_of(verdicts).encode("utf-8", "backslashreplace"))
    if any(verdict.failed for verdict in verdicts):
        return FAILED
    return int(short)


def _printed(
    found: Comparison, verdicts: list[Verdict], output: str | None, head: str, *, first: bool
) -> Iterator[bytes]:
    import orjson

    from ..analysis.compare_text import as_object, markdown_lines, text_lines
    from ..analysis.text_table import harmless

    if output == "json":
        group = {"group": head} if head else {}
        yield orjson.dumps({**group, **as_object(found, verdicts)}) + b"\n"
        return
    lines: Iterator[str]
    if output == "markdown":
        lines, title = markdown_lines(found, verdicts), f"### {harmless(head)}"
    else:
        lines, title = text_lines(found, verdicts, style()), harmless(head)
    if not first:
        yield b"\n"
    if head:
        yield f"{title}\n\n".encode("utf-8", "backslashreplace")
    for line in lines:
        yield f"{line}\n".encode("utf-8", "backslashreplace")


def _read(
    name: str, selection: Selection, jobs: int | Engine | None, progress: Progress
) -> tuple[Side, bool]:
    """One side, and whether something of it is missing."""
    from ..analysis.baseline import is_baseline, load
    from ..analysis.compare import Side
    from ..loads.measured import measured
    from ..offline.stores import shown

    if is_baseline(name):
        return load(name), False
    reader, figures = read_loads(
        (name,),
        # In the order of time: what is drawn must not depend on the order of reading.
        lambda reader: sorted(reader.each(measured), key=lambda load: load.began[1:4]),
        progress,
        selection=selection,
        jobs=jobs,
    )
    loads = list(figures)
    progress.clear()
    name = shown(name)
    if reader.compacted:
        say(f"{name}: {reader.compacted} events are left in a snapshot alone, and their loads not")
    say_problems(reader.read)
    absent = say_absent(reader.found, reader.snapshots, reader.read)
    if not loads and not absent:
        raise MxError(f"{name}: there is no load to compare")
    return Side(name, loads), reader.read.short or absent
