"""``python -m mx_emitter``: doctor, reset and run. They need what an engine's container has."""

from __future__ import annotations

import argparse
import json
import os
import sys

from mx_activate import with_site
from mx_activate.become import become
from mx_log.schema import VERSION

_PROGRAM = "mx_emitter"


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns the exit code: 0 done, 1 it failed, 2 used wrongly (by argparse)."""
    parser = argparse.ArgumentParser(
        prog="python -m mx_emitter",
        description="The part of mx-metrics that lives in the engine's process.",
    )
    parser.add_argument("--version", action="version", version=f"mx-metrics {VERSION}")
    _add_json(parser, default=False)
    commands = parser.add_subparsers(dest="command", title="commands")
    doctor = commands.add_parser(
        "doctor",
        help="say whether events would arrive, and what would keep them (default)",
        description="Exit 0 when events would arrive, 1 when something would keep them.",
    )
    _add_json(doctor, default=argparse.SUPPRESS)
    reset = commands.add_parser(
        "reset",
        help="remove what earlier runs left in the directory, for an entrypoint",
        description="Remove segments and snapshots of earlier runs. The lock and files of others"
        " stay. Exit 1, and nothing is removed, while a rank or an exporter uses the directory.",
    )
    reset.add_argument(
        "--dir", type=_path, help="the directory [MX_METRICS_DIR; default: as for the ranks]"
    )
    reset.add_argument(
        "--force",
        action="store_true",
        help="skip the check for living ranks, whose events may be lost",
    )
    # What errors begin with, where another command line stands before this one.
    reset.add_argument("--program", default=_PROGRAM, help=argparse.SUPPRESS)
    run = commands.add_parser(
        "run",
        help="become a command whose Python processes log the client's metrics",
        usage="python -m mx_emitter run [-h] [--] COMMAND...",
        description="Put a sitecustomize first on PYTHONPATH, which stays there for the command's"
        " children, and become COMMAND. It routes the recorders of the ModelExpress client to"
        " the log, in each Python that imports them while MX_METRICS_ENABLED is on.",
    )
    run.add_argument("argv", metavar="COMMAND", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.command == "run":
        command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
        if not command:
            run.error("a COMMAND is needed")
        return _run(command)
    if options.command == "reset":
        return _reset(options.dir, options.force, options.program)
    return _doctor(options.json)


def _path(given: str) -> str:
    if not given.strip() or "\0" in given:
        raise argparse.ArgumentTypeError("expected a path")
    return given


def _add_json(parser: argparse.ArgumentParser, default: object) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="for machines")


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


def _reset(directory: str | None, force: bool, program: str) -> int:
    try:
        from .commands.reset import InUse, reset
        from .settings import read_settings
    except ImportError as error:
        return _fail(f"{error}; install mx-metrics with its dependencies")
    named = {} if directory is None else {"MX_METRICS_DIR": directory}
    settings = read_settings({**os.environ, **named})
    path = settings.directory
    try:
        outcome = reset(settings, force=force)
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
