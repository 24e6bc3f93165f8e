"""A comparison as text, as Markdown, as JSON, and gates as JUnit's XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ..loads.compare import FASTER, SAME, SLOWER, TOO_FEW, Difference
from ..loads.parts import FAILED, KINDS
from .compare import Comparison, Row, Side
from .gates import Verdict
from .text_table import Style, columns, cut, harmless

#: Errors and peers that are listed.
_LISTED = 10

_INDENT = "  "


def text_lines(found: Comparison, verdicts: Iterable[Verdict], style: Style) -> Iterator[str]:
    """The comparison for a terminal."""
    yield _side("A", found.before)
    yield _side("B", found.after)
    yield ""
    table = columns(_HEAD, list(_rows(found)), "  >>>>")
    yield style.paint(cut(table[0], style.width), "head")
    for line, each in zip(table[1:], _each(found), strict=True):
        kind = {SLOWER: "bad", FASTER: "good"}.get(each.verdict, "")
        yield style.paint(cut(line, style.width), kind)
    yield ""
    yield from _breakdown(found)
    yield from _failures(found)
    yield from _peers(found)
    told = [_told(verdict) for verdict in verdicts]
    if told:
        yield ""
        yield from told


_HEAD = ["seconds, successes", "", "A", "B", "change", "", "95 % interval", "", "n"]


def _rows(found: Comparison) -> Iterator[list[str]]:
    for row, each in _pairs(found):
        name = f"{_INDENT * max(0, row.figure.depth - 1)}{harmless(row.figure.name)}"
        first = each is row.differences[0]
        yield [name if first else "", f"p{each.q * 100:.0f}", *_cells(each)]


def _pairs(found: Comparison) -> Iterator[tuple[Row, Difference]]:
    for row in found.rows:
        for each in row.differences:
            # The far quantile of a phase says little; JSON has it.
            if each is row.differences[0] or row.figure.depth == 0:
                yield row, each


def _each(found: Comparison) -> Iterator[Difference]:
    return (each for _, each in _pairs(found))


def _cells(each: Difference) -> list[str]:
    interval = "" if each.interval is None else f"{each.interval[0]:+.1f} … {each.interval[1]:+.1f}"
    verdict = "too few loads to say" if each.verdict == TOO_FEW else each.verdict
    ratio = "" if each.ratio is None or each.verdict == SAME else f"{each.ratio:+.0%}"
    return [
        _number(each.before),
        _number(each.after),
        "" if each.change is None else f"{each.change:+.1f}",
        ratio,
        interval,
        verdict,
        f"{each.counts[0]}, {each.counts[1]}",
    ]


def _side(letter: str, side: Side) -> str:
    outcomes = side.outcomes
    told = [f"{len(side.loads)} loads", f"{side.starts} starts of pods"]
    told.append(f"{outcomes['success']} succeeded")
    tags = [
        f"{name} {harmless(tag)}"
        for name, tag in (
            ("scheme", side.tags(lambda load: load.scheme)),
            ("version", side.tags(lambda load: load.version)),
        )
        if tag
    ]
    return f"{letter} {harmless(side.name)}  {'  '.join(tags)}  {', '.join(told)}"


def _breakdown(found: Comparison) -> Iterator[str]:
    before, after = (found.mean(side) for side in (found.before, found.after))
    if before is None or after is None:
        yield "Of one side no load ended well: there is no mean to compare."
        return
    yield (
        f"Where the mean of successes went from {before:.1f} to {after:.1f} s "
        f"({after - before:+.1f}):"
    )
    most = max((abs(share.change) for share in found.shares), default=0.0)
    for share in found.shares:
        if abs(share.change) < 0.05:
            continue
        what = "failed attempts" if share.kind == FAILED else KINDS[share.kind].doc
        bar = "#" * max(1, round(8 * abs(share.change) / most)) if share.change > 0 else ""
        yield f"  {what:18} {share.change:+6.1f}  {bar:8}  ({_counts(found, share.kind)})".rstrip()


def _counts(found: Comparison, kind: str) -> str:
    told = []
    for side in (found.before, found.after):
        if kind == FAILED:
            failed = sum(not ok for load in side.loads for _, ok in load.attempts)
            total = sum(len(load.attempts) for load in side.loads)
            unfinished = sum(load.unfinished for load in side.loads)
            more = f", {unfinished} unfinished" if unfinished else ""
            told.append(f"{failed} of {total}{more}")
        else:
            having = sum(load.parts.get(kind, 0.0) > 0 for load in side.well)
            told.append(f"{having} of {len(side.well)} loads")
    return "; ".join(told)


def _failures(found: Comparison) -> Iterator[str]:
    counts = [side.outcomes for side in (found.before, found.after)]
    yield ", ".join(
        f"{word} {counts[0][outcome]} → {counts[1][outcome]}"
        for word, outcome in (("failed", "error"), ("killed", "killed"), ("no end", "unknown"))
        if outcome != "unknown" or counts[0][outcome] or counts[1][outcome]
    )
    for text, before, after in found.errors[:_LISTED]:
        yield f"  {before} → {after}  {harmless(text)}"
    if len(found.errors) > _LISTED:
        yield f"  … {len(found.errors) - _LISTED} more"


def _peers(found: Comparison) -> Iterator[str]:
    if not found.peers:
        return
    yield ""
    rows = [
        [
            harmless(peer.name),
            *(
                f"{well} of {tried}" if tried else "-"
                for well, tried in zip(peer.succeeded, peer.attempts, strict=True)
            ),
        ]
        for peer in found.peers[:_LISTED]
    ]
    yield from columns(["PEER, attempts that succeeded", "A", "B"], rows, " >>")
    if len(found.peers) > _LISTED:
        yield f"… {len(found.peers) - _LISTED} more"


def _told(verdict: Verdict) -> str:
    word = "FAIL" if verdict.failed else "not judged" if verdict.skipped else "ok"
    return f"{word}  {verdict.said}   ({verdict.gate.text})"


def markdown_lines(found: Comparison, verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The comparison for a pull request."""
    for letter, side in (("A", found.before), ("B", found.after)):
        yield f"- **{letter}** {_cell(_side('', side).strip())}"
    yield ""
    yield "| seconds, successes | | A | B | change | | 95 % interval | | n |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"
    for cells in _rows(found):
        name = cells[0].replace(_INDENT, "&nbsp;&nbsp;")
        yield f"| {' | '.join([_cell(name), *map(_cell, cells[1:])])} |"
    yield ""
    yield "```text"
    yield from _breakdown(found)
    yield from (line.replace("`", "'") for line in _failures(found))
    yield "```"
    told = [f"- {_cell(_told(verdict))}" for verdict in verdicts]
    if told:
        yield ""
        yield from told


