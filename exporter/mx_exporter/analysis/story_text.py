"""The story of one load as text: what ran when, how long, and what no event covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..loads.model import Attempt, Load, Selection, Span
from ..loads.parts import CHAIN, uncovered
from ..loads.quantiles import median
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


#: Stages of the funnel after the first, in words.
_STAGES = {"rank_matched": "of this rank", "accelerator_matched": "of this accelerator"}


class Others(NamedTuple):
    """What the other loads of the same logs came to."""

    #: Seconds of those of the same model and role that ended well.
    seconds: list[float]
    #: Peer -> attempts at it, and those that succeeded, this load's aside.
    attempts: Mapping[str, int]
    succeeded: Mapping[str, int]


class Row(NamedTuple):
    """A line of the story."""

    at: float
    #: None: it never ended, or there is no duration to it.
    took: float | None
    depth: int
    text: str
    #: It is a share of the load worth pointing at.
    share: float = 0.0
    #: A name of a colour.
    kind: str = ""


def story_lines(load: Load, others: Others, style: Style) -> list[str]:
    """All that the log says of a load."""
    lines = [style.paint(harmless(_headline(load, others)), "head"), harmless(_place(load)), ""]
    lines.append("    AT   TOOK")
    for row in rows(load):
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


def rows(load: Load) -> list[Row]:
    """What happened, in order: phases, what ran within them, and time that nothing covers."""
    found = [*_phases(load), *_selections(load), *_attempts(load), *_artifacts(load)]
    within = {CHAIN: 1}
    for gap in uncovered(load):
        inside = any(
            span.name in within and span.at <= gap.at + 0.001 and _end(load, span) >= gap.at
            for span in load.phases
        )
        found.append(
            Row(gap.at, gap.seconds, int(inside), gap.name, _share(load, gap.seconds), "alone")
        )
    return sorted(found, key=lambda row: round(row.at, 3))


def _phases(load: Load) -> Iterator[Row]:
    inside = {"artifact_install": bool(load.artifacts), CHAIN: bool(load.attempts)}
    for span in load.phases:
        gap = span.name == CHAIN and not load.attempts and span.seconds is not None
        leaf = not inside.get(span.name) and not gap
        yield _of_span(load, span, 0, span.name, leaf=leaf)


def _of_span(load: Load, span: Span, depth: int, text: str, *, leaf: bool = True) -> Row:
    kind = ""
    share = _share(load, span.seconds) if leaf else 0.0
    if span.seconds is None:
        text, kind = f"{text}   never ended", "open"
        share = _share(load, load.elapsed - span.at) if leaf else 0.0
    elif span.error_type or span.error:
        text, kind = f"{text}   {error_of(span)}", "bad"
    return Row(span.at, span.seconds, depth, text, share, kind)


def _selections(load: Load) -> Iterator[Row]:
    for each in load.selections:
        yield Row(each.at, None, 1, _listed(each))
        if each.candidates:
            loads = "   ".join(
                f"{candidate.peer} "
                + ("unpublished" if candidate.load is None else f"{candidate.load:.2f}")
                for candidate in each.candidates
            )
            yield Row(each.at, None, 2, loads)


def _listed(selection: Selection) -> str:
    if selection.result == "empty":
        return f"no source was listed; by {selection.policy}"
    counts = selection.counts
    told = []
    if "listed" in counts:
        told.append(f"{counts['listed']:.0f} listed")
    for stage, word in (
        ("rank_matched", "of this rank"),
        ("accelerator_matched", "of this accelerator"),
    ):
        if stage in counts:
            told.append(f"{counts[stage]:.0f} {word}")
    if selection.result not in (None, "ok"):
        told.append(f"result {selection.result}")
    if selection.seconds is not None:
        told.append(f"put in order in {selection.seconds * 1000:.1f} ms")
    return f"{', '.join(told) or 'sources'}; by {selection.policy or 'an unknown policy'}"


def _attempts(load: Load) -> Iterator[Row]:
    for number, attempt in enumerate(load.attempts, 1):
        kind = "good" if attempt.succeeded else "bad"
        peer = attempt.peer or "an unknown peer"
        text = f"attempt {number}: {peer}   {_result(load, attempt)}"
        yield Row(
            attempt.at,
            attempt.seconds,
            1,
            text,
            0.0 if attempt.phases else _share(load, attempt.seconds),
            "open" if attempt.seconds is None else kind,
        )
        for span in attempt.phases:
            yield _of_span(load, span, 2, span.name)


def _result(load: Load, attempt: Attempt) -> str:
    if attempt.seconds is None:
        return "runs" if load.outcome == "running" else "never ended"
    told = attempt.result or "no event says how it ended"
    if attempt.failures:
        counts = Counter(attempt.failures)
        told += (
            f" (nixl: {', '.join(f'{kind} x{n}' if n > 1 else kind for kind, n in counts.items())})"
        )
    if attempt.received and attempt.received != "complete":
        told += f", the receive was {attempt.received}"
    return told


def _artifacts(load: Load) -> Iterator[Row]:
    for each in load.artifacts:
        size = "" if each.size is None else f", {each.size / 1e6:.1f} MB"
        yield Row(each.at, None, 1, f"{each.artifact} ({each.archive}){size}")
        for step in each.steps:
            yield _of_span(load, step, 2, step.name)


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


def _share(load: Load, seconds: float | None) -> float:
    return 0.0 if not seconds or load.elapsed <= 0 else seconds / load.elapsed


def _end(load: Load, span: Span) -> float:
    return load.elapsed if span.seconds is None else span.at + span.seconds
