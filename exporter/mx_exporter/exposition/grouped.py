"""The samples of many groups of processes on one page, told apart by further labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..core.catalog import Catalog, Family
from ..core.grouped import Group
from ..core.state import State
from .samples import Collector, FamilySamples, Histogram, Point, derived_collectors


def clashing(catalog: Catalog, labels: Sequence[str]) -> Family | None:
    """A family that has one of these labels of its own."""
    for family in catalog.families:
        if set(labels) & set(family.label_names(opt_in=True)):
            return family
    return None


def grouped_collectors(
    catalog: Catalog,
    labels: Sequence[str],
    states: Mapping[Group, State],
    *,
    source_id_label: bool = False,
    created: bool = True,
    max_series: int | None = None,
) -> Iterator[Collector]:
    """The families of the states of groups, each with the labels of the group before its own.

    :param labels: names of the labels that groups are told apart by.
    :param states: values of these labels -> state.

    The others are as for `derived_collectors`; ``max_series`` is of each group.
    """
    parts = [
        (
            group,
            dict(
                derived_collectors(
                    catalog,
                    states[group],
                    source_id_label=source_id_label,
                    created=created,
                    max_series=max_series,
                )
            ),
        )
        for group in sorted(states)
    ]
    for family in catalog.families:
        given = [(group, of_family[family.name]) for group, of_family in parts]
        yield Collector(family.name, partial(_together, tuple(labels), given))


def _together(
    labels: Group, parts: Sequence[tuple[Group, Callable[[], Iterable[FamilySamples]]]]
) -> list[FamilySamples]:
    first: FamilySamples | None = None
    series: list[Point | Histogram] = []
    for group, collect in parts:
        for family in collect():
            first = first or family
            series += (replace(one, labels=(*group, *one.labels)) for one in family.series)
    if first is None:
        return []
    return [replace(first, label_names=(*labels, *first.label_names), series=series)]
