"""The page ``/``: loads in progress, then the latest ones, and what is wrong."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mx_log.schema import VERSION
from mx_log.words import counted

from ..loads.listing import Kept
from ..loads.model import Load
from ..loads.progress import phase_seconds
from ..loads.quantiles import median
from ..loads.starts import PodStart, pod_starts
from . import rows, shown, site
from .bars import KEY
from .status import Failed, Standing, books_line, troubles

#: Seconds between two looks of a browser while a load runs.
REFRESH_SECONDS = 2


class Tile(NamedTuple):
    """A figure."""

    value: str
    text: str
    bad: bool = False


class Group(NamedTuple):
    """Rows below a title; the title is empty where all are one list."""

    title: str
    rows: Sequence[rows.Row]


class Column(NamedTuple):
    """The head of a column."""

    text: str
    css: str = ""
    #: ``ascending`` or ``descending``.
    sorted: str = ""


#: What ``?sort=`` may say: by what, and whether the largest comes first.
_SORTS: Mapping[str, tuple[Callable[[Load], Any], bool]] = {
    "start": (lambda load: load.began, True),
    "seconds": (lambda load: load.elapsed, True),
    "pod": (lambda load: (load.process.place, -1 if load.rank is None else load.rank), False),
    "result": (lambda load: load.outcome == "success", False),
}


def page(
    standing: Standing,
    kept: Kept,
    query: Mapping[str, str],
    failed: Failed,
    between: Callable[[], object] = lambda: None,
) -> bytes:
    """The page.

    :param between: called again and again while the page is made.
    :param query: ``sort`` is a key of `_SORTS`; anything else counts as none. With ``refresh=off``
        the page stays as it is.
    """
    sort = query.get("sort", "")
    sort = sort if sort in _SORTS else "start"
    running = kept.running
    scale = max([load.elapsed for load in kept.over], default=0.0)
    # One that hangs would leave no room for the bars of the others.
    running_scale = max([load.elapsed for load in running], default=0.0)
    usual = phase_seconds(kept.over)
    seen = standing.see() if standing.see else None
    path = shlex.quote(standing.settings.directory.path)
    loads = bool(kept.over or running)
    return site.page(
        "loads.html.jinja",
        between,
        refresh=REFRESH_SECONDS if running and query.get("refresh") != "off" else 0,
        about=about([*kept.over, *running]),
        troubles=troubles(standing, failed),
        tiles=_tiles(kept, seen) if loads else [],
        kinds=KEY,
        running=[rows.running(load, usual, running_scale) for load in running],
        groups=_groups(kept.over, sort, scale, between),
        columns=_columns(sort),
        sorts=[
            (name, "/" if name == "start" else f"/?sort={name}", name == sort) for name in _SORTS
        ],
        caption=f"{counted(len(kept.over), 'load')}; all bars are to one scale, 0 to "
        f"{shown.seconds(scale)} s",
        notes=_notes(kept, loads=loads, reading=standing.see is None),
        commands=[f"mx-metrics explain LOAD {path}", f"mx-metrics report {path} -o loads.html"]
        if loads
        else [],
        foot=" · ".join(
            [VERSION, standing.settings.directory.path]
            + ([seen.role, books_line(seen)] if seen else [])
        ),
    )


def about(loads: Sequence[Load]) -> str:
    """What was loaded, by what, and when."""
    if not loads:
        return ""
    models = some({load.model or "an unnamed model" for load in loads})
    engines, schemes = some({load.engine for load in loads}), {load.scheme for load in loads}
    first, last = min(load.began for load in loads), max(load.last for load in loads)
    scheme = f", scheme {some(schemes)}" if schemes - {""} else ""
    day = "" if first[:10] == last[:10] else f"{last[:10]} "
    span = f"{first[:10]} {shown.clock(first)} to {day}{shown.clock(last)} UTC"
    return f"{models} on {engines}{scheme}, {span}"


def some(names: set[str], most: int = 3) -> str:
    """Names on one line; many are counted."""
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(shown.visible(name, 80) for name in ordered[:most]) + (
        f" and {more} more" if more > 0 else ""
    )


def _tiles(kept: Kept, seen: Any) -> list[Tile]:
    good = sorted(load.elapsed for load in kept.over if load.outcome == "success")
    failed = sum(load.outcome == "error" for load in kept.over)
    killed = sum(load.outcome == "killed" for load in kept.over)
    attempts = [attempt for load in kept.over for attempt in load.attempts]
    lost = sum(not attempt.succeeded for attempt in attempts)
    pods = len({load.process.place for load in kept.over})
    tiles = [Tile(f"{len(kept.running)}", "in progress")]
    tiles.append(Tile(f"{len(kept.over)}", f"{'load' if len(kept.over) == 1 else 'loads'} of "
                      f"{counted(pods, 'pod')}"))  # fmt: skip
    if good:
        tiles.append(Tile(f"{shown.seconds(median(good))} s", f"median of {len(good)}"))
        tiles.append(Tile(f"{shown.seconds(good[-1])} s", "slowest success"))
    tiles.append(Tile(f"{failed} + {killed}", "failed, killed", bad=bool(failed + killed)))
    if attempts:
        tiles.append(Tile(f"{lost} of {len(attempts)}", "attempts failed"))
    if seen is not None:
        gone = seen.lost + seen.refused
        tiles.append(Tile(f"{gone}", "events lost or refused", bad=bool(gone)))
    return tiles


def _columns(sort: str) -> list[Column]:
    pod = [] if sort == "start" else [Column("Pod", sorted=_order(sort, "pod"))]
    return [
        *pod,
        Column("Rank", "n"),
        Column("Load"),
        Column("Began", "n wide", _order(sort, "start")),
        Column("Seconds", "n", _order(sort, "seconds")),
        Column("Where the time went", "time"),
    ]


def _order(sort: str, column: str) -> str:
    """How rows are sorted by a column; empty where they are by another."""
    return ("descending" if _SORTS[sort][1] else "ascending") if sort == column else ""


def _groups(
    loads: Sequence[Load], sort: str, scale: float, between: Callable[[], object]
) -> list[Group]:
    def made(loads: Sequence[Load]) -> Iterator[rows.Row]:
        for load in loads:
            between()
            yield rows.row(load, scale)

    key, reverse = _SORTS[sort]
    if sort != "start":
        ordered = sorted(loads, key=key, reverse=reverse)
        return [Group("", list(made(ordered)))] if loads else []
    found = []
    for start in reversed(pod_starts(loads)):
        members = sorted(start.loads, key=lambda load: load.elapsed, reverse=True)
        first = members[0]
        node = f", node {first.process.node}" if first.process.node else ""
        title = (
            f"{start.place}{node}, {start.began[:10]} {shown.clock(start.began)}: "
            f"{counted(len(members), 'load')}, slowest {shown.seconds(first.elapsed)} s"
            f"{_straggling(start)}"
        )
        found.append(Group(title, list(made(members))))
    return found


def _straggling(start: PodStart) -> str:
    """The phase that made the slowest one so."""
    found = start.straggling
    if found is None or found[1] < 1 or not start.slowest.done:
        return ""
    return f", {shown.seconds(found[1])} s of them more in {found[0]} than the median of the others"


def _notes(kept: Kept, *, loads: bool, reading: bool) -> list[str]:
    notes = []
    if kept.before:
        notes.append(
            f"{counted(kept.before, 'older load is', 'older loads are')} not listed: the newest "
            "are kept."
        )
    if kept.compacted:
        notes.append(
            f"A snapshot stands for {counted(kept.compacted, 'event')}: the metrics count them, "
            "and loads that only it stands for cannot be listed."
        )
    if not loads and not reading:
        notes.append("No load was logged yet.")
    return notes
