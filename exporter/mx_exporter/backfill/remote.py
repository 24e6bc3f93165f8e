"""The history of series by remote write."""

from __future__ import annotations

from collections.abc import Iterable

from ..push.remote_write import BATCH, RemoteWriter, encode_run, encode_series, encode_time
from ..push.remote_write import sample_labels as labels_of
from .history import SeriesHistory, sample_values


def send(histories: Iterable[SeriesHistory], step: int, writer: RemoteWriter) -> None:
    """Send all of it, each series in order of time.

    :param step: seconds between two steps.
    :raises MxError: as the writer does.
    """
    for history in histories:
        waiting = _Waiting(history, writer)
        for begin, end, values in history.runs:
            for first in range(begin, end, BATCH):
                steps = range(first, min(end, first + BATCH))
                waiting.add(values, [encode_time(number * step * 1000) for number in steps])
        waiting.flush()
    writer.flush()


class _Waiting:
    """Samples of one series that wait until there are enough for a request."""

    def __init__(self, history: SeriesHistory, writer: RemoteWriter) -> None:
        bounds = history.bounds if history.family.type == "histogram" else None
        self._writer = writer
        self._labels = labels_of(history.family.name, history.labels, bounds)
        self._runs: list[list[bytes]] = [[] for _ in self._labels]
        self._counts = [0] * len(self._labels)

    def add(self, values: tuple[float, ...], times: list[bytes]) -> None:
        """Take what the series showed at these times."""
        for number, value in enumerate(sample_values(values, len(self._labels))):
            self._runs[number].append(encode_run(value, times))
            self._counts[number] += len(times)
        if self._counts[0] >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand over what waits."""
        for number, labels in enumerate(self._labels):
            if self._counts[number]:
                samples = b"".join(self._runs[number])
                self._writer.add(encode_series(labels, samples), self._counts[number])
            self._runs[number], self._counts[number] = [], 0
