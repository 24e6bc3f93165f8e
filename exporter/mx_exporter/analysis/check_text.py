"""The report of `mx-metrics check` as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice

from mx_log.schema import RECORDERS
from mx_log.words import counted

from ..offline.sources import Found
from .check_report import TOLD, FileReport, Report, SnapshotReport
from .text_table import harmless

#: Names that are shown of the recorders that no family answers.
_SHOWN = 10


def as_lines(report: Report, *, verbose: bool = False) -> Iterator[str]:
    """The report as lines of text.

    :param verbose: with the events of each file by name, and with all faults that were kept.
    """
    for snapshot in report.snapshots:
        yield from _snapshot_lines(snapshot)
    told = (line for file in report.files for line in _file_lines(file, verbose))
    yield from told if verbose else islice(told, TOLD + 2)
    more = sum(1 for _ in told)
    if more:
        yield f"{counted(more, 'more such line')} about files; -v shows all"
    yield from _closing_lines(report)


def _snapshot_lines(report: SnapshotReport) -> Iterator[str]:
    path = report.given.source.shown
    if report.given.problem:
        yield f"{path}: {harmless(report.given.problem)}"
        return
    lost = sum(last - first + 1 for ranges in report.lost.values() for first, last in ranges)
    counts = [
        f"{count} {what}"
        for count, what in (
            (report.skipped, "not known"),
            (report.refused.total(), "refused"),
            (lost, "lost"),
            (report.duplicates, "met before"),
        )
        if count
    ]
    rejected = report.rejected.total()
    if not report.given.snapshot.segments:
        yield f"{path}: stands for no segments yet"
        return
    yield (
        f"{path}: stands for segments of {counted(report.processes, 'process', 'processes')}: "
        + counted(report.met, "event")
        + (f" ({', '.join(counts)})" if counts else "")
        + (f", {counted(rejected, 'line')} rejected" if rejected else "")
    )
    for proc, lost_ranges in sorted(report.lost.items())[:TOLD]:
        yield f"{path}: process {harmless(proc)}: without seq {_ranges(lost_ranges)}"
    for what, reasons in (("rejected", report.rejected), ("refused", report.refused)):
        if reasons:
            named = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            yield f"{path}: {what}: {named}"
    for family in report.given.snapshot.changed:
        yield f"{path}: derived with another table of {family}, which lacks these events"


def _file_lines(report: FileReport, verbose: bool) -> Iterator[str]:
    path = report.source.shown
    if report.unreadable is not None and not report.unreadable.ours:
        yield f"{path}: {report.unreadable}"
        return
    if verbose:
        yield from _counts(path, report)
    for fault in report.faults:
        yield f"{path} line {fault.line}: {fault.kind}, {fault.reason}: {fault.detail}"
    more = report.rejected.total() + report.refused.total() - len(report.faults)
    if more:
        counts = ", ".join(
            f"{count} {reason}" for reason, count in (report.rejected + report.refused).items()
        )
        yield f"{path}: {counted(more, 'more such line')}; in all {counts}"
    if report.unreadable is not None:
        yield f"{path}: {report.unreadable}"


def _counts(path: str, report: FileReport) -> Iterator[str]:
    names = ", ".join(f"{count} {harmless(name)}" for name, count in sorted(report.events.items()))
    notes = [
        f"{count} {what}"
        for count, what in (
            (report.skipped, "not known"),
            (report.duplicates, "met before"),
            (report.tally.foreign, "lines of others"),
        )
        if count
    ]
    yield (
        f"{path}: {counted(report.events.total(), 'event')}"
        + (f" ({', '.join(notes)})" if notes else "")
        + (f": {names}" if names else "")
    )


def _closing_lines(report: Report) -> Iterator[str]:
    state, files, snapshots = report.state, report.files, report.snapshots
    for proc, book in sorted(state.books.items()):
        if book.lost:
            yield (
                f"process {harmless(proc)}: {counted(book.lost, 'event')} lost of {book.end}, "
                f"seq {_ranges(book.lost_ranges())}{_missing_segments(proc, report.found)}"
            )
    unanswered = report.unanswered
    for name, count in unanswered.most_common(_SHOWN):
        yield f"no family answers {harmless(name)} x{count}{_meant(name)}"
    if len(unanswered) > _SHOWN:
        yield f"{len(unanswered) - _SHOWN} more recorders that no family answers"
    yield from report.absent[:TOLD]
    if len(report.absent) > TOLD:
        yield f"{len(report.absent) - TOLD} more without an event"
    if not files and not snapshots:
        return
    lines = report.lines
    yield (
        f"{counted(lines.all, 'line')}: {counted(lines.events, 'event')}, "
        f"{lines.met_before} met before, {lines.rejected} rejected, {lines.foreign} of others"
    )
    unread = sum(r.unreadable is not None and r.unreadable.ours for r in files)
    faults = [
        counted(count, *names)
        for count, *names in (
            (state.rejected.total(), "line rejected", "lines rejected"),
            (state.refused.total(), "observation refused", "observations refused"),
            (state.lost, "event lost", "events lost"),
            (unread, "file not read whole", "files not read whole"),
            (
                sum(bool(snapshot.given.problem) for snapshot in snapshots),
                "snapshot that cannot be used",
                "snapshots that cannot be used",
            ),
        )
        if count
    ]
    events = sum(r.events.total() for r in files) + sum(r.met for r in snapshots)
    yield (
        f"{counted(len(files), 'file')}"
        + (f" and {counted(len(snapshots), 'snapshot')}" if snapshots else "")
        + f", {counted(events, 'event')} "
        f"of {counted(len(state.books), 'process', 'processes')}: "
        + (", ".join(faults) or "nothing is faulty")
    )


def _meant(recorder: str) -> str:
    """Which recorder a name that is none is most like."""
    alike = get_close_matches(recorder, sorted(RECORDERS), 1, 0.8)
    return f": did you mean {alike[0]}?" if alike else ""


def _ranges(ranges: list[tuple[int, int]]) -> str:
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:TOLD]]
    return ", ".join(shown) + (" and more" if len(ranges) > TOLD else "")


def _missing_segments(proc: str, found: Found) -> str:
    """Which segments would hold the lost numbers, when not all were given."""
    covered = max((segments.get(proc, -1) for segments in found.covered.values()), default=-1)
    numbers = sorted({s.segment.n for s in found.sources if s.segment and s.proc == proc})
    gaps = [
        (max(last, covered) + 1, n - 1)
        for last, n in zip([-1, *numbers], numbers, strict=False)
        if n > max(last, covered) + 1
    ]
    if not gaps:
        return ""
    return f" (its segments {_ranges(gaps)} are not among these logs)"
