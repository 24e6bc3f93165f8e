"""``mx-metrics replay``: logs in, the page out that a scrape would have shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from mx_log.words import counted

from ..config import SOURCE_ID_WARNING, read_settings
from ..option_values import parse_at_least_one
from .options import complete, parsed, settings_options
from .reading import Progress, say_absent, say_problems
from .stdio import put, say

if TYPE_CHECKING:
    from ..exposition.samples import Collector
    from ..offline.fold_sources import Outcome
    from ..offline.inputs import SnapshotInput


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option("--openmetrics", "output", flag_value="openmetrics", help="Print OpenMetrics.")
@click.option("--json", "output", flag_value="json", help="Print one JSON object a series.")
@click.option(
    "--jobs",
    callback=parsed(parse_at_least_one),
    metavar="N",
    help="Processes to use. [default: one a core]",
)
@settings_options("source_id_label")
@click.option(
    "--max-series",
    callback=parsed(parse_at_least_one),
    metavar="N",
    help="Most series of a family that are shown, the oldest. [default: no limit]",
)
def replay(
    logs: tuple[str, ...],
    output: str | None,
    jobs: int | None,
    max_series: int | None,
    **flags: str | bool | None,
) -> int:
    """Fold LOGS and print the metrics that a scrape would have shown.

    LOGS are directories, files, globs, or - for standard input; plain, compressed or archives; as
    they were written or as log collectors and tools give them back, with the snapshots of
    directories that were compacted. Without LOGS: the directory of the environment. Nothing is
    changed. Exits with 1 when LOGS hold no event.
    """
    settings = read_settings(flags, names=["source_id_label", "created_series"])
    return run(
        logs,
        output=output or "text",
        source_id_label=settings.source_id_label,
        created=settings.created_series,
        max_series=max_series,
        jobs=jobs,
    )


def run(
    logs: tuple[str, ...],
    *,
    output: str = "text",
    source_id_label: bool = False,
    created: bool = True,
    max_series: int | None = None,
    jobs: int | None = None,
) -> int:
    """Fold ``logs`` and print the page.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param output: ``text`` (the classic format), ``openmetrics`` or ``json`` (`json_lines`).
    :param created: with creation times in OpenMetrics.
    :param jobs: processes at most; None: as many as there are cores.
    :return: 0, or 1 when a file of ours could not be read to its end, so that totals are short,
        when an argument names no event, or when a family could not be printed.
    :raises UsageError: a path names nothing.
    :raises MxError: a snapshot cannot be used, or two of them know the same process.
    """
    from ..core.builtin import CATALOG
    from ..directory.generations import retry_overtaken
    from ..exposition.samples import derived_collectors
    from ..offline.fold_logs import fold_logs

    with Progress() as progress:
        found, snapshots, outcome = retry_overtaken(
            lambda: fold_logs(
                CATALOG, logs, max_series=max_series, jobs=jobs, progress=progress.begin
            )
        )
    collectors = derived_collectors(
        CATALOG,
        outcome.state,
        source_id_label=source_id_label,
        created=created or output == "json",
        max_series=max_series,
    )
    failed = _print_page(collectors, output)
    if source_id_label:
        say(SOURCE_ID_WARNING)
    _print_problems(snapshots, outcome)
    absent = say_absent(found, snapshots, outcome.read)
    for name, error in failed.items():
        say(f"{name} could not be printed: {type(error).__name__}: {error}")
    return int(outcome.read.short or bool(failed) or absent)


def _print_page(collectors: Iterable[Collector], output: str) -> dict[str, Exception]:
    """Print families; return those that raised, and what. The others are printed all the same."""
    from ..exposition.json_lines import json_lines
    from ..exposition.text import family_text, page

    openmetrics = output == "openmetrics"
    texts: list[bytes] = []
    failed: dict[str, Exception] = {}
    for name, collect in collectors:
        try:
            for family in collect():
                if output == "json":
                    texts.append(b"".join(json_lines([family])))
                else:
                    texts.append(family_text(family, openmetrics=openmetrics))
        except Exception as error:  # noqa: BLE001 - the family is named, whatever it is
            failed[name] = error
    put(page(texts, openmetrics))
    return failed


def _print_problems(snapshots: list[SnapshotInput], outcome: Outcome) -> None:
    """Print on standard error what did not become metrics, if anything."""
    for given in snapshots:
        if given.snapshot.changed:
            families = ", ".join(given.snapshot.changed)
            say(
                f"{given.source.shown}: derived with another table, so {families} "
                f"{'hold' if given.snapshot.changed[1:] else 'holds'} only what is in the segments"
            )
    say_problems(outcome.read)
    state = outcome.state
    faults = [
        counted(count, one, many)
        for count, one, many in (
            (state.rejected.total(), "line rejected", "lines rejected"),
            (state.refused.total(), "observation refused", "observations refused"),
            (state.lost, "event lost", "events lost"),
        )
        if count
    ]
    if faults:
        say(", ".join(faults) + "; `mx-metrics check` with the same arguments says which and why")
