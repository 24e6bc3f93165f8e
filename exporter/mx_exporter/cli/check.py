"""``mx-metrics check``: prints what it finds in logs; its exit code says whether they are whole."""

from __future__ import annotations

import click

from .options import complete
from .stdio import put

#: Exit code when something is faulty.
FAULTY = 3


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print the events of each file by name too.")
def check(logs: tuple[str, ...], as_json: bool, verbose: bool) -> int:
    """Report whether LOGS are whole: lines that were rejected, events that are lost, and what all
    lines were.

    LOGS are given as for replay. Exits with 3 when anything is faulty, or when LOGS hold no event.
    """
    return run(logs, as_json=as_json, verbose=verbose)


def run(logs: tuple[str, ...], *, as_json: bool = False, verbose: bool = False) -> int:
    """Read ``logs`` and print the report.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
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

    report = retry_overtaken(lambda: examine(CATALOG, logs))
    if as_json:
        text = orjson.dumps(as_object(report)) + b"\n"
    else:
        text = "".join(f"{line}\n" for line in as_lines(report, verbose=verbose)).encode()
    put(text)
    return FAULTY if report.faulty else 0
