"""Calls of recorders that no family answers."""

from __future__ import annotations

import random

import pytest

from mx_exporter.core import series_cap
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.snapshot_codec import dump, load
from mx_exporter.core.unanswered import MOST_SHOWN, Calls
from tests.support import Lines
from tests.support.folding import fold, whole_page

MISSPELT = "record_atempt"


def calls(log: Lines, *names: str) -> list[bytes]:
    return [log("recorder_called", recorder=name, args=[1], kwargs={}) for name in names]


def shown(lines: list[bytes], **options: int) -> dict[str, int]:
    return fold(lines, **options).state.calls.shown()


def test_calls_are_counted_by_name() -> None:
    lines = calls(Lines(), MISSPELT, "set_depth", MISSPELT)
    assert shown(lines) == {MISSPELT: 2, "set_depth": 1}
    page = whole_page(fold(lines).state).decode()
    name = "mx_exporter_recorder_calls_unanswered_total"
    assert f'{name}{{recorder="{MISSPELT}"}} 2' in page
    assert shown([Lines()("nixl_received", result="empty")]) == {}


def test_the_names_that_were_called_first_are_shown_in_whatever_order_they_are_met() -> None:
    log = Lines()
    names = [f"record_{n}" for n in range(MOST_SHOWN)]
    lines = calls(log, *names, "late", "later", names[0])
    expected = {**dict.fromkeys(names, 1), names[0]: 2, "other": 2}
    assert shown(lines) == expected
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        assert shown(lines) == expected


def test_a_name_that_is_met_late_and_was_called_early_is_shown() -> None:
    later = calls(Lines("b" * 12, start=Lines.START + 100), *(f"r{n}" for n in range(60)), "early")
    earlier = calls(Lines(), "early")
    for lines in (later + earlier, earlier + later):
        assert shown(lines)["early"] == 2
        assert shown(lines)["other"] == 11


def test_names_of_one_time_are_told_apart_by_themselves() -> None:
    lines = [calls(Lines(f"{n:012x}"), f"r{n:02}")[0] for n in range(60)]
    assert set(shown(lines[::-1])) == {*(f"r{n:02}" for n in range(50)), "other"}


def test_merged_states_count_what_one_would() -> None:
    first = calls(Lines(), *(f"r{n}" for n in range(40)))
    second = calls(Lines("b" * 12, start=Lines.START + 7), *(f"r{n}" for n in range(20, 80)))
    merged = fold(first).state
    merged.merge(fold(second).state)
    assert merged.calls.shown() == shown(second + first)


def test_a_snapshot_keeps_them() -> None:
    state = fold(calls(Lines(), *(f"r{n}" for n in range(60)))).state
    again = load(CATALOG, dump(CATALOG, state, {})).state
    assert again.calls.by_name == state.calls.by_name


def test_a_live_fold_tells_so_many_names_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_cap, "SPARE", 0)
    lines = calls(Lines(), "a", "b", "c", "a", "d")
    whole = Fold(CATALOG, max_series=2)
    whole.feed_lines(lines)
    assert whole.state.calls.shown() == {"a": 2, "b": 1, "other": 2}
    assert len(whole.state.calls.by_name) == 3


def test_a_name_is_no_longer_than_a_label_need_be() -> None:
    assert shown(calls(Lines(), "x" * 5000, "a\0b")) == {"x" * 100: 1, "a\ufffdb": 1}
    assert Calls().shown() == {}
