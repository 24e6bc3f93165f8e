"""``mx-metrics replay``: logs in, the page out that a scrape would have shown.

The same fold as the live exporter's, over files instead of a directory that grows. Many files
are folded in several processes, each with the files of some writers; their states merge to the
same bytes, since merging is exact.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import orjson

from . import exposition
from .errors import MxError, UsageError
from .fold import Fold
from .reading import read
from .settings import resolve_directory
from .sources import Found, Source, Unreadable, Writers, find, survey
from .state import Overlap, State

#: Less than this is folded before other processes would have started.
_WORTH_SPREADING = 8 * 1024 * 1024

#: Groups of writers a process, so that a slow one does not keep the others waiting.
_GROUPS_EACH = 4

#: Problems with single files that are told one by one.
_TOLD = 10


@dataclass
class Outcome:
    """What a fold gave: the state, and the sources that could not be read to their end."""

    state: State
    problems: list[tuple[Source, Unreadable]] = field(default_factory=list)


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
    :return: 0, or 1 when a file that was named could not be read to its end.
    :raises UsageError: a path names nothing.
    """
    found = find(logs or (default_directory(),))
    writers = survey(found)
    outcome = fold_all(found, writers, max_series=max_series, jobs=jobs)
    state = outcome.state
    if output == "json":
        page = b"".join(json_lines(state, source_id_label=source_id_label))
    else:
        openmetrics = output == "openmetrics"
        metrics = exposition.families(
            state, source_id_label=source_id_label, openmetrics=openmetrics
        )
        page = exposition.render(metrics, openmetrics=openmetrics)
    sys.stdout.flush()
    sys.stdout.buffer.write(page)
    sys.stdout.buffer.flush()
    _tell(found, outcome)
    return int(any(error.ours and not source.listed for source, error in outcome.problems))


def default_directory() -> str:
    """The directory of the environment, by the rule that `serve` follows.

    :raises UsageError: it is not there, or may not be used.
    """
    directory = resolve_directory()
    objection = directory.objection()
    if objection:
        raise UsageError(f"{directory.path}: {objection}; name a directory or set MX_METRICS_DIR")
    if not os.path.isdir(directory.path):
        raise UsageError(
            f"{directory.path}: no such directory; name the logs or set MX_METRICS_DIR"
        )
    return directory.path


# --------------------------------------------------------------------------------------
# The fold


def fold_all(
    found: Found, writers: Writers, *, max_series: int | None = None, jobs: int | None = None
) -> Outcome:
    """Fold all sources, in several processes where that is worth it and changes nothing."""
    cores = len(os.sched_getaffinity(0)) if jobs is None else jobs
    groups = _groups(found.sources, cores * _GROUPS_EACH)
    with _Progress(sum(source.size for source in found.sources)) as progress:
        # A cap keeps what comes first, so it needs one order.
        if cores > 1 and len(groups) > 1 and max_series is None:
            try:
                return _spread(groups, writers, min(cores, len(groups)), progress.add)
            except Overlap:
                # Files do not hold the writers that their names say.
                progress.restart()
        return fold_sources(found.sources, writers, max_series, progress.add)


def fold_sources(
    sources: Iterable[Source],
    writers: Writers,
    max_series: int | None = None,
    seen: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Fold sources one after the other, and settle the writers that are gone."""
    fold = Fold(max_series=max_series)
    outcome = Outcome(fold.state)
    for source in sources:
        try:
            for _, records in read(source, writing=source.path in writers.open, seen=seen):
                fold.feed(records)
        except Unreadable as error:
            outcome.problems.append((source, error))
    for proc in list(fold.state.books):
        if proc not in writers.alive:
            fold.writer_gone(proc)
    return outcome


def _groups(sources: list[Source], wanted: int) -> list[list[Source]]:
    """Sources by writer, in at most ``wanted`` groups of about equal size; one group when they
    are too small to be spread, or when some do not say whose they are."""
    if (
        any(source.segment is None for source in sources)
        or sum(source.weight for source in sources) < _WORTH_SPREADING
    ):
        return [sources]
    by_proc: dict[str, list[Source]] = {}
    for source in sources:
        by_proc.setdefault(source.proc, []).append(source)
    sized = sorted(
        ((sum(source.weight for source in given), given) for given in by_proc.values()),
        key=lambda each: -each[0],
    )
    groups: list[list[Source]] = [[] for _ in range(min(wanted, len(sized)))]
    sizes = [0] * len(groups)
    for size, given in sized:
        at = sizes.index(min(sizes))
        groups[at] += given
        sizes[at] += size
    return groups


def _spread(
    groups: list[list[Source]], writers: Writers, jobs: int, seen: Callable[[int], None]
) -> Outcome:
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    others = set(multiprocessing.active_children())
    whole = Outcome(State())
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_mind_parent) as pool:
        try:
            pending = {pool.submit(fold_sources, group, writers): group for group in groups}
            for done in as_completed(pending):
                part = done.result()
                whole.state.merge(part.state)
                whole.problems += part.problems
                seen(sum(source.size for source in pending[done]))
        except BaseException as error:
            # What they have in hand may take minutes.
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise MxError("a process that was folding died; try again with --jobs 1") from None
            raise
    order = {source.path: at for at, source in enumerate(s for group in groups for s in group)}
    whole.problems.sort(key=lambda problem: order[problem[0].path])
    return whole


def _mind_parent() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the parent, and end with it:
    a worker whose parent was killed would wait for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


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


def _tell(found: Found, outcome: Outcome) -> None:
    """Say on standard error what did not become metrics, if anything."""
    for source, error in outcome.problems[:_TOLD]:
        _say(f"{source.shown}: {error}")
    if len(outcome.problems) > _TOLD:
        _say(f"{len(outcome.problems) - _TOLD} more files were left alone or not read whole")
    if not found.sources:
        _say("no segments there (events-<12 hex digits>-<number>.jsonl, plain, .gz or .zst)")
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
        _say(", ".join(told) + "; `mx-metrics check` with the same arguments says which and why")


def _say(message: str) -> None:
    print(f"mx-metrics: {message}", file=sys.stderr)  # noqa: T201


class _Progress:
    """The share of the bytes that was read, on standard error while that is a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._next = 0.0
        self._shown = total > 0 and sys.stderr.isatty()

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

    def restart(self) -> None:
        self._done = 0
