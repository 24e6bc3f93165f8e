"""Options that say what is derived from logs, and of which time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..core.catalog import Catalog
    from ..core.window import Window


def window_of(since: str | None, until: str | None, at: str | None) -> Window:
    """The window of the options ``--since``, ``--until`` and ``--at``.

    A process that is gone counts as living until it was silent for as long as an exporter would
    have waited.

    :raises UsageError: they contradict each other.
    """
    from ..core.window import ALWAYS, Window
    from ..directory.settling import GRACE_SECONDS
    from ..loads.model import earlier, later

    if at is not None:
        if until is not None:
            raise UsageError("--at and --until: give only one of them")
        until = later(at, 1e-6)
    if since is None and until is None:
        return ALWAYS
    if since is not None and until is not None and since >= until:
        raise UsageError("--since: nothing is then or later and before the other time as well")
    alive_from = earlier(until, GRACE_SECONDS) if until is not None else ""
    return Window(since or "", until or "", alive_from)


def with_buckets(catalog: Catalog, given: Iterable[tuple[str, tuple[float, ...]]]) -> Catalog:
    """A catalogue with the boundaries of ``--buckets``.

    :raises UsageError: a name is not that of a histogram.
    """
    from ..core.catalog import HISTOGRAM

    buckets = dict(given)
    histograms = [family.name for family in catalog.families if family.measure == HISTOGRAM]
    for name in buckets:
        if name not in histograms:
            raise UsageError(
                f"--buckets: {name} is not the name of a histogram; these are: "
                + ", ".join(histograms)
            )
    return catalog.with_buckets(buckets) if buckets else catalog


def check_labels(catalog: Catalog, option: str, labels: Sequence[str]) -> None:
    """See that groups can be told apart by these labels.

    :raises UsageError: a header does not say one of them, or a family has it already.
    """
    from ..core.grouped import HEADER_LABELS

    for label in labels:
        if label not in HEADER_LABELS:
            raise UsageError(
                f"{option}: {label!r} is nothing that headers say; these are: "
                + ", ".join(HEADER_LABELS)
            )
    check_free(catalog, option, labels)


def check_free(catalog: Catalog, option: str, labels: Sequence[str]) -> None:
    """See that no family has one of these labels.

    :raises UsageError: one has.
    """
    from ..exposition.grouped import clashing

    for label in labels:
        if (family := clashing(catalog, [label])) is not None:
            raise UsageError(f"{option}: {family.name} has a label {label} of its own")
