"""``mx-metrics replay``: logs in, the page out that a scrape would have shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..config import SOURCE_ID_WARNING, read_settings
from ..option_values import parse_at_least_one, parse_buckets, parse_names, parse_time
from .deriving import check_labels, window_of, with_buckets
from .engine import cluster_options
from .filters import load_filters
from .options import all_parsed, complete, jobs_option, parsed, settings_options
from .page import page_options, print_page, say_faults
from .reading import Progress, say_absent, say_problems
from .saving import check_whole, save_state_option, write_state
from .stdio import put, say

if TYPE_CHECKING:
    from ..core.catalog import Catalog
    from ..core.window import Window
    from ..loads.selection import Selection
    from ..offline.engines.engine import Engine
    from ..offline.fold_sources import Outcome
    from ..offline.inputs import SnapshotInput


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@page_options
@jobs_option
@settings_options("source_id_label", "catalog")
@click.option(
    "--max-series",
    callback=parsed(parse_at_least_one),
    metavar="N",
    help="Most series of a family that are shown, the oldest. [default: no limit]",
)
@click.option(
    "--at",
    callback=parsed(parse_time),
    metavar="TIME",
    help="The metrics as they stood then: 2026-01-31T12:00:00Z, a date, or 2h for two hours ago.",
)
@click.option(
    "--since",
    callback=parsed(parse_time),
    metavar="TIME",
    help="Only what was logged then or later; a load that began before is none.",
)
@click.option(
    "--until", callback=parsed(parse_time), metavar="TIME", help="Only what was logged before."
)
@click.option(
    "--group-by",
    callback=parsed(parse_names),
    metavar="LABELS",
    help="Tell these apart on every series, as headers say them: pod, namespace, node, hostname, "
    "pod_uid, rank, proc, worker_id, engine_version, gpu_type; several between commas.",
)
@click.option(
    "--buckets",
    multiple=True,
    callback=all_parsed(parse_buckets),
    metavar="FAMILY=BOUNDS",
    help="Other boundaries of a histogram, between commas; may be given for several.",
)
@cluster_options
@load_filters
@save_state_option
def replay(
    logs: tuple[str, ...],
    output: str | None,
    jobs: int | Engine | None,
    max_series: int | None,
    at: str | None,
    since: str | None,
    until: str | None,
    group_by: tuple[str, ...] | None,
    buckets: list[tuple[str, tuple[float, ...]]],
    selection: Selection,
    save_state: str | None,
    **flags: str | bool | None,
) -> int:
    """Fold LOGS and print the metrics that a scrape would have shown.

    LOGS are directories, files, globs, addresses (s3://BUCKET/LOGS, https://HOST/LOG), or - for
    standard input; plain, compressed or archives; as they were written or as log collectors and
    tools give them back, with the snapshots of directories that were compacted. Without LOGS: the
    directory of the environment. --pod and --node mean where an event's process ran, --model and
    --engine what its load loads. Nothing is changed. Exits with 1 when LOGS hold no event.
    """
    settings = read_settings(flags, names=["source_id_label", "created_series", "catalog"])
    from ..tables.read import catalog_of

    return run(
        logs,
        catalog=with_buckets(catalog_of(settings.catalog), buckets),
        window=window_of(since, until, at),
        selection=selection,
        group_by=group_by or (),
        output=output or "text",
        source_id_label=settings.source_id_label,
        created=settings.created_series,
        max_series=max_series,
        jobs=jobs,
        save_state=save_state,
    )


def run(
    logs: tuple[str, ...],
    *,
    catalog: Catalog | None = None,
    window: Window | None = None,
    selection: Selection | None = None,
    group_by: tuple[str, ...] = (),
    output: str = "text",
    source_id_label: bool = False,
    created: bool = True,
    max_series: int | None = None,
    jobs: int | Engine | None = None,
    save_state: str | None = None,
) -> int:
    """Fold ``logs`` and print the page.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param catalog: what is derived; None: the built-in one.
    :param window: the time of what is folded; None: all of it.
    :param selection: which events are folded (`EventFilter`); None: all.
    :param group_by: labels by which processes are told apart (`grouped.HEADER_LABELS`).
    :param output: ``text`` (the classic format), ``openmetrics`` or ``json`` (`json_lines`).
    :param created: with creation times in OpenMetrics.
    :param jobs: processes at most; None: as many as there are cores; or an engine.
    :param save_state: file that the state is written into as well.
    :return: 0, or 1 when a file of ours could not be read to its end, so that totals are short,
        when an argument names no event, or when a family could not be printed.
    :raises UsageError: a path names nothing; a snapshot does not tell what of it is meant; a state
        that is saved would not be whole.
    :raises MxError: a snapshot cannot be used, or two of them know the same process.
    """
    from ..core.builtin import CATALOG
    from ..core.saved_state import SavedState
    from ..core.window import ALWAYS
    from ..directory.generations import retry_overtaken
    from ..exposition.grouped import grouped_collectors
    from ..exposition.samples import derived_collectors
    from ..loads.selection import EVERY
    from ..offline.fold_logs import fold_logs
    from ..offline.scope import Scope

    chosen = CATALOG if catalog is None else catalog
    check_labels(chosen, "--group-by", group_by)
    scope = Scope(window or ALWAYS, selection or EVERY, group_by)
    if save_state is not None:
        check_whole(
            save_state,
            {
                "--group-by": group_by,
                "--max-series": max_series,
                "options that choose loads": scope.selection != EVERY,
            },
        )
    with Progress() as progress:
        found, snapshots, outcome = retry_overtaken(
            lambda: fold_logs(
                chosen,
                logs,
                max_series=max_series,
                jobs=jobs,
                progress=progress.begin,
                scope=scope,
            )
        )
    shown: Any = {
        "source_id_label": source_id_label,
        "created": created or output == "json",
        "max_series": max_series,
    }
    if group_by:
        collectors = grouped_collectors(chosen, group_by, outcome.states, **shown)
    else:
        collectors = derived_collectors(chosen, outcome.state, **shown)
    if save_state is not None:
        saved = SavedState(outcome.state, *scope.window[:2], short=outcome.read.short)
        write_state(save_state, chosen, saved)
    failed = print_page(collectors, output, put)
    if source_id_label:
        say(SOURCE_ID_WARNING)
    _print_problems(snapshots, outcome, group_by)
    absent = say_absent(found, snapshots, outcome.read)
    return int(outcome.read.short or failed or absent)


def _print_problems(
    snapshots: list[SnapshotInput], outcome: Outcome, group_by: tuple[str, ...]
) -> None:
    """Print on standard error what did not become metrics, if anything."""
    for given in snapshots:
        if group_by and given.snapshot.state.books:
            say(
                f"{given.source.shown}: a snapshot does not tell processes apart; "
                f"{', '.join(group_by)} of what it stands for: empty"
            )
        if given.snapshot.changed:
            families = ", ".join(given.snapshot.changed)
            say(
                f"{given.source.shown}: derived with another table, so {families} "
                f"{'hold' if given.snapshot.changed[1:] else 'holds'} only what is in the segments"
            )
    say_problems(outcome.read)
    say_faults(
        outcome.states.values(), "`mx-metrics check` with the same arguments says which and why"
    )
