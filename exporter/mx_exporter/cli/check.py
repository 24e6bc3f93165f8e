"""``mx-metrics check``: prints what it finds in logs; its exit code says whether they are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..config import read_settings
from ..option_values import parse_address
from .options import complete, parsed, settings_options
from .stdio import put

if TYPE_CHECKING:
    from ..core.catalog import Catalog

#: Exit code when something is faulty.
FAULTY = 3

#: Differences from an exporter's page that are printed one by one.
_SHOWN = 20


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print the events of each file by name too.")
@click.option(
    "--url",
    callback=parsed(parse_address),
    metavar="URL",
    help="Also say whether the page of the exporter there agrees: http://HOST:9402, say.",
)
@settings_options("catalog")
def check(
    logs: tuple[str, ...],
    as_json: bool,
    verbose: bool,
    url: str | None,
    **flags: str | bool | None,
) -> int:
    """Report whether LOGS are whole: lines that were rejected, events that are lost, and what all
    lines were.

    LOGS are given as for replay. Exits with 3 when anything is faulty, when LOGS hold no event, or
    when the page of --url differs.
    """
    settings = read_settings(flags, names=["catalog"])
    from ..tables.read import catalog_of

    catalog = catalog_of(settings.catalog)
    return run(logs, catalog=catalog, as_json=as_json, verbose=verbose, url=url)


def run(
    logs: tuple[str, ...],
    *,
    catalog: Catalog | None = None,
    as_json: bool = False,
    verbose: bool = False,
    url: str | None = None,
) -> int:
    """Read ``logs`` and print the report.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param catalog: what is derived; None: the built-in one.
    :param as_json: print one JSON object (`as_object`) in place of the text.
    :param verbose: the text with the events of each file by name.
    :param url: of a live exporter whose page is compared.
    :return: 0, or 3 when anything is faulty or differs.
    :raises UsageError: a path names nothing.
    :raises MxError: two snapshots know the same process; the page cannot be had.
    """
    import orjson

    from ..analysis import agreement
    from ..analysis.check import examine
    from ..analysis.check_json import as_object
    from ..analysis.check_text import as_lines
    from ..core.builtin import CATALOG
    from ..directory.generations import retry_overtaken

    chosen = CATALOG if catalog is None else catalog
    before = None if url is None else agreement.scrape(url)
    report = retry_overtaken(lambda: examine(chosen, logs))
    found = None
    if url is not None and before is not None:
        shown, after = agreement.scrape(url)
        found = agreement.compare(chosen, shown, before[1], report.state, after)
    if as_json:
        given = as_object(report)
        if found is not None:
            differences = [each._asdict() for each in found.differences]
            given["exporter"] = {**found._asdict(), "differences": differences}
        text = orjson.dumps(given) + b"\n"
    else:
        lines = [*as_lines(report, verbose=verbose)]
        if found is not None:
            lines += agreement.as_lines(found, _SHOWN)
        text = "".join(f"{line}\n" for line in lines).encode()
    put(text)
    return FAULTY if report.faulty or (found is not None and found.differences) else 0
