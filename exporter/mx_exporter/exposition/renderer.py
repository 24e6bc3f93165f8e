"""Pages that are written again only where they changed.

Writing takes far longer than finding out what changed: a page of ten thousand histograms takes
seconds, and between two scrapes a few of them change. So the text of each series is kept until
the series shows something else. What a page is made of may raise: that costs the page a series or a
family, which is counted and logged.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace

from .samples import Collector, FamilySamples, Labels, TableSeries
from .text import family_text, series_texts

logger = logging.getLogger(__name__)

#: Series that are written in one go: more at a time is no faster, and takes more memory.
_AT_ONCE = 500

#: Characters of an error's message that are logged: a writer's may hold the whole family.
_SAID = 200


class Failures:
    """What was left out of pages because it raised.

    :ivar counts: how often, by what was left out: a family, or a section of the page for people.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: set[tuple[object, ...]] = set()

    def note(self, part: str, error: Exception) -> None:
        """Count a failure; log it once for each part and cause, and each cause's traceback once."""
        self.counts[part] += 1
        *_, last = traceback.extract_tb(error.__traceback__)
        cause = (type(error), last.filename, last.lineno)
        if (part, cause) in self._said:
            return
        what = f"{type(error).__name__}: {str(error)[:_SAID]}".replace("\n", " ")
        trace = [] if cause in self._said else traceback.format_tb(error.__traceback__)
        self._said |= {cause, (part, cause)}
        said = f"left out of the page: {part}: {what}\n{''.join(trace)}"
        logger.error("%s", said.rstrip())


#: By label values, in the page's order: the mark of a series, and its text.
Kept = dict[Labels, tuple[object, bytes]]

_UNKNOWN = (object(), b"")


class Renderer:
    """Writes a part of a page again and again, in one format.

    :param failures: told what could not be written.
    """

    def __init__(self, failures: Failures, *, openmetrics: bool) -> None:
        self._failures = failures
        self._openmetrics = openmetrics
        #: The series of the latest texts, by family.
        self._kept: dict[str, Kept] = {}
        #: In pieces: put together, each text would be there twice.
        self._texts: list[bytes] = []
        self._version: Hashable = None

    def texts(self, collectors: Iterable[Collector], version: Hashable = None) -> list[bytes]:
        """Families as they stand on a page, in pieces, without the series or family that raises.

        :param version: of what is collected: as long as it stays, nothing is collected again.
            None: it may have changed.
        """
        if version is None or version != self._version:
            failed = self._failures.counts.total()
            kept, self._kept = self._kept, {}
            self._texts = [text for each in collectors for text in self._collect(each, kept)]
            # What failed may be there at the next try.
            self._version = version if self._failures.counts.total() == failed else None
        return self._texts

    def _collect(self, collector: Collector, kept: dict[str, Kept]) -> list[bytes]:
        texts: list[bytes] = []
        try:
            for family in collector.collect():
                if isinstance(family.series, TableSeries):
                    known = kept.pop(family.name, {})
                    texts += self._renew(family, family.series, known)
                else:
                    texts.append(family_text(family, openmetrics=self._openmetrics))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are shown
            self._failures.note(collector.name, error)
        return texts

    def _renew(self, family: FamilySamples, series: TableSeries, kept: Kept) -> list[bytes]:
        """The family, of which ``kept`` is what was shown last."""
        marks = dict(series.marks())
        changed = [at for at, mark in marks.items() if kept.get(at, _UNKNOWN)[0] != mark]
        before = len(kept)
        for at in range(0, len(changed), _AT_ONCE):
            labels = changed[at : at + _AT_ONCE]
            for one, text in zip(labels, self._write(family, series, labels), strict=True):
                if text is None:
                    kept.pop(one, None)
                else:
                    kept[one] = (marks[one], text)
        if not before == len(kept) == len(marks):
            kept = {labels: kept[labels] for labels in sorted(kept) if labels in marks}
        self._kept[family.name] = kept
        head, _ = series_texts(replace(family, series=()), openmetrics=self._openmetrics)
        return [head, *(text for _, text in kept.values())]

    def _write(
        self, family: FamilySamples, series: TableSeries, labels: list[Labels]
    ) -> list[bytes | None]:
        """The texts of some series, None for one that raises."""
        try:
            some = replace(family, series=list(map(series.sample, labels)))
            return [*series_texts(some, openmetrics=self._openmetrics)[1]]
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are shown
            if len(labels) > 1:
                return [self._write(family, series, [one])[0] for one in labels]
            self._failures.note(family.name, error)
            return [None]
