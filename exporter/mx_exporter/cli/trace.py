"""``mx-metrics trace``: loads for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from .filters import filters
from .options import complete, jobs_option, output_option
from .output import Output
from .reading import Progress, read_loads, say_absent, say_problems
from .stdio import say

if TYPE_CHECKING:
    from ..loads.model import Load
    from ..loads.selection import Selection
    from ..offline.read_loads import LoadReader


@click.command()
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@output_option("Write to FILE. [default: standard output]")
@filters
@jobs_option
def trace(logs: tuple[str, ...], output: str | None, selection: Selection, jobs: int | None) -> int:
    """Write the loads in LOGS as a trace, to be opened in ui.perfetto.dev or chrome://tracing.

    Pods are processes there and ranks are threads; loads, phases and attempts are slices within
    each other. Where an engine says its worker_id, arrows lead from a peer's pod to the attempts
    that it served. LOGS are given as for replay. Exits with 1 when LOGS hold no event.
    """
    import orjson

    with Progress() as progress, Output(output) as target:
        reader, events = read_loads(logs, _events, progress, selection=selection, jobs=jobs)
        before = b'{"displayTimeUnit":"ms","traceEvents":[\n'
        for event in events:
            progress.clear()
            target.write(before + orjson.dumps(event))
            before = b",\n"
        target.write((before if before.startswith(b"{") else b"\n") + b"]}\n")
    if reader.compacted:
        say(f"{reader.compacted} events are left in a snapshot alone, and their loads are missing")
    say_problems(reader.read)
    absent = say_absent(reader.found, reader.snapshots, reader.read)
    return int(reader.read.short or absent)


def _events(reader: LoadReader) -> Iterator[dict[str, Any]]:
    from ..analysis.trace import trace_events

    workers: dict[str, str] = {}
    return trace_events(_in_order(reader, workers), workers)


def _in_order(reader: LoadReader, workers: dict[str, str]) -> Iterator[Load]:
    """Loads pod by pod, rank by rank, in order of time.

    :param workers: gets the pod of each worker that says its id.
    """
    import msgspec
    import orjson

    from ..analysis.trace import order, place_of
    from ..loads.model import Load
    from ..offline.sorted_runs import SortedRuns

    runs = SortedRuns()
    for load in reader:
        worker = load.process.identity.get("worker_id")
        if isinstance(worker, str) and worker:
            workers[worker] = place_of(load)
        place, uid, rank, began = order(load)
        key = b" ".join([orjson.dumps([place, uid]), b"%010d" % (rank + 1), began.encode()])
        runs.add(key, msgspec.json.encode(load))
    for line in runs:
        yield msgspec.json.decode(line, type=Load)
