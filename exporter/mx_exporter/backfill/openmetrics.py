"""The history of series as OpenMetrics with the time of each sample, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..exposition.text import boundary_texts, labels_text, number_text, page_end, series_texts
from .history import SeriesHistory, sample_values

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
    family = history.family
    pairs = sorted(history.labels)
    if family.type != "histogram":
        return [family.name + labels_text(pairs)]
    bucket, bounds = f"{family.name}_bucket", boundary_texts(history.bounds)
    return [
        *(bucket + labels_text(sorted([*pairs, ("le", bound)])) for bound in bounds),
        f"{family.name}_count{labels_text(pairs)}",
        f"{family.name}_sum{labels_text(pairs)}",
    ]


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
