"""A window of time: what is outside of it was met, and gives nothing."""

from __future__ import annotations

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Event, Rejected
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from mx_exporter.core.window import ALWAYS, Outside, Window, outside
from tests.support import Lines
from tests.support.folding import fold, page_of

PROC = "a" * 12
LOAD = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}


def at(second: int) -> str:
    return f"2026-01-01T00:00:0{second}.000000Z"


def five() -> list[Event | Rejected]:
    """Events of the seconds 0 to 4."""
    log = Lines()
    return CATALOG.decoder.decode([log("load_started", **LOAD) for _ in range(5)])


def inside(window: Window) -> list[int]:
    """Of which seconds the events are that a window leaves as they are."""
    events = five()
    left = window.cut(events, set())
    for event, was in zip(left, events, strict=True):
        assert isinstance(event, Event)
        assert isinstance(was, Event)
        assert (event.proc, event.seq) == (was.proc, was.seq)
        assert event is was or (type(event), event.timestamp) == (Outside, "")
    return [event.seq for event in left if type(event) is not Outside]


def test_a_window_is_from_its_beginning_on_and_before_its_end() -> None:
    assert inside(Window(at(1), at(3))) == [1, 2]
    assert inside(Window(since=at(1))) == [1, 2, 3, 4]
    assert inside(Window(until=at(3))) == [0, 1, 2]
    assert inside(ALWAYS) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("window", "lives"),
    [
        (Window(until=at(1), alive_from=at(4)), True),
        (Window(until=at(1), alive_from=at(5)), False),
        (Window(since=at(1), alive_from=at(4)), False),
        (ALWAYS, False),
    ],
)
def test_who_logs_late_enough_lives_at_the_windows_end(window: Window, lives: bool) -> None:
    alive: set[str] = set()
    window.cut(five(), alive)
    assert alive == ({PROC} if lives else set())


def test_what_was_rejected_has_no_time() -> None:
    line = Rejected("not_json", "no JSON")
    assert Window(at(1), at(2)).cut([line], set()) == [line]


def test_what_is_outside_was_met_at_its_time_and_gives_nothing() -> None:
    (event, *_) = five()
    assert isinstance(event, Event)
    whole = Fold(CATALOG)
    whole.feed([outside(event)])
    assert (list(whole.state.books), whole.state.logged) == ([PROC], 1)
    assert whole.state.last_event == event.timestamp
    assert not whole.state.events
    assert page_of(whole.state) == page_of(State(CATALOG))


def saved() -> State:
    """A state whose last event is of the second 4."""
    return fold([Lines()("load_started", **LOAD), *(log_of_four())], gone=False).state


def log_of_four() -> list[bytes]:
    log = Lines(seq=1, start=Lines.START + 1)
    return [log("sources_ordered", policy="p", seconds=1) for _ in range(4)]


@pytest.mark.parametrize(
    ("window", "left"),
    [
        (ALWAYS, "all"),
        (Window(until=at(5)), "all"),
        (Window(until=at(4)), None),
        (Window(since=at(4)), None),
        (Window(at(4), at(5)), None),
        (Window(since=at(5)), "met"),
        (Window(at(5), at(6)), "met"),
    ],
)
def test_what_of_a_state_is_within_a_window(window: Window, left: str | None) -> None:
    state = saved()
    found = window.cut_state(CATALOG, state)
    if left == "all":
        assert found is state
    elif left is None:
        assert found is None
    else:
        assert found is not None
        assert (list(found.books), found.logged) == ([PROC], 5)
        assert page_of(found) == page_of(State(CATALOG))
