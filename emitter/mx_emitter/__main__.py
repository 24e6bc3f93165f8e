"""``python -m mx_emitter``: doctor, reset and run. They need what an engine's container has."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from typing import Any

from mx_activate import with_site
from mx_activate.become import become
from mx_log.schema import VERSION

_PROGRAM = "mx_emitter"

#: Most columns of a help text.
_WIDEST = 120


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns the exit code: 0 done, 1 it failed, 2 used wrongly (by argparse)."""
    parser = _Parser(
        prog="python -m mx_emitter",
        description="The part of mx-metrics that lives in the engine's process.",
    )
    parser.options.add_argument(
        "--version",
        action="version",
        version=f"mx-metrics {VERSION}",
        help="Show the version and exit.",
    )
    _add_json(parser, default=False)
    commands = parser.add_subparsers(dest="command", title="Commands", metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor",
        help="Say whether events would arrive, and what would keep them. [default]",
        description="Say whether events would arrive, and what would keep them. Exits with 0 when"
        " they would arrive, with 1 when something would keep them.",
    )
    _add_json(doctor, default=argparse.SUPPRESS)
    reset = commands.add_parser(
        "reset",
        help="Remove what earlier runs left in the directory, for an entrypoint.",
        description="Remove what earlier runs left in the directory, for an entrypoint. Segments"
        " and snapshots are removed; the lock and files of others stay. While a rank or an exporter"
        " uses the directory, nothing is removed and the exit code is 1.",
    )
    reset.options.add_argument(
        "--dir",
        type=_path,
        help="Directory of the segments. [MX_METRICS_DIR; default: as for the ranks]",
    )
    reset.options.add_argument(
        "--force",
        action="store_true",
        help="Skip the check for living ranks; their events may be lost.",
    )
    reset.options.add_argument(
        "--dry-run", action="store_true", help="Say what would be removed, and remove nothing."
    )
    # What errors begin with, where another command line stands before this one.
    reset.options.add_argument("--program", default=_PROGRAM, help=argparse.SUPPRESS)
    run = commands.add_parser(
        "run",
        help="Become a command whose Python processes log the client's metrics.",
        usage="python -m mx_emitter run [-h] [--] COMMAND...",
        description="Become a command whose Python processes log the client's metrics. A"
        " sitecustomize is put first on PYTHONPATH, which stays there for the command's children."
        " It routes the recorders of the ModelExpress client to the log, in each Python that"
        " imports them while MX_METRICS_ENABLED is on.",
    )
    run.add_argument("argv", metavar="COMMAND", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.command == "run":
        command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
        if not command:
            run.error("a COMMAND is needed")
        return _run(command)
    if options.command == "reset":
        return _reset(options)
    return _doctor(options.json)


class _Help(argparse.HelpFormatter):
    """Help as the other command line shows it: as wide as the terminal, up to `_WIDEST` columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(_WIDEST, shutil.get_terminal_size().columns) - 2)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


class _Parser(argparse.ArgumentParser):
    """A parser with such help; ``options`` takes its options."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, formatter_class=_Help, add_help=False)
        self.options = self.add_argument_group("Options")
        self.options.add_argument("-h", "--help", action="help", help="Show this message and exit.")


def _path(given: str) -> str:
    if not given.strip() or "\0" in given:
        raise argparse.ArgumentTypeError("expected a path")
    return given


def _add_json(parser: _Parser, default: object) -> None:
    parser.options.add_argument(
        "--json", action="store_true", default=default, help="Print the report as JSON."
    )


def _doctor(as_json: bool) -> int:
    try:
        from .commands.doctor import as_text, examine
    except ImportError as error:
        return _fail(f"{error}; install mx-metrics with its dependencies")
    report = examine()
    if as_json:
        found = {**report._asdict(), "healthy": report.healthy}
        text = json.dumps(found, indent=2) + "\n"
    else:
        text = as_text(report)
    return _print(text) or int(not report.healthy)


def _reset(options: argparse.Namespace) -> int:
    try:
        from .commands.reset import InUse, reset
        from .settings import read_settings
    except ImportError as error:
        return _fail(f"{error}; install mx-metrics with its dependencies")
    program = options.program
    named = {} if options.dir is None else {"MX_METRICS_DIR": options.dir}
    settings = read_settings({**os.environ, **named})
    path = settings.directory
    try:
        outcome = reset(settings, force=options.force, dry=options.dry_run)
    except FileNotFoundError:
        return _print(f"{path} does not exist: nothing to remove\n", program)
    except InUse as error:
        why = f"{error}; stop them first, or use --force"
        return _fail(f"nothing was removed from {path}: {why}", program)
    except OSError as error:
        return _fail(f"nothing was removed from {path}: {error.strerror or error}", program)
    code = _print(outcome.text(path), program)
    for name, why in outcome.left.items():
        code = _fail(f"{os.path.join(path, name)} could not be removed: {why}", program)
    return code


def _run(command: list[str]) -> int:
    """Become ``command``; returns the exit status where that cannot be."""
    status, why = become(command, with_site(os.environ))
    _fail(why)
    return status


def _print(text: str, program: str = _PROGRAM) -> int:
    """Print a result. Returns 1 where it cannot be printed, and says why, unless its reader went
    away."""
    if sys.stdout is None:
        return _fail("standard output is closed; nothing can be printed", program)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes once more as it leaves, and would complain.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
        if isinstance(error, BrokenPipeError):
            return 1
        return _fail(f"standard output cannot be written: {error.strerror}", program)
    return 0


def _fail(message: str, program: str = _PROGRAM) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"{program}: {message}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