def _cell(text: str) -> str:
    return harmless(text).replace("|", "\\|").replace("<", "&lt;")


def as_object(found: Comparison, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """The comparison as one object of JSON."""
    return {
        "a": _side_object(found.before),
        "b": _side_object(found.after),
        "figures": [
            {
                "name": row.figure.name,
                "of": ("load", "phase", "attempt_phase")[row.figure.depth],
                "quantile": each.q,
                "a": each.before,
                "b": each.after,
                "change": each.change,
                "ratio": each.ratio,
                "interval": each.interval,
                "n": each.counts,
                "verdict": each.verdict,
            }
            for row in found.rows
            for each in row.differences
        ],
        "mean": {
            "a": found.mean(found.before),
            "b": found.mean(found.after),
            "parts": [
                {"kind": share.kind, "a": share.before, "b": share.after, "change": share.change}
                for share in found.shares
            ],
        },
        "errors": [{"error": text, "a": a, "b": b} for text, a, b in found.errors],
        "peers": [
            {"peer": peer.name, "attempts": peer.attempts, "succeeded": peer.succeeded}
            for peer in found.peers
        ],
        "fail": [
            {
                "condition": verdict.gate.text,
                "failed": verdict.failed,
                "judged": not verdict.skipped,
                "said": verdict.said,
            }
            for verdict in verdicts
        ],
    }


def _side_object(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "loads": len(side.loads),
        "starts": side.starts,
        "outcomes": dict(sorted(side.outcomes.items())),
    }


def junit(verdicts: list[Verdict]) -> str:
    """The gates as test cases."""
    cases = [
        (verdict.gate.text, verdict.said, verdict.failed, verdict.skipped) for verdict in verdicts
    ]
    failed = sum(case[2] for case in cases)
    skipped = sum(case[3] for case in cases)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="mx-metrics diff" tests="{len(cases)}" failures="{failed}" '
        f'skipped="{skipped}">',
    ]
    for name, said, bad, left in cases:
        lines.append(f'  <testcase classname="mx-metrics.diff" name={quoteattr(name)}>')
        if bad:
            lines.append(f"    <failure message={quoteattr(said)}>{escape(said)}</failure>")
        elif left:
            lines.append(f"    <skipped message={quoteattr(said)}/>")
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
