"""``mx-metrics events``: the lines of a log as they were written, in order of time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .filters import filters
from .options import complete
from .output import NewFolder, Output
from .reading import Progress, read_whole, say_absent, say_problems
from .stdio import say

if TYPE_CHECKING:
    from ..core.decode import Event
    from ..loads.selection import Selection
    from ..offline.read_events import EventReader

#: Ends the name of a file that is written as Parquet.
_PARQUET = ".parquet"


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete("file"),
    help="Write to FILE instead; one that ends in .parquet as a table of Parquet.",
)
@click.option(
    "--tables",
    metavar="DIR",
    shell_complete=complete("dir"),
    help="Write a table of Parquet for each event instead, into DIR, which is new or empty.",
)
@click.option("--load", "loads", multiple=True, metavar="ID", help="Only of this load.")
@click.option("--event", "names", multiple=True, metavar="NAME", help="Only of this name.")
@click.option("--proc", "procs", multiple=True, metavar="ID", help="Only of this process.")
@click.option(
    "--where",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only where a field has this value; more than once: all of them.",
)
@filters
def events(
    logs: tuple[str, ...],
    output: str | None,
    tables: str | None,
    loads: tuple[str, ...],
    names: tuple[str, ...],
    procs: tuple[str, ...],
    where: tuple[str, ...],
    selection: Selection,
) -> int:
    """Print the lines of LOGS as they were written, in order of time, each once.

    LOGS are given as for replay. What a collector put around the lines is taken off, so that they
    can be given to any tool, and to replay. --since and --until mean the time of the event; --pod
    and --node where its process ran, --model and --engine what its load loads. Exits with 1 when
    LOGS hold no event.
    """
    from ..core.builtin import CATALOG
    from ..offline.read_events import EventReader

    conditions = [_condition(text) for text in where]
    with Progress() as progress, contextlib.ExitStack() as opened:
        write = _target(opened, progress, output, tables)
        reader, lines = read_whole(
            lambda: EventReader(CATALOG, logs, progress=progress.begin),
            lambda reader: _in_order(reader, _Chosen(selection, loads, names, procs, conditions)),
        )
        write(lines)
    if reader.compacted:
        say(f"{reader.compacted} events are left in a snapshot alone, and cannot be listed")
    say_problems(reader.read)
    absent = say_absent(reader.found, reader.snapshots, reader.read)
    return int(reader.read.short or absent)


def _target(
    opened: contextlib.ExitStack, progress: Progress, output: str | None, tables: str | None
) -> Callable[[Iterator[bytes]], None]:
    """What writes the lines, to a place that was opened."""
    from ..core.builtin import CATALOG

    if tables is not None:
        if output is not None:
            raise UsageError("--tables and --output exclude each other")
        parquet = _parquet()
        folder = opened.enter_context(NewFolder(tables))
        return lambda lines: parquet.write_tables(CATALOG, lines, folder)
    if output is not None and output.endswith(_PARQUET):
        parquet = _parquet()
        place = opened.enter_context(Output(output)).place
        return lambda lines: parquet.write_parquet(CATALOG, lines, place)
    target = opened.enter_context(Output(output))

    def write(lines: Iterator[bytes]) -> None:
        for line in lines:
            progress.clear()
            target.write(line)

    return write


def _parquet() -> ModuleType:
    try:
        from ..analysis import parquet
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise UsageError(
            "the package pyarrow is missing; install it with: pip install 'mx-metrics[parquet]'"
        ) from None
    return parquet


class _Chosen:
    """Which events are meant, as far as their lines say it themselves."""

    def __init__(
        self,
        selection: Selection,
        loads: tuple[str, ...],
        names: tuple[str, ...],
        procs: tuple[str, ...],
        where: list[Callable[[dict[str, Any]], bool]],
    ) -> None:
        self.selection = selection
        self._loads, self._names, self._procs = set(loads), set(names), set(procs)
        self._where = where

    def admits(self, event: Event, name: str, line: bytes) -> bool:
        """Whether an event is."""
        s = self.selection
        return (
            (not self._names or name in self._names)
            and (not self._loads or event.load_id in self._loads)
            and (not self._procs or event.proc in self._procs)
            and (not s.since or event.timestamp >= s.since)
            and (not s.until or event.timestamp < s.until)
            and (not self._where or self._fits(line))
        )

    def _fits(self, line: bytes) -> bool:
        import orjson

        try:
            record = orjson.loads(line)
        except ValueError:
            return False
        return all(condition(record) for condition in self._where)


def _condition(text: str) -> Callable[[dict[str, Any]], bool]:
    """A condition on a field. A text is compared as it is, all else as JSON has it."""
    import orjson

    field, equals, wanted = text.partition("=")
    if not equals or not field:
        raise UsageError(f"--where: bad value {text!r}: expected FIELD=VALUE")
    try:
        number: Any = orjson.loads(wanted)
    except ValueError:
        number = wanted

    def holds(record: dict[str, Any]) -> bool:
        if field not in record:
            return False
        value = record[field]
        return value == wanted if type(value) is str else type(value) is not str and value == number

    return holds


#: Before a line: whether it is meant is known, or will be when all were read.
_KNOWN, _OPEN = b"+", b"?"


def _in_order(reader: EventReader, chosen: _Chosen) -> Iterator[bytes]:
    """The lines that are meant, each with its newline."""
    from ..core.builtin import CATALOG
    from ..core.decode import name_of
    from ..loads.event_filter import EventFilter
    from ..offline.sorted_runs import SortedRuns, time_key

    loads = EventFilter(chosen.selection)
    runs = SortedRuns()
    for event, line in reader:
        loads.learn(event)
        meant = loads.admits(event)
        if meant is not False and chosen.admits(event, name_of(event), line):
            key = time_key(event.timestamp, event.proc, event.seq)
            runs.add(key, (_KNOWN if meant else _OPEN) + line)
    decode = CATALOG.decoder.decode_line
    for line in runs:
        if line.startswith(_KNOWN) or loads.admits(decode(line[1:-1]), last=True):
            yield line[1:]
