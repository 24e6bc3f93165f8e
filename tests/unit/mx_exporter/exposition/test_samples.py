"""The neutral model: what a state says, whoever prints it."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import Catalog
from mx_exporter.core.state import State
from mx_exporter.exposition.json_lines import json_lines
from mx_exporter.exposition.samples import FamilySamples, Histogram, Point, derived_families
from tests import support
from tests.support import Lines
from tests.support.folding import fold
from tests.support.layers import imports, modules

SOME = Lines("bbbbbbbbbbbb")("sources_ordered", policy="p", seconds=1)


def families(state: State, **options: bool) -> dict[str, FamilySamples]:
    return {family.name: family for family in derived_families(CATALOG, state, **options)}


def values(family: FamilySamples) -> list[float]:
    return [point.value for point in family.series if isinstance(point, Point)]


def test_a_counter_has_its_values_in_order_of_their_labels() -> None:
    log = Lines()
    lines = [log("source_attempted", policy=policy, result="ok") for policy in "cabac"]
    family = families(fold(lines).state)["mx_p2p_source_attempts_total"]
    assert (family.type, family.label_names) == ("counter", ("policy", "scheme", "result"))
    found = [point for point in family.series if point.labels[2] == "ok"]
    created = [json.loads(lines[at])["timestamp"] for at in (1, 2, 0)]
    assert found == [
        Point((policy, "", "ok"), count, stamp)
        for policy, count, stamp in zip("abc", (2, 1, 2), created, strict=True)
    ]


def test_a_histogram_has_cumulative_counts_the_last_events_and_an_exact_sum() -> None:
    log = Lines()
    lines = [log("sources_ordered", policy="p", seconds=s, load_id=f"l{s}") for s in (0.5, 0.2, -4)]
    family = families(fold(lines).state)["mx_p2p_source_selection_seconds"]
    (one,) = family.series
    assert isinstance(one, Histogram)
    assert one.bounds == CATALOG.by_name[family.name].buckets
    assert (one.counts, one.count, one.sum) == ([1, 1, 1, 1, 1, 3, 3], 3, -3.3)
    assert [last and last[-1] for last in one.exemplars] == ["l-4", *[None] * 4, "l0.2", None]
    assert one.created == json.loads(lines[0])["timestamp"]


def test_a_gauge_has_no_creation_time_and_a_family_without_series_is_left_out() -> None:
    found = families(fold([Lines().header()]).state)
    assert "mx_p2p_transfer_seconds" not in found
    (point,) = found["mx_build_info"].series
    assert isinstance(point, Point)
    assert (point.value, point.created) == (1, None)


def test_loads_that_run_and_loads_that_were_abandoned() -> None:
    log = Lines()
    lines = [log("load_started", engine="vllm", model="m", model_role="main", load_id="l")]
    running = families(fold(lines, gone=False).state)
    (point,) = running["mx_loads_in_progress"].series
    assert point == Point(("vllm", "m", "", ""), 1)
    gone = families(fold(lines).state)
    assert values(gone["mx_loads_in_progress"]) == [0]
    (point,) = gone["mx_loads_abandoned_total"].series
    assert point == Point(("vllm", "m", "", ""), 1, json.loads(lines[0])["timestamp"])


def test_labels_that_are_shown_only_when_asked_for() -> None:
    log = Lines()
    lines = [log("source_selected", policy="p", source_worker_id=f"w{n}") for n in range(2)]
    state = fold(lines).state
    name = "mx_p2p_source_selections_total"
    assert values(families(state)[name]) == [2]
    shown = families(state, source_id_label=True)[name]
    at = shown.label_names.index("source_worker_id")
    assert [point.labels[at] for point in shown.series] == ["w0", "w1"]


def test_series_may_be_gone_through_again() -> None:
    """A push that is tried again shows them once more."""
    for family in families(fold([Lines().header(), SOME]).state).values():
        assert list(family.series) == list(family.series)
        assert len(family.series) == len(list(family.series)) > 0
        assert all(one in family.series for one in list(family.series))
        assert None not in family.series


def test_a_catalogue_of_another_kind_gives_its_own_families() -> None:
    family = CATALOG.by_name["mx_p2p_source_attempts_total"]
    small = Catalog(CATALOG.events.values(), [family])
    state = fold([Lines()("source_attempted", policy="p", result="ok")]).state
    assert [family.name for family in derived_families(small, state)] == [family.name]


def test_samples_do_not_change() -> None:
    family = families(fold([Lines().header()]).state)["mx_build_info"]
    with pytest.raises(FrozenInstanceError):
        family.name = "x"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        next(iter(family.series)).labels = ()  # type: ignore[misc]


def test_json_takes_samples_of_any_source() -> None:
    given = FamilySamples("x_total", "counter", "", ("a",), [Point(("b",), 2.0)])
    (line,) = json_lines([given])
    assert json.loads(line) == {
        "name": "x_total",
        "type": "counter",
        "labels": {"a": "b"},
        "value": 2,
    }


def test_the_client_librarys_families_are_made_in_one_module() -> None:
    """Everybody else says what there is in samples."""
    made = set()
    for module, path in modules(support.ROOT):
        for each in imports(module, path):
            library, _, name = each.name.rpartition(".")
            if library.startswith("prometheus_client") and (
                name in ("Metric", "Exemplar", "CollectorRegistry") or name.endswith("MetricFamily")
            ):
                made.add(module)
    assert made == {"mx_exporter.exposition.text"}
