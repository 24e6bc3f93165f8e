"""Tables of loads for a terminal: each with a bar to a common scale, and why it took its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..loads.model import Load
from ..loads.parts import KINDS, parts
from ..loads.starts import PodStart
from ..loads.why import why
from .summary import Group, Summary
from .text_table import Style, columns, cut, cut_front, harmless, wrapped

#: Cells of a bar, where there is room for so many.
_BAR = 32
_SHORT_BAR = 12

#: A line with less room than this has the short bar, and so much of the name of a pod.
_NARROW = 110
_SHORT_NAME = 20

#: A line has no bar where the sentence would have less room than this.
_SENTENCE = 16

_SHOWN_PEERS = 10


def headline(summary: Summary) -> str:
    """How many loads there are, and what became of them."""
    group = summary.all
    told = []
    if group.outcomes["success"]:
        middle = group.quantile(0.5) or 0.0
        told.append(
            f"{group.outcomes['success']} succeeded (median {middle:.1f} s, "
            f"slowest {summary.slowest:.1f})"
        )
    told += [
        f"{group.outcomes[outcome]} {word}"
        for outcome, word in (
            ("error", "failed"),
            ("killed", "killed"),
            ("running", "running"),
            ("unknown", "without an end"),
        )
        if group.outcomes[outcome]
    ]
    loads = "1 load" if group.total == 1 else f"{group.total} loads"
    pods = "1 pod" if len(summary.pods) == 1 else f"{len(summary.pods)} pods"
    schemes = sorted(scheme for scheme in summary.schemes if scheme)
    tail = f"    scheme {', '.join(map(harmless, schemes))}" if len(schemes) == 1 else ""
    return f"{loads}, {pods}: {', '.join(told) or 'nothing'}{tail}"


def load_lines(loads: Sequence[Load], style: Style) -> list[str]:
    """The table of loads, and what its letters mean."""
    if not loads:
        return []
    longest = max((load.elapsed for load in loads), default=0.0)
    same_day = len({load.began[:10] for load in loads}) == 1
    wide = style.width is None or style.width >= _NARROW
    head = ["POD", "RANK", "LOAD", "BEGAN", "SECONDS", "RESULT"]
    rows = [
        [
            cut_front(harmless(load.process.place), None if wide else _SHORT_NAME),
            "-" if load.rank is None else str(load.rank),
            harmless(load.load_id or "-"),
            load.began[11:19] if same_day else load.began[:19].replace("T", " "),
            _seconds_of(load),
            "" if load.outcome == "success" else load.outcome,
        ]
        for load in loads
    ]
    if not wide:  # when it began can be asked of `explain`
        head.pop(3)
        for row in rows:
            row.pop(3)
    table = columns(head, rows, " >  >" if wide else " > >")
    pad = max(map(len, table)) + 2
    cells = _BAR if wide else _SHORT_BAR
    if style.width is not None and style.width < pad + cells + 2 + _SENTENCE:
        cells = 0
    before = pad + (cells + 2 if cells else 0)
    room = None if style.width is None else max(0, style.width - before)
    scale = f"0{f'{longest:.0f} s'.rjust(cells - 1)}  " if cells else ""
    lines = [style.paint(f"{table[0].ljust(pad)}{scale}{cut('WHY', room)}", "head")]
    met = set()
    for load, text in zip(loads, table[1:], strict=True):
        bar = bar_of(load, longest, cells) if cells else []
        met |= {kind for _, kind in bar}
        painted = "".join(style.paint(letter, kind) for letter, kind in bar)
        blank = " " * (before - pad - len(bar))
        told = cut(harmless(why(load)), room)
        lines.append(f"{text.ljust(pad)}{painted}{blank}{told}".rstrip())
    legend = [(name, kind) for name, kind in KINDS.items() if name in met]
    return lines + wrapped(
        (
            (f"{kind.letter} {kind.doc}", f"{style.paint(kind.letter, name)} {kind.doc}")
            for name, kind in legend
        ),
        style.width,
    )


def bar_of(load: Load, longest: float, cells: int) -> list[tuple[str, str]]:
    """Letter and kind of each cell: what took most of the time that the cell stands for."""
    if longest <= 0:
        return []
    each = longest / cells
    given = parts(load)
    bar = []
    for at in range(max(1, round(load.elapsed / each)) if load.elapsed else 0):
        first, last = at * each, (at + 1) * each
        kind = max(given, key=lambda part: min(part.end, last) - max(part.at, first)).kind
        bar.append((KINDS[kind].letter, kind))
    if load.outcome in ("killed", "running", "unknown") and (not bar or bar[-1][1] != "open"):
        bar[len(bar) - 1 if len(bar) == cells else len(bar) :] = [(KINDS["open"].letter, "open")]
    return bar


def peer_lines(summary: Summary, style: Style) -> list[str]:
    """The table of peers, those with most attempts first."""
    peers = [(name, group) for name, group in summary.peers.items() if name != "unknown"]
    if not peers:
        return []
    peers.sort(key=lambda each: (-each[1].total, each[0]))
    rows = [
        [
            harmless(name),
            str(group.total),
            str(group.outcomes["success"]),
            _shown(group.quantile(0.5)),
            f"{summary.hanging[name]} never ended" if summary.hanging[name] else "",
        ]
        for name, group in peers[:_SHOWN_PEERS]
    ]
    head = ["PEER", "ATTEMPTS", "SUCCEEDED", "MEDIAN RECEIVE", ""]
    lines = [cut(line, style.width) for line in columns(head, rows, " >>>")]
    lines[0] = style.paint(lines[0], "head")
    if len(peers) > _SHOWN_PEERS:
        lines.append(f"… {len(peers) - _SHOWN_PEERS} more (--by peer)")
    return lines


def group_lines(name: str, groups: dict[str, Group], style: Style) -> list[str]:
    """A row a group, with exact quantiles of what ended well and how many that are."""
    rows = [
        [
            harmless(key),
            str(group.total),
            str(group.outcomes["success"]),
            str(group.total - group.outcomes["success"]),
            *(_shown(group.quantile(q)) for q in (0.5, 0.9, 0.95, 0.99, 1.0)),
        ]
        for key, group in sorted(groups.items())
    ]
    what = "ATTEMPTS" if name == "peer" else "LOADS"
    head = [name.upper(), what, "SUCCEEDED", "OTHERS", "P50", "P90", "P95", "P99", "SLOWEST"]
    lines = columns(head, rows, " >>>>>>>>")
    lines[0] = style.paint(lines[0], "head")
    lines.append(f"exact quantiles of the seconds of those that succeeded ({_of(name)})")
    return lines


def start_lines(starts: Iterable[PodStart], style: Style) -> list[str]:
    """A row a start of a pod: its slowest rank, and what made it so."""
    rows = []
    for start in starts:
        slowest = start.slowest
        straggling = start.straggling
        rows.append(
            [
                harmless(start.place),
                start.began[:19].replace("T", " "),
                str(len(start.loads)),
                _shown(start.median),
                _seconds_of(slowest),
                "" if slowest.outcome == "success" else slowest.outcome,
                "-" if slowest.rank is None else str(slowest.rank),
                f"{straggling[0]} +{straggling[1]:.1f} s" if straggling else "",
                harmless(why(slowest)),
            ]
        )
    head = ["POD", "BEGAN", "LOADS", "MEDIAN", "SLOWEST", "RESULT", "RANK", "LONGER IN", "WHY"]
    lines = [cut(line, style.width) for line in columns(head, rows, "  >>> >")]
    lines[0] = style.paint(lines[0], "head")
    return lines


def _of(name: str) -> str:
    return "of the phase receive" if name == "peer" else "of whole loads"


def _seconds_of(load: Load) -> str:
    """How long it took; of one that runs, how long it has been running."""
    known = load.seconds is not None or load.outcome == "running"
    return f"{load.elapsed:.1f}" if known else "?"


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
