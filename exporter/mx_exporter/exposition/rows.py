"""Rows: how one of the exporter's own families is read, and what it is.

The derived families are in the catalogue. Those about the exporter itself are rows of tables like
`fold_metrics.STATE_ROWS`; the page, the documentation and the tests read the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from .samples import Collector, FamilySamples, Point

#: What the rows of a table are read from.
Source = TypeVar("Source")

#: A number, or numbers by label value; by all values where there are several labels.
Values = (
    float | Mapping[str, float] | Mapping[tuple[str, str], float] | Mapping[tuple[str, ...], float]
)


@dataclass(frozen=True)
class Row(Generic[Source]):
    """One family of the exporter's own.

    :ivar values: reads what the family shows; None: the family is left out.
    :ivar known: label values that always show, and what each means; those that ``values`` does
        not name are zero.
    :ivar as_declared: the series come in the order of ``known``, and not of their label values.
    """

    name: str
    type: str
    help: str
    values: Callable[[Source], Values | None]
    labels: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    as_declared: bool = False

    def read(self, source: Source) -> FamilySamples | None:
        """The family as it is now, or None when it is left out."""
        values = self.values(source)
        if values is None:
            return None
        if isinstance(values, Mapping):
            by_label: dict[Any, float] = {**dict.fromkeys(self.known, 0), **values}
            keys = by_label if self.as_declared else sorted(by_label)
            points = [Point(k if isinstance(k, tuple) else (k,), by_label[k]) for k in keys]
        else:
            points = [Point((), values)]
        return FamilySamples(self.name, self.type, self.help, self.labels, points)


def row_collectors(rows: Iterable[Row[Source]], source: Source) -> Iterator[Collector]:
    """The families of a table, in its order. Each is read when it is collected."""
    for row in rows:
        yield Collector(row.name, partial(read_rows, (row,), source))


def read_rows(rows: Iterable[Row[Source]], source: Source) -> Iterator[FamilySamples]:
    """The families of a table as they are now, in its order."""
    for row in rows:
        family = row.read(source)
        if family is not None:
            yield family
