"""The command line: ``mx-metrics serve``, ``loads`` and the other commands, one module each.

A command imports what it runs inside its function, so that ``--help`` and ``--version`` stay
quick. A package that is missing ends every command before it begins, with a message by
:mod:`mx_exporter.__main__`. Errors are one line on standard error. Exit codes: 0 done, 1 failed,
2 used wrongly or a package is missing, 3 faulty lines (``check``), 4 a condition holds (``diff``),
130 after Ctrl-C; ``run`` returns what the engine returned.
"""

from __future__ import annotations

import sys

import click

from mx_log.schema import VERSION

from ..errors import MxError
from .backfill import backfill
from .catalog import catalog
from .check import check
from .demo import demo
from .diff import diff
from .events import events
from .explain import explain
from .extras import require_packages
from .loads import loads
from .merge import merge
from .push import push
from .replay import replay
from .report import report
from .reset import reset
from .run import run
from .serve import serve
from .stdio import PROG, abandon_stdout, cannot_write, is_of_stdout
from .top import top
from .trace import trace

#: Help is as wide as the terminal, up to so many columns.
WIDEST = 120


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
    no_args_is_help=False,
)
@click.version_option(VERSION, prog_name=PROG, message="%(prog)s %(version)s")
def cli() -> None:
    """Prometheus metrics derived from the event logs of ModelExpress ranks."""
    require_packages()


for command in (
    serve,
    run,
    push,
    replay,
    merge,
    check,
    loads,
    explain,
    diff,
    events,
    report,
    trace,
    top,
    backfill,
    catalog,
    reset,
    demo,
):
    cli.add_command(command)


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
