"""The command line: ``mx-metrics serve``, ``replay``, ``check`` and ``reset``.

A command imports what it runs inside its function, so that ``--help`` and ``--version`` stay
quick and a missing library is told by :mod:`mx_exporter.__main__`. Errors are one line on
standard error. Exit codes: 0 done, 1 failed, 2 used wrongly, 3 faulty lines (``check``),
130 after Ctrl-C; ``run`` leaves with what the engine left with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from mx_emitter.events import VERSION

from .errors import MxError, UsageError
from .output import abandon_stdout, cannot_write, is_of_stdout, need_stdout
from .settings import OPTIONS, read_settings

PROG = "mx-metrics"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def settings_options(*names: str) -> Callable[[_Command], _Command]:
    """Give a command the flags of the named rows of the settings' table."""

    def decorate(command: _Command) -> _Command:
        for name in reversed(names):
            row = OPTIONS[name]
            assert row.flag is not None
            sources = f"{row.variable}; " if row.variable else ""
            shown = f"{row.help} [{sources}default: {row.shown}]"
            switch = isinstance(getattr(_DEFAULTS, name), bool)
            if switch:
                flag = f"{row.flag}/--no-{row.flag[2:]}"
                command = click.option(flag, name, default=None, help=shown)(command)
            else:
                command = click.option(row.flag, name, metavar=row.metavar, help=shown)(command)
        return command

    return decorate


_DEFAULTS = read_settings({}, {})


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(VERSION, prog_name=PROG, message="%(prog)s %(version)s")
def cli() -> None:
    """Prometheus metrics derived from the event logs of ModelExpress ranks."""


_SERVING = (
    "directory",
    "listen",
    "port",
    "web_config_file",
    "source_id_label",
    "max_series",
    "retain_seconds",
    "tee",
    "archive_dir",
)


@cli.command()
@settings_options(*_SERVING)
def serve(**flags: str | bool | None) -> int:
    """Follow the directory and serve its metrics.

    /metrics for Prometheus, /healthz, /readyz, and / for people. One exporter owns a directory
    and compacts it; a second one stands by and takes over when the first one goes.
    """
    settings = read_settings(flags)
    from .extra import require
    from .serve import run

    require()
    return run(settings)


# What follows the command's name is the command's: `run sleep --help` is no question to us.
@cli.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--reset", is_flag=True, help="Remove what earlier runs left in the directory.")
@settings_options(*_SERVING, "pushgateway", "job")
def run(command: tuple[str, ...], reset: bool, **flags: str | bool | None) -> int:
    """Run COMMAND with metrics on, and their exporter beside it.

    For one container without a sidecar: write `mx-metrics run -- COMMAND ARGUMENTS`. Signals are
    passed on, orphans reaped, and the exit status is the command's (128+n for signal n). Nothing
    that happens to the exporter ends the command. With --pushgateway and no port, what is in the
    directory when the command has ended is pushed, once.
    """
    warnings: list[str] = []
    settings = read_settings(flags, tolerate=warnings.append)
    from .extra import require
    from .run import run as run_engine

    require()
    return run_engine(settings, command, reset=reset, warnings=warnings)


@cli.command()
@click.argument("where", required=False, metavar="[DIR]")
@settings_options("directory", "pushgateway", "job", "source_id_label", "max_series")
def push(where: str | None, **flags: str | bool | None) -> int:
    """Push what DIR amounts to, to a Pushgateway, once.

    DIR may be given by --dir as well. It replaces what the pod pushed before; the pod is told by
    POD_UID, else POD_NAME, else the name of the host.
    """
    if where is not None:
        if flags["directory"] is not None:
            raise UsageError("DIR and --dir: only one of them can be had")
        flags["directory"] = where
    names = [
        *("directory", "port", "pushgateway", "job", "source_id_label", "max_series"),
        *("pod_uid", "pod_name"),
    ]
    settings = read_settings(flags, names=names)
    from .logs import log_to_stderr
    from .push import run

    log_to_stderr()
    return run(settings)


@cli.command()
@click.argument("logs", nargs=-1)
@click.option("--openmetrics", "output", flag_value="openmetrics", help="Print OpenMetrics.")
@click.option("--json", "output", flag_value="json", help="Print one JSON object a series.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to use. [default: every core]")
@settings_options("source_id_label")
@click.option(
    "--max-series",
    type=click.IntRange(min=1),
    metavar="N",
    help="Series a family may have. [default: no limit]",
)
def replay(
    logs: tuple[str, ...],
    output: str | None,
    jobs: int | None,
    max_series: int | None,
    **flags: str | bool | None,
) -> int:
    """Fold LOGS and print the metrics that a scrape would have shown.

    LOGS are directories, files, globs, or - for standard input; plain, .gz or .zst; as they
    were written or inside the envelopes of log collectors, with the snapshots of directories
    that were compacted. Without LOGS: the directory of the environment. Nothing is changed.
    """
    source_id_label = read_settings(flags, names=["source_id_label"]).source_id_label
    from .replay import run

    return run(
        logs,
        output=output or "text",
        source_id_label=source_id_label,
        max_series=max_series,
        jobs=jobs,
    )


@cli.command()
@click.argument("logs", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check(logs: tuple[str, ...], as_json: bool) -> int:
    """Say whether LOGS are whole: refused lines, lost numbers, events by name.

    LOGS as for replay. Exits with 3 when anything is faulty.
    """
    from .check import run

    return run(logs, as_json=as_json)


@cli.command()
@settings_options("directory")
@click.option("--force", is_flag=True, help="Ask nobody: events of living ranks may be lost.")
def reset(force: bool, **flags: str | bool | None) -> None:
    """Remove what earlier runs left in the directory, for an entrypoint.

    Segments and snapshots go; the lock and files of others stay. Exits with 1, having removed
    nothing, while a rank or an exporter uses the directory. It is the emitter's own: containers
    without this command have `python -m mx_emitter reset`.
    """
    directory = read_settings(flags, names=["directory"]).directory
    given = [f"--dir={directory.path}"] if directory.named else []
    asked = ["--force"] if force else []
    need_stdout()
    emitter = [sys.executable, "-m", "mx_emitter", "reset", f"--program={PROG}"]
    os.execv(sys.executable, [*emitter, *given, *asked])


def main(args: list[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    :param args: arguments without the program's name; None takes the process's own.
    """
    try:
        code = cli.main(args, prog_name=PROG, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except MxError as error:
        return _fail(str(error), error.exit_code)
    except click.UsageError as error:
        context = error.ctx.command_path if error.ctx else PROG
        message = error.format_message().rstrip(".")
        return _fail(f"{message}; see {context} --help", error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        abandon_stdout()
        return 1
    except OSError as error:
        if not is_of_stdout(error):
            raise
        abandon_stdout()
        return _fail(cannot_write(error), 1)


def _fail(message: str, code: int) -> int:
    click.echo(f"{PROG}: " + " ".join(message.split()), err=True)
    return code
