"""``mx-metrics check``: prints what it finds in logs; its exit code says whether they are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..config import read_settings
from .options import complete, settings_options
from .stdio import put

if TYPE_CHECKING:
    from ..core.catalog import Catalog

#: Exit code when something is faulty.
FAULTY = 3


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print the events of each file by name too.")
@settings_options("catalog")
def check(logs: tuple[str, ...], as_json: bool, verbose: bool, **flags: str | bool | None) -> int:
    """Report whether LOGS are whole: lines that were rejected, events that are lost, and what all
    lines were.

    LOGS are given as for replay. Exits with 3 when anything is faulty, or when LOGS hold no event.
    """
    settings = read_settings(flags, names=["catalog"])
    from ..tables.read import catalog_of

    catalog = catalog_of(settings.catalog)
    return run(logs, catalog=catalog, as_json=as_json, verbose=verbose)


def run(
    logs: tuple[str, ...],
    *,
    catalog: Catalog | None = None,
    as_json: bool = False,
    verbose: bool = False,
) -> int:
    """Read ``logs`` and print the report.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param catalog: what is derived; None: the built-in one.
    :param as_json: print one JSON object (`as_object`) in place of the text.
    :param verbose: the text with the events of each file by name.
    :return: 0, or 3 when anything is faulty.
    :raises UsageError: a path names nothing.
    :raises MxError: two snapshots know the same process.
    """
    import orjson

    from ..analysis.check import examine
    from ..analysis.check_report import as_lines, as_object
    from ..core.builtin import CATALOG
    from ..directory.generations import retry_overtaken

    report = retry_overtaken(lambda: examine(CATALOG if catalog is None else catalog, logs))
    if as_json:
        text = orjson.dumps(as_object(report)) + b"\n"
    else:
        text = "".join(f"{line}\n" for line in as_lines(report, verbose=verbose)).encode()
    put(text)
    return FAULTY if report.faulty else 0
