"""``mx-metrics explain``: the story of one load, or the events behind a value."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mx_log.words import counted

from ..errors import MxError, UsageError
from .filters import filters
from .options import complete, jobs_option
from .reading import Progress, read_loads, read_whole, say_absent, say_problems, style
from .stdio import PROG, put, say

if TYPE_CHECKING:
    from ..loads.model import Load
    from ..loads.selection import Selection

#: Loads that are named where more than one is meant.
_NAMED = 5


@click.command()
@click.argument("what", metavar="LOAD_ID|SELECTOR")
@click.argument("logs", nargs=-1, shell_complete=complete("file"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@filters
@jobs_option
def explain(
    what: str, logs: tuple[str, ...], as_json: bool, selection: Selection, jobs: int | None
) -> int:
    """Tell the story of a load, or list the events behind a value.

    LOAD_ID is the id of a load, or how it begins. A SELECTOR names series, as
    'mx_load_seconds{outcome="error"}' does; le="5" means that bucket. The options below say which
    loads it is compared with. LOGS are given as for replay. Exits with 1 when there is no such
    load, or LOGS hold no event.
    """
    from ..analysis.selector import looks_like_one

    if looks_like_one(what):
        return _behind(what, logs, as_json=as_json)
    return _story(what, logs, selection, jobs, as_json=as_json)


class _Entry(NamedTuple):
    """What is kept of each load."""

    #: The load itself, packed, where it is the one that is asked for.
    load: bytes | None
    load_id: str | None
    alike: tuple[str | None, str]
    seconds: float | None
    #: Peer, and whether it gave the weights, of each attempt.
    attempts: list[tuple[str, bool]]


def _entry(load: Load, prefix: str, selection: Selection) -> _Entry | None:
    import msgspec

    meant = (load.load_id or "").startswith(prefix)
    if not meant and not selection.admits(load):
        return None
    return _Entry(
        msgspec.msgpack.encode(load) if meant else None,
        load.load_id,
        (load.model, load.role),
        load.seconds if load.outcome == "success" else None,
        [(each.peer, each.succeeded) for each in load.attempts if each.peer],
    )


def _story(
    load_id: str, logs: tuple[str, ...], selection: Selection, jobs: int | None, *, as_json: bool
) -> int:
    import msgspec
    import orjson

    from ..analysis.story_text import story_lines
    from ..loads.as_json import as_dict
    from ..loads.model import Load
    from ..offline.stores import shown

    with Progress() as progress:
        work = partial(_entry, prefix=load_id.strip().lower(), selection=selection)
        reader, found = read_loads(
            logs,
            lambda reader: [entry for entry in reader.each(work) if entry is not None],
            progress,
            jobs=jobs,
        )
        entries = list(found)
    say_problems(reader.read)
    absent = say_absent(reader.found, reader.snapshots, reader.read)
    meant = [entry for entry in entries if entry.load is not None]
    if not meant:
        left = ""
        if reader.compacted:
            left = f"; of {reader.compacted} events only a snapshot is left, and no load in it"
        raise MxError(f"there is no load {load_id} there{left}; `{PROG} loads --all` lists them")
    if len(meant) > 1:
        names = ", ".join(entry.load_id or "" for entry in meant[:_NAMED])
        more = f" and {len(meant) - _NAMED} more" if meant[_NAMED:] else ""
        raise UsageError(f"{load_id} may be any of {names}{more}; give more of the id")
    load = msgspec.msgpack.decode(meant[0].load or b"", type=Load)
    if as_json:
        put(orjson.dumps(as_dict(load)) + b"\n")
    else:
        lines = story_lines(load, _others(meant[0], entries), style())
        if "-" not in logs:
            given = shlex.join(["--load", load.load_id or "", *map(shown, logs)])
            lines.append(f"Its lines: {PROG} events {given}")
        put("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
    return int(reader.read.short or absent)


def _others(one: _Entry, entries: list[_Entry]) -> Any:
    from ..analysis.story_text import Others

    others = [entry for entry in entries if entry is not one]
    attempts: Counter[str] = Counter()
    succeeded: Counter[str] = Counter()
    for entry in others:
        for peer, well in entry.attempts:
            attempts[peer] += 1
            succeeded[peer] += well
    seconds = [e.seconds for e in others if e.alike == one.alike and e.seconds is not None]
    return Others(seconds, attempts, succeeded)


def _behind(text: str, logs: tuple[str, ...], *, as_json: bool) -> int:
    from ..analysis.behind import BehindReader
    from ..analysis.selector import parse_selector
    from ..core.builtin import CATALOG
    from ..offline.sorted_runs import SortedRuns, time_key

    selector = parse_selector(CATALOG, text)
    number, total = 0, 0.0

    def in_order(reader: BehindReader) -> Iterator[bytes]:
        nonlocal number, total
        number, total = 0, 0.0
        runs = SortedRuns()
        for behind in reader:
            event = behind.event
            number += 1
            total += behind.value or 0.0
            key = time_key(event.timestamp, event.proc, event.seq)
            runs.add(key, _json_of(behind) if as_json else _text_of(behind))
        yield from runs

    with Progress() as progress:
        reader, lines = read_whole(
            lambda: BehindReader(CATALOG, selector, logs, progress.begin), in_order
        )
        for line in lines:
            progress.clear()
            put(line)
    if not as_json:
        told = counted(number, "event", "events")
        summed = f", {total:.15g} in all" if selector.family.field else ""
        put(f"{told} behind {text}{summed}\n".encode("utf-8", "backslashreplace"))
    if reader.compacted:
        what = "of the value stands" if reader.value() != reader.compacted else "is all, and stands"
        say(f"{reader.compacted:.15g} {what} in a snapshot alone, without its events")
    say_problems(reader.read)
    absent = say_absent(reader.found, reader.snapshots, reader.read)
    return int(reader.read.short or absent)


def _text_of(behind: Any) -> bytes:
    from ..analysis.text_table import harmless

    event = behind.event
    rank = "-" if event.rank is None else str(event.rank)
    value = "" if behind.value is None else f"  {behind.value:.6g}"
    text = (
        f"{event.timestamp}  rank {rank}  load {event.load_id or '-'}  {behind.name}{value}  "
        f"{behind.file}:{behind.line}"
    )
    return harmless(text).encode("utf-8", "backslashreplace")


def _json_of(behind: Any) -> bytes:
    import orjson

    event = behind.event
    return orjson.dumps(
        {
            "timestamp": event.timestamp,
            "proc": event.proc,
            "seq": event.seq,
            "rank": event.rank,
            "load_id": event.load_id,
            "event": behind.name,
            "value": behind.value,
            "file": behind.file,
            "line": behind.line,
        }
    )
