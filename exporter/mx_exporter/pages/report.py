"""The report: one HTML file about all loads of some logs, to attach and to print.

It is bounded: the worst loads stand in it in full, as far as there is room, and the rest in sums.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from mx_log.schema import VERSION
from mx_log.words import counted

from ..loads.model import Load
from ..loads.quantiles import median, quantile
from . import rows, shown, site
from .bars import KEY
from .front import Column, Tile, some
from .load import explained
from .standout import standing_out
from .sums import Sums

#: Bytes for the rows of loads, and for loads explained.
ROOM_FOR_ROWS, ROOM_EXPLAINED = 800_000, 700_000

#: Rows of the tables of peers, of models and phases, of failures, and of inputs; ranks of peers.
MOST_PEERS, MOST_PHASES, MOST_FAILURES, MOST_INPUTS, MOST_RANKS = 40, 60, 30, 1000, 32

#: Characters of a name in a table.
LONGEST_NAME = 80

#: Quantiles that are shown.
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


class Input(NamedTuple):
    """A file that was read; ``sha256`` says why where there is none."""

    name: str
    size: int | None
    sha256: str


class Sources(NamedTuple):
    """What the report was made of.

    :ivar books: names and numbers.
    :ivar problems: what could not be read, and why.
    :ivar command: as it was given.
    :ivar made: when, for people.
    """

    inputs: Sequence[Input]
    books: Sequence[tuple[str, str]]
    problems: Sequence[str]
    command: str
    made: str


class _PodRows(NamedTuple):
    title: str
    rows: Sequence[str]
    more: str


def pieces(sums: Sums, sources: Sources, compared: Sequence[str] = ()) -> Iterator[str]:
    """The report, piece by piece.

    :param compared: what `diff` says of two logs, line by line; none for one.
    """
    worst = sums.worst
    scale = max([load.elapsed for load in worst], default=0.0)
    told = list(_explained(worst))
    pods, listed = _pods(sums, worst, scale, {anchor for anchor, _, _ in told})
    return site.pieces(
        "report.html.jinja",
        about=_about(sums),
        compared=compared,
        tiles=_tiles(sums),
        standing_out=standing_out(sums),
        kinds=KEY,
        columns=[
            Column("Rank", "n"),
            Column("Load"),
            Column("Began", "n wide"),
            Column("Seconds", "n"),
            Column("Where the time went", "time"),
        ],
        scale=shown.seconds(scale),
        pods=pods,
        unlisted=_unlisted(sums, listed, len(pods)),
        peers=_peers(sums),
        ranks=_ranks(sums),
        more_peers=max(0, len(sums.peers) - MOST_PEERS),
        quantiles=[f"p{100 * q:g}" if q < 1 else "slowest" for q in QUANTILES],
        phases=_phases(sums),
        failures=sums.failures[:MOST_FAILURES],
        more_failures=max(0, len(sums.failures) - MOST_FAILURES),
        explained=told,
        sources=sources,
        inputs=sources.inputs[:MOST_INPUTS],
        more_inputs=max(0, len(sources.inputs) - MOST_INPUTS),
        version=VERSION,
    )


def _about(sums: Sums) -> str:
    if not sums.loads:
        return "There is no load in these logs."
    schemes = set(sums.schemes) - {""}
    scheme = f", scheme {some(schemes)}" if schemes else ""
    day = "" if sums.first[:10] == sums.last[:10] else f"{sums.last[:10]} "
    return (
        f"{some(set(sums.models))} on {some(set(sums.engines))}{scheme}, {sums.first[:10]} "
        f"{shown.clock(sums.first)} to {day}{shown.clock(sums.last)} UTC"
    )


def _tiles(sums: Sums) -> list[Tile]:
    if not sums.loads:
        return []
    failed, killed = sums.outcomes["error"], sums.outcomes["killed"]
    open_ = sums.outcomes["running"] + sums.outcomes["unknown"]
    tiles = [
        Tile(
            f"{sums.loads}",
            f"{'load' if sums.loads == 1 else 'loads'} of {counted(len(sums.pods), 'pod')}",
        )
    ]
    if sums.seconds:
        good = sorted(sums.seconds)
        tiles.append(Tile(f"{shown.seconds(median(good))} s", f"median of {len(good)}"))
        tiles.append(Tile(f"{shown.seconds(good[-1])} s", "slowest success"))
    tiles.append(Tile(f"{failed} + {killed}", "failed, killed", bad=bool(failed + killed)))
    if open_:
        tiles.append(Tile(f"{open_}", "without an end in these logs"))
    if sums.attempts:
        tiles.append(Tile(f"{sums.failed_attempts} of {sums.attempts}", "attempts failed"))
    return tiles


def _pods(
    sums: Sums, worst: Sequence[Load], scale: float, anchors: Container[str]
) -> tuple[list[_PodRows], int]:
    """The worst pods with their worst loads, while there is room; and how many loads that is."""
    by_pod: dict[str, list[Load]] = {}
    for load in worst:
        by_pod.setdefault(load.process.place, []).append(load)
    cells = site.macro("bars.html.jinja", "cells")
    found: list[_PodRows] = []
    room, listed = ROOM_FOR_ROWS, 0
    # In the order of their worst load.
    for place, loads in by_pod.items():
        if room <= 0:
            break
        pod = sums.pods[place]
        made = []
        for load in loads:
            link = f"#{_anchor(load)}" if _anchor(load) in anchors else ""
            made.append(cells(rows.row(load, scale)._replace(link=link)))
            room -= len(made[-1])
            if room <= 0:
                break
        node = f", node {shown.visible(pod.node, LONGEST_NAME)}" if pod.node else ""
        bad = f", {pod.bad} failed or never ended" if pod.bad else ""
        title = (
            f"{shown.visible(place, LONGEST_NAME)}{node}: {counted(pod.loads, 'load')}{bad}, "
            f"slowest {shown.seconds(pod.slowest)} s"
        )
        more = pod.loads - len(made)
        found.append(_PodRows(title, made, f"{more} more" if more else ""))
        listed += len(made)
    return found, listed


def _unlisted(sums: Sums, listed: int, pods: int) -> str:
    rest = sums.loads - listed
    if not rest:
        return ""
    return (
        f"{counted(rest, 'load')} that went better, and {counted(len(sums.pods) - pods, 'pod')} "
        "that had no worse ones, stand in the sums alone."
    )


def _anchor(load: Load) -> str:
    """Where in the report a load is explained."""
    return f"load-{quote(load.process.proc, safe='')}-{load.first_seq}"


def _explained(worst: Sequence[Load]) -> Iterator[Any]:
    """Loads explained, the worst first, while there is room."""
    macro = site.macro("explain.html.jinja", "explain")
    room = ROOM_EXPLAINED
    for load in worst:
        if room <= 0:
            return
        text = macro(explained(load))
        place = shown.visible(load.process.place, LONGEST_NAME)
        who = place if load.rank is None else f"{place} rank {load.rank}"
        load_id = shown.visible(load.load_id, LONGEST_NAME)
        title = f"{who}, load {load_id}: {load.outcome}, {shown.seconds(load.elapsed)} s"
        room -= len(text) + 2 * len(title)
        yield _anchor(load), title, text


def _ranks(sums: Sums) -> list[int | None]:
    found = {rank for peer in sums.peers.values() for rank in peer.by_rank}
    return sorted(found, key=lambda rank: -1 if rank is None else rank)[:MOST_RANKS]


def _peers(sums: Sums) -> list[tuple[str, list[str], str, str]]:
    ranks = _ranks(sums)
    table = []
    names = sorted(sums.peers, key=lambda name: (-sums.peers[name].attempts, name))
    for name in names[:MOST_PEERS]:
        peer = sums.peers[name]
        cells = []
        for rank in ranks:
            tried, good = peer.by_rank.get(rank, (0, 0))
            cells.append(f"{good}/{tried}" if tried else "")
        receive = shown.seconds(median(peer.receives))
        table.append(
            (shown.visible(name, LONGEST_NAME), cells, f"{peer.good}/{peer.attempts}", receive)
        )
    return table


def _phases(sums: Sums) -> list[tuple[str, str, int, list[str]]]:
    table = []
    for (model, phase), values in sorted(sums.phases.items())[:MOST_PHASES]:
        ordered = sorted(values)
        cells = [shown.seconds(quantile(ordered, q)) for q in QUANTILES]
        model = shown.visible(model, LONGEST_NAME)
        phase = shown.visible(phase, LONGEST_NAME) if phase else "whole loads, successes"
        table.append((model, phase, len(ordered), cells))
    return table
