"""``mx-metrics replay``: logs in, the page out that a scrape would have shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from mx_log.words import counted

from ..config import SOURCE_ID_WARNING, read_settings
from ..option_values import parse_at_least_one
from .options import complete, parsed, settings_options
from .stdio import put, say

if TYPE_CHECKING:
    from ..exposition.samples import Collector
    from ..offline.fold_sources import Outcome
    from ..offline.inputs import SnapshotInput

#: Problems with single files that are printed one by one.
_PRINTED = 10


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
    from ..offline.absence import without_events
    from ..offline.fold_logs import fold_logs

    with _Progress() as progress:
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
    absent = list(without_events(found, snapshots, outcome.read.tallies))
    for line in absent[:_PRINTED]:
        say(line)
    if len(absent) > _PRINTED:
        say(f"{len(absent) - _PRINTED} more have no event")
    for name, error in failed.items():
        say(f"{name} could not be printed: {type(error).__name__}: {error}")
    return int(outcome.read.short or bool(failed) or bool(absent))


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
    for source, error in outcome.read.problems[:_PRINTED]:
        say(f"{source.shown}: {error}")
    if len(outcome.read.problems) > _PRINTED:
        more = counted(len(outcome.read.problems) - _PRINTED, "more file was", "more files were")
        say(f"{more} left alone or not read whole")
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


class _Progress:
    """Shows the share of the bytes that was read, on standard error if that is a terminal."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._next = 0.0
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._total:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def begin(self, total: int) -> Callable[[int], None]:
        """Show the share of ``total`` bytes; return the function that adds to those read."""
        self._total, self._done = total, 0
        return self._add

    def _add(self, count: int) -> None:
        self._done += count
        if self._terminal and self._total and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            sys.stderr.write(f"\rreading: {min(100, self._done * 100 // self._total)} %\x1b[K")
            sys.stderr.flush()
