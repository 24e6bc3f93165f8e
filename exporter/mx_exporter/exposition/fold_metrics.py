"""Families about the fold itself: the books, what was rejected and refused, the series cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..core.catalog import Catalog
from ..core.decode import REASONS
from ..core.reducers import REFUSALS
from ..core.series_cap import SPARE
from ..core.state import State
from ..core.unanswered import MOST_SHOWN, OTHER
from .rows import Row, read_rows, row_collectors
from .samples import Collector, FamilySamples, hidden_series, seconds

#: Read from every fold's state, live or not.
STATE_ROWS: tuple[Row[State], ...] = (
    Row(
        "mx_exporter_events_folded_total",
        "counter",
        "Events folded, by event.",
        lambda state: state.events,
        ("event",),
    ),
    Row(
        "mx_exporter_lines_rejected_total",
        "counter",
        "Lines that give no event, by reason.",
        lambda state: state.rejected,
        ("reason",),
        REASONS,
    ),
    Row(
        "mx_exporter_observations_refused_total",
        "counter",
        "Events whose observation was refused, by reason.",
        lambda state: state.refused,
        ("reason",),
        REFUSALS,
    ),
    Row(
        "mx_exporter_events_skipped_total",
        "counter",
        "Events that no family knows.",
        lambda state: state.skipped,
    ),
    Row(
        "mx_exporter_recorder_calls_unanswered_total",
        "counter",
        "Calls of recorders that the emitter does not know, misspelt ones among them, by name.",
        lambda state: state.calls.shown(),
        ("recorder",),
        {OTHER: f"all names but the {MOST_SHOWN} that were called first"},
    ),
    Row(
        "mx_exporter_duplicates_total",
        "counter",
        "Lines skipped because their process and number were met before.",
        lambda state: state.duplicates,
    ),
    Row(
        "mx_exporter_events_logged_total",
        "counter",
        "Events that the ranks are known to have logged, by their numbers: "
        "folded, refused, skipped, rejected and lost together.",
        lambda state: state.logged,
    ),
    # Not a counter: a file that arrives late brings lost events back.
    Row(
        "mx_exporter_events_lost",
        "gauge",
        "Events that were logged, by their numbers, and never met.",
        lambda state: state.lost,
    ),
    Row(
        "mx_exporter_last_event_timestamp_seconds",
        "gauge",
        "Time of the latest event, in seconds since the epoch.",
        lambda state: seconds(state.last_event) if state.last_event else None,
    ),
)

#: Read from how many series of each family the cap leaves out of the page.
CAP_ROWS: tuple[Row[Callable[[], Mapping[str, int]]], ...] = (
    Row(
        "mx_exporter_series_capped",
        "gauge",
        "1 where a family has more series than the series cap: the page shows the oldest.",
        lambda hidden: {name: int(count > 0) for name, count in hidden().items()},
        ("family",),
    ),
    Row(
        "mx_exporter_series_refused_total",
        "counter",
        f"Series that the series cap leaves out of the page, by family; it says {SPARE} at most.",
        lambda hidden: hidden(),
        ("family",),
    ),
)


def state_families(state: State) -> Iterator[FamilySamples]:
    """The books and counts that every fold keeps, live or not."""
    return read_rows(STATE_ROWS, state)


def fold_collectors(
    catalog: Catalog, state: State, *, source_id_label: bool, max_series: int | None
) -> Iterator[Collector]:
    """All of these: the books, then what the series cap leaves out of a page."""
    yield from row_collectors(STATE_ROWS, state)
    yield from row_collectors(
        CAP_ROWS,
        lambda: hidden_series(
            catalog, state, source_id_label=source_id_label, max_series=max_series
        ),
    )
