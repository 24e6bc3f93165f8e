"""``python -m mx_emitter``: the doctor. It needs no more than an engine's container has."""

from __future__ import annotations

import argparse
import json
import sys

from .events import VERSION


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
    options = parser.parse_args(arguments)
    return _doctor(options.json)


def _add_json(parser: argparse.ArgumentParser, default: object) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="for machines")


def _doctor(as_json: bool) -> int:
    try:
        from .doctor import as_text, examine
    except ImportError as error:
        sys.stderr.write(f"mx_emitter: {error}; install mx-metrics with its dependencies\n")
        return 1
    report = examine()
    if as_json:
        found = {**report._asdict(), "healthy": report.healthy}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.write(as_text(report))
    return 0 if report.healthy else 1


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    raise SystemExit(code)
