"""Series by themselves: what merging and packing does to each kind."""

from __future__ import annotations

import orjson
import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.exact_sum import Sum, to_float
from mx_exporter.core.series import Counted, Latest, Observed, Present, Summed
from tests.support import Lines

BOUNDS = (1.0, 2.0)

MAKERS = {
    "present": Present,
    "counted": Counted,
    "summed": Summed,
    "observed": lambda created: Observed(created, BOUNDS),
    "latest": Latest,
}
of_each_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def held(series) -> dict:
    """What a series holds, sums as their units."""
    values = {name: getattr(series, name) for name in type(series).__slots__}
    return {name: v.units() if isinstance(v, Sum) else v for name, v in values.items()}


def observed(*events: tuple[int, float]) -> Observed:
    """A histogram of values, each with its event's number."""
    series = Observed("1", BOUNDS)
    lines = [
        Lines(seq=seq, start=Lines.START + seq)("sources_ordered", policy="p", seconds=value)
        for seq, value in events
    ]
    series.observe(CATALOG.decoder.decode(lines), [value for _, value in events])
    return series


def some(name: str):
    """A series of a kind, with something in it."""
    series = MAKERS[name]("1")
    if name == "counted":
        series.value = 3
    elif name == "summed":
        series.total.add([0.1, 0.2])
    elif name == "observed":
        series = observed((0, 0.5), (1, 3))
    elif name == "latest":
        series.set(0.5, ("2", "a", 1))
    return series


@of_each_kind
def test_merged_series_are_as_old_as_the_older(make):
    for mine, other in (("1", "2"), ("2", "1")):
        series = make(mine)
        series.merge(make(other))
        assert series.created == "1"


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_packed_is_taken_up_by_a_fresh_one(name):
    series, fresh = some(name), MAKERS[name]("9")
    fresh.unpack(orjson.loads(orjson.dumps(series.pack())))
    assert held(fresh) == held(series)


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "present"])
def test_the_mark_of_a_series_is_another_one_once_it_shows_something_else(name):
    series, other = some(name), some(name)
    before = series.mark()
    assert before == other.mark()
    if name == "latest":
        other.set(0.7, ("3", "a", 1))
    series.merge(other)
    assert series.mark() != before == some(name).mark()


@pytest.mark.parametrize("name", ["counted", "summed", "observed"])
def test_what_shows_when_it_came_into_being_has_it_in_its_mark(name):
    series = some(name)
    before = series.mark()
    series.merge(MAKERS[name]("0"))
    assert series.mark() != before


def test_counters_add_up():
    first, second = some("counted"), some("counted")
    first.merge(second)
    assert (first.value, second.value) == (6, 3)
    first, second = some("summed"), some("summed")
    first.merge(second)
    assert to_float(first.total.units()) == 0.6000000000000001


def test_histograms_add_up():
    first, second = observed((0, 0.5), (1, 1.0), (2, 5)), observed((3, 1.5), (4, 6))
    first.merge(second)
    assert first.counts == [2, 1, 2]
    assert to_float(first.total.units()) == 14.0


def test_a_buckets_exemplar_is_that_of_the_last_event_whichever_was_merged():
    for order in ((0, 1), (1, 0)):
        parts = [observed((0, 0.5), (3, 5)), observed((1, 0.7), (2, 6))]
        first, second = (parts[at] for at in order)
        first.merge(second)
        assert [last and last[2:4] for last in first.exemplars] == [(1, 0.7), None, (3, 5.0)]


def test_a_buckets_exemplar_is_that_of_the_last_event_whenever_it_was_observed():
    """Two processes may log in the same microsecond: the greater id is the later one."""
    lines = [
        Lines(proc * 12)("sources_ordered", policy="p", seconds=value)
        for proc, value in (("b", 0.25), ("c", 0.75), ("a", 0.5))
    ]
    events = CATALOG.decoder.decode(lines)
    series = Observed("1", BOUNDS)
    for event in events:
        series.observe([event], [event.seconds])
    assert series.exemplars[0] is not None
    assert series.exemplars[0][1:4] == ("c" * 12, 0, 0.75)


def test_the_latest_value_is_that_of_the_greatest_stamp():
    series = Latest("1")
    for value, stamp in ((0.2, ("2", "a", 1)), (0.3, ("2", "a", 2)), (0.1, ("1", "b", 9))):
        series.set(value, stamp)
    assert (series.value, series.stamp) == (0.3, ("2", "a", 2))
    series.set(0.35, ("2", "a", 2))
    assert series.value == 0.35, "of one event the last"
    other = Latest("1")
    other.set(0.4, ("2", "b", 0))
    series.merge(other)
    assert (series.value, series.stamp) == (0.4, ("2", "b", 0))
