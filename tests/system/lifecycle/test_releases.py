"""What the number of a release promises: an exporter and logs of other releases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mx_exporter.core.builtin import CATALOG, FAMILIES
from mx_exporter.core.catalog import Catalog
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from mx_exporter.exposition.samples import derived_families
from mx_exporter.exposition.text import render
from mx_log.schema import EVENTS, HEADERS
from tests import support

LOG = support.ROOT / "tests" / "golden" / "loads"

Event = dict[str, Any]


def golden() -> Iterator[list[Event]]:
    """The events of each segment of a log of all kinds of events."""
    for path in sorted(LOG.glob("events-*.jsonl")):
        yield [json.loads(line) for line in path.read_bytes().splitlines()]


def folded(segments: list[list[Event]], catalog: Catalog = CATALOG) -> State:
    fold = Fold(catalog)
    for events in segments:
        fold.feed_lines(json.dumps(event).encode() for event in events)
    for proc in list(fold.state.books):
        fold.writer_gone(proc)
    return fold.state


def page(state: State, catalog: Catalog = CATALOG) -> str:
    return render(derived_families(catalog, state)).decode()


def numbered(events: list[Event]) -> list[Event]:
    """With numbers that have no gaps, as a process gives them."""
    return [{**event, "seq": number} for number, event in enumerate(events)]


def newer(events: list[Event]) -> list[Event]:
    """As a later emitter may log them: fields that are new, everywhere, and events between them."""
    found = []
    for event in events:
        more: Event = {"of_a_later_release": {"any": ["thing", 1]}}
        if event["event"] in HEADERS:
            more["emitter_version"] = "9.1.0"
        found += [{**event, **more}, {**event, "event": "thought_of_later", "phase": None}]
    return numbered(found)


def older(events: list[Event]) -> list[Event]:
    """As an emitter logged them that knew the fields which readers ask for, and no more of the
    header."""
    return [
        {
            name: value
            for name, value in event.items()
            if event["event"] not in HEADERS
            or name not in {f.name for f in EVENTS[event["event"]].fields if not f.required}
        }
        for event in events
    ]


@pytest.mark.parametrize("change", [newer, older])
def test_a_log_of_another_release_gives_the_same_page(
    change: Callable[[list[Event]], list[Event]],
) -> None:
    now = list(golden())
    then = [change(events) for events in now]
    assert then != now
    state = folded(then)
    assert page(state) == page(folded(now))
    assert not state.rejected
    # And the books close: what is not known is counted as skipped.
    skipped = sum(book.skipped for book in state.books.values())
    new = sum(len(events) for events in now) if change is newer else 0
    assert skipped - sum(book.skipped for book in folded(now).books.values()) == new


def test_an_older_exporter_shows_of_a_log_of_today_what_it_knows() -> None:
    """One that was made before there were loads: it has neither their events nor their families."""
    of_loads = {name for name in EVENTS if name.startswith("load_")}
    known = [family for family in FAMILIES if not of_loads & {*family.events}]
    catalog = Catalog([one for one in EVENTS.values() if one.name not in of_loads], known)
    assert len(known) < len(FAMILIES)
    log = list(golden())
    today = {family.name for family in known}
    wanted = [one for one in derived_families(CATALOG, folded(log)) if one.name in today]
    assert page(folded(log, catalog), catalog) == render(wanted).decode()
