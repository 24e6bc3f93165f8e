"""The story of one load as text: what ran when, how long, and what no event covers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..loads.model import Load, Span
from ..loads.quantiles import median
from ..loads.steps import steps
from ..loads.why import error_of, where, why
from .text_table import Style, cut, harmless

#: A leaf that took more than this share of the load is pointed at.
_NOTABLE = 0.1

#: Captured records that are shown, of these levels.
_RECORDS = 10
_LOUD = ("warning", "error", "critical")

_WORDS = {
    "success": "success",
    "error": "error",
    "killed": "killed",
    "running": "running",
    "unknown": "no end in the log",
}


class Others(NamedTuple):
    """What the other loads of the same logs came to."""

    #: Seconds of those of the same model and role that ended well.
    seconds: list[float]
    #: Peer -> attempts at it, and those that succeeded, this load's aside.
    attempts: Mapping[str, int]
    succeeded: Mapping[str, int]


def story_lines(load: Load, others: Others, style: Style) -> list[str]:
    """All that the log says of a load."""
    lines = [style.paint(harmless(_headline(load, others)), "head"), harmless(_place(load)), ""]
    lines.append("    AT   TOOK")
    for row in steps(load):
        took = "" if row.took is None else f"{row.took:.1f}"
        text = f"{row.at:6.1f} {took:>6}  {'  ' * row.depth}{harmless(row.text)}"
        if row.share >= _NOTABLE:
            text = f"{text.ljust(64)}   <-- {row.share:.0%}"
        lines.append(style.paint(cut(text, style.width), row.kind))
    if load.outcome != "success" or load.missing or load.clock_stepped:
        lines += ["", harmless(why(load))]
    elsewhere = _elsewhere(load, others)
    if elsewhere:
        lines += ["", harmless(elsewhere)]
    lines += ["", *_records(load)]
    return lines


def _headline(load: Load, others: Others) -> str:
    took = load.elapsed
    told = f"Load {load.load_id or 'without an id'}: {_WORDS[load.outcome]} after {took:.1f} s"
    if load.outcome == "running":
        told = f"Load {load.load_id}: running for {took:.1f} s, {where(load)}"
    usual = median(others.seconds)
    if usual:
        peers = len(others.seconds)
        of = "the other" if peers == 1 else f"the median of its {peers} peers"
        told += f", {took / usual:.1f} times {of}"
    return told


def _place(load: Load) -> str:
    process = load.process
    rank = "rank unknown" if load.rank is None else f"rank {load.rank}"
    on = f" on {process.node}" if process.node else ""
    by = f"{load.model or 'unknown model'} on {load.engine or 'unknown engine'}, {load.role}"
    return (
        f"{by} · {process.place} {rank}{on} · process {process.proc} · from "
        f"{load.began[:10]} {load.began[11:23]}"
    )


def _elsewhere(load: Load, others: Others) -> str:
    told = []
    for peer in dict.fromkeys(attempt.peer for attempt in load.attempts if attempt.peer):
        total = others.attempts.get(peer, 0)
        if total:
            told.append(
                f"{peer} served {others.succeeded.get(peer, 0)} of its {total} other attempts"
            )
        else:
            told.append(f"{peer} was attempted by no other load")
    return f"Elsewhere: {'; '.join(told)}." if told else ""


def _records(load: Load) -> Iterator[str]:
    if not load.records:
        yield "The client's own log was not captured (MX_METRICS_CAPTURE_LOGS)."
        return
    loud = [record for record in load.records if record.level in _LOUD]
    yield f"The client's own log: {len(load.records)} records" + (
        f", of which {len(loud)} warn:" if loud else "."
    )
    for record in loud[:_RECORDS]:
        text = (record.message or "").strip() or error_of(Span(name="", at=0, seconds=None))
        yield f"{record.at:6.1f}  {record.level:8}  {harmless(text)}"
    if len(loud) > _RECORDS:
        yield f"        … {len(loud) - _RECORDS} more"
