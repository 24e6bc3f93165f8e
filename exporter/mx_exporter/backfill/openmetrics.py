"""The history of series as OpenMetrics with the time of each sample, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from ..exposition.samples import FamilySamples, Histogram, Labels, Point
from ..exposition.text import number_text, page_end, series_texts
from .history import SeriesHistory

#: Steps whose times are written in one go.
_BLOCK = 4096


def pages(histories: Iterable[SeriesHistory], step: int) -> Iterator[bytes]:
    """The file in pieces.

    :param step: seconds between two steps.
    """
    named = ""
    for history in histories:
        if history.family.name != named:
            named = history.family.name
            yield series_texts(history.family, openmetrics=True)[0]
        names = sample_names(history)
        for begin, end, values in history.runs:
            for part in _run(names, begin, end, values, step):
                yield part.encode()
    yield page_end()


def sample_names(history: SeriesHistory) -> list[str]:
    """The samples of a series, each with its labels as a line has them: of a histogram the buckets,
    the count, and the sum."""
    labels: Labels = tuple(value for _, value in history.labels)
    one: Point | Histogram = Point(labels, 0.0)
    if history.family.type == "histogram":
        size = len(history.bounds) + 1
        one = Histogram(labels, history.bounds, [0] * size, [None] * size, 0.0, None)
    family: FamilySamples = replace(
        history.family, label_names=tuple(name for name, _ in history.labels), series=[one]
    )
    (text,) = series_texts(family, openmetrics=True)[1]
    return [line.rpartition(" ")[0] for line in text.decode().splitlines()]


def sample_values(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The values of so many samples of a series; of a histogram whose sum is negative, which
    OpenMetrics has no place for, the buckets alone."""
    if count == 1:
        return values
    *counts, total = values
    return (*counts, counts[-1], total) if total >= 0 else tuple(counts)


def _run(
    names: list[str], begin: int, end: int, values: tuple[float, ...], step: int
) -> Iterator[str]:
    shown = sample_values(values, len(names))
    lines = [f"{name} {number_text(value)} " for name, value in zip(names, shown, strict=False)]
    for number in range(begin // _BLOCK, (end - 1) // _BLOCK + 1):
        times = _times(number, step)
        if begin > number * _BLOCK or end < (number + 1) * _BLOCK:
            times = times[max(0, begin - number * _BLOCK) : end - number * _BLOCK]
        if len(lines) == 1:
            yield lines[0] + f"\n{lines[0]}".join(times) + "\n"
        else:
            pieces = [lines[0], *(f"\n{line}" for line in lines[1:]), "\n"]
            yield "".join([time.join(pieces) for time in times])


@lru_cache(maxsize=64)
def _times(block: int, step: int) -> list[str]:
    """The times of the steps of a block, in seconds."""
    return [str(number * step) for number in range(block * _BLOCK, (block + 1) * _BLOCK)]
