"""``mx-metrics replay``: logs in, the page out that a scrape would have shown."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from . import exposition
from .bases import Base, gather, merged
from .errors import MxError
from .marks import settled
from .output import put, say
from .settings import SOURCE_ID_WARNING
from .sources import Found
from .spread import Outcome, fold_all
from .state import State

#: Problems with single files that are told one by one.
_TOLD = 10


def run(
    logs: tuple[str, ...],
    *,
    output: str = "text",
    source_id_label: bool = False,
    max_series: int | None = None,
    jobs: int | None = None,
) -> int:
    """Fold ``logs`` and print the page.

    :param logs: directories, files, patterns, ``-``; none is the directory of the environment.
    :param output: ``text`` (the classic format), ``openmetrics`` or ``json`` (`json_lines`).
    :param jobs: processes at most; None: as many as there are cores.
    :return: 0, or 1 when a file of ours could not be read to its end, so that totals are short.
    :raises UsageError: a path names nothing.
    :raises MxError: a snapshot cannot be used, or two of them know the same process.
    """
    found, bases, outcome = settled(lambda: fold_logs(logs, max_series=max_series, jobs=jobs))
    state = outcome.state
    if output == "json":
        page = b"".join(json_lines(state, source_id_label=source_id_label))
    else:
        openmetrics = output == "openmetrics"
        metrics = exposition.families(
            state, source_id_label=source_id_label, openmetrics=openmetrics
        )
        page = exposition.render(metrics, openmetrics=openmetrics)
    put(page)
    if source_id_label:
        say(SOURCE_ID_WARNING)
    _tell(found, bases, outcome)
    return int(outcome.short)


def fold_logs(
    logs: tuple[str, ...], *, max_series: int | None = None, jobs: int | None = None
) -> tuple[Found, list[Base], Outcome]:
    """Fold ``logs`` once; parameters and errors as for `run`.

    :raises StartOver: an exporter compacted one of the directories meanwhile.
    """
    found, bases, writers = gather(logs)
    for base in bases:
        if base.problem:
            raise MxError(
                f"{base.source.shown}: {base.problem}; all that it stands for would be missing. "
                "Put a good one in its place, or name the segments alone to go without it"
            )
    with _Progress(sum(source.size for source in found.sources)) as progress:
        outcome = fold_all(
            found.sources,
            writers,
            base=merged(bases),
            marks=found.marks,
            max_series=max_series,
            jobs=jobs,
            seen=progress.add,
        )
    return found, bases, outcome


# --------------------------------------------------------------------------------------
# What is printed


def json_lines(state: State, *, source_id_label: bool = False) -> Iterator[bytes]:
    """One JSON object a series, each on a line of its own.

    ``name`` (as in a query, so a counter's ends in ``_total``), ``type`` and ``labels``; then
    ``value`` for counters and gauges, or ``buckets`` (an object from each upper boundary, as
    text, to its cumulative count), ``sum`` and ``count`` for histograms. Counters and
    histograms have ``created`` as well: seconds since the epoch. An infinity is the text
    ``+Inf`` or ``-Inf``, since JSON has none.
    """
    metrics = exposition.families(state, source_id_label=source_id_label, openmetrics=True)
    for metric in metrics:
        kind = metric.type
        series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for sample in metric.samples:
            labels = dict(sample.labels)
            boundary = labels.pop("le", None) if kind == "histogram" else None
            one = series.setdefault(
                tuple(labels.items()),
                {
                    "name": f"{metric.name}_total" if kind == "counter" else metric.name,
                    "type": kind,
                    "labels": labels,
                },
            )
            part = sample.name.removeprefix(metric.name)
            if part == "_bucket":
                one.setdefault("buckets", {})[boundary] = _number(sample.value)
            elif part in ("_sum", "_count", "_created"):
                one[part[1:]] = _number(sample.value)
            else:
                one["value"] = _number(sample.value)
        for one in series.values():
            yield orjson.dumps(one) + b"\n"


def _number(value: float) -> float | str:
    """Whole numbers without a fraction, as a reader of counts expects them."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value


def _tell(found: Found, bases: list[Base], outcome: Outcome) -> None:
    """Say on standard error what did not become metrics, if anything."""
    for base in bases:
        if base.snapshot.changed:
            families = ", ".join(base.snapshot.changed)
            say(
                f"{base.source.shown}: derived with another table, so {families} "
                f"{'hold' if base.snapshot.changed[1:] else 'holds'} only what is in the segments"
            )
    for source, error in outcome.problems[:_TOLD]:
        say(f"{source.shown}: {error}")
    if len(outcome.problems) > _TOLD:
        say(f"{len(outcome.problems) - _TOLD} more files were left alone or not read whole")
    if not found.sources and not bases:
        say("no segments there (events-<12 hex digits>-<number>.jsonl, plain, .gz or .zst)")
    state = outcome.state
    counts = Counter(
        {
            "line(s) rejected": state.rejected.total(),
            "observation(s) refused": state.refused.total(),
            "event(s) lost": state.lost,
        }
    )
    told = [f"{count} {what}" for what, count in counts.items() if count]
    if told:
        say(", ".join(told) + "; `mx-metrics check` with the same arguments says which and why")


class _Progress:
    """The share of the bytes that was read, on standard error while that is a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._next = 0.0
        self._shown = total > 0 and sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, count: int) -> None:
        self._done += count
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            sys.stderr.write(f"\rreading: {min(100, self._done * 100 // self._total)} %\x1b[K")
            sys.stderr.flush()
