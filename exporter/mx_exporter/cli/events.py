"""``mx-metrics events``: the lines of a log as they were written, in order of time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..errors import UsageError
from .engine import cluster_options
from .filters import filters
from .options import complete, output_option
from .output import NewFolder, Output
from .reading import Progress, read_whole, say_absent, say_problems
from .stdio import say

if TYPE_CHECKING:
    from ..core.decode import Event
    from ..loads.selection import Selection
    from ..offline.engines.engine import Engine
    from ..offline.read_events import Line

#: Ends the name of a file that is written as Parquet.
_PARQUET = ".parquet"


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@output_option("Write to FILE instead; one that ends in .parquet as a table of Parquet.")
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
@cluster_options
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
    jobs: Engine | None,
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
    chosen = _Chosen(selection, loads, names, procs, conditions)
    with Progress() as progress, contextlib.ExitStack() as opened:
        write = _target(opened, progress, output, tables)
        reader, lines = read_whole(
            lambda: EventReader(CATALOG, logs, jobs=jobs, progress=progress.begin),
            lambda reader: reader.in_order(chosen.keyed),
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
        where: list[_Condition],
    ) -> None:
        self.selection = selection
        self._loads, self._names, self._procs = set(loads), set(names), set(procs)
        self._where = where

    def keyed(self, lines: Iterable[Line]) -> Iterator[tuple[bytes, bytes]]:
        """Those that are, each with the key of its time."""
        from ..core.builtin import CATALOG
        from ..core.decode import name_of
        from ..loads.event_filter import EventFilter
        from ..offline.sorted_runs import SortedRuns, time_key

        loads = EventFilter(self.selection)
        #: Whether they are meant is known when all were read.
        waiting = SortedRuns()
        for event, line in lines:
            loads.learn(event)
            meant = loads.admits(event)
            if meant is not False and self.admits(event, name_of(event), line):
                key = time_key(event.timestamp, event.proc, event.seq)
                if meant:
                    yield key, line
                else:
                    waiting.add(key, line)
        decode = CATALOG.decoder.decode_line
        for line in waiting:
            last: Any = decode(line[:-1])
            if loads.admits(last, last=True):
                yield time_key(last.timestamp, last.proc, last.seq), line[:-1]

    def admits(self, event: Event, name: str, line: bytes) -> bool:
        """Whether an event is, by its own line."""
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
        return all(condition.holds(record) for condition in self._where)


class _Condition(NamedTuple):
    """A condition on a field. A text is compared as it is, all else as JSON has it."""

    field: str
    wanted: str
    number: Any

    def holds(self, record: dict[str, Any]) -> bool:
        """Whether it does for a line."""
        if self.field not in record:
            return False
        value = record[self.field]
        if type(value) is str:
            return value == self.wanted
        return type(self.number) is not str and bool(value == self.number)


def _condition(text: str) -> _Condition:
    import orjson

    field, equals, wanted = text.partition("=")
    if not equals or not field:
        raise UsageError(f"--where: bad value {text!r}: expected FIELD=VALUE")
    try:
        number: Any = orjson.loads(wanted)
    except ValueError:
        number = wanted
    return _Condition(field, wanted, number)
