"""``mx-metrics merge``: states of parts of the logs in, the page of all of them out."""

from __future__ import annotations

import click

from ..config import SOURCE_ID_WARNING, read_settings
from ..option_values import parse_at_least_one, parse_buckets
from .deriving import with_buckets
from .options import all_parsed, complete, jobs_option, output_option, parsed, settings_options
from .output import Output
from .page import page_options, print_page, say_faults
from .reading import PRINTED, Progress
from .saving import check_whole, save_state_option, write_state
from .stdio import say


@click.command()
@click.argument("files", nargs=-1, required=True, shell_complete=complete("file"))
@output_option("Write the page to FILE. [default: standard output]", "path")
@save_state_option
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
    "--buckets",
    multiple=True,
    callback=all_parsed(parse_buckets),
    metavar="FAMILY=BOUNDS",
    help="As it was given to replay; may be given for several.",
)
def merge(
    files: tuple[str, ...],
    path: str | None,
    save_state: str | None,
    output: str | None,
    jobs: int | None,
    max_series: int | None,
    buckets: list[tuple[str, tuple[float, ...]]],
    **flags: str | bool | None,
) -> int:
    """Merge FILES, which replay --save-state wrote, and print the page that a replay of all their
    logs would print.

    Their order does not matter, and logs may be split over them in any way, those of one process
    too. FILES are files, patterns, or - for standard input; plain or compressed. A state whose
    events are all in another one counts once. Exits with 1 when a file is damaged, of another table
    of families, or of logs that could not be read to their end.
    """
    settings = read_settings(flags, names=["source_id_label", "created_series", "catalog"])
    from ..exposition.samples import derived_collectors
    from ..offline.merge_states import merge_states
    from ..tables.read import catalog_of

    catalog = with_buckets(catalog_of(settings.catalog), buckets)
    form = output or "text"
    if save_state is not None:
        check_whole(save_state, {})
    with Progress() as progress:
        merged = merge_states(catalog, files, jobs=jobs, progress=progress.begin)
    if save_state is not None:
        write_state(save_state, catalog, merged.saved)
    collectors = derived_collectors(
        catalog,
        merged.saved.state,
        source_id_label=settings.source_id_label,
        created=settings.created_series or form == "json",
        max_series=max_series,
    )
    with Output(path) as file:
        failed = print_page(collectors, form, file.write)
    if settings.source_id_label:
        say(SOURCE_ID_WARNING)
    for source in merged.short[:PRINTED]:
        say(f"{source.shown}: some of its logs could not be read to their end")
    if len(merged.short) > PRINTED:
        say(f"{len(merged.short) - PRINTED} more are of such logs")
    say_faults([merged.saved.state], "`mx-metrics check` with their logs says which and why")
    return int(failed or bool(merged.short))
