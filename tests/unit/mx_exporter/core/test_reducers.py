"""The rules of the table of families: what becomes of each label and each value."""

from __future__ import annotations

import json

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)

from mx_exporter.core.builtin import CATALOG, FAMILIES
from mx_exporter.core.fold import Fold
from mx_exporter.core.reducers import REFUSALS
from mx_exporter.exposition.samples import seconds
from mx_log.schema import DROP_REASONS, EVENTS
from tests.support import Lines
from tests.support.folding import derived_page, fold, page_of, samples, value


def one(event: str, **fields):
    return fold([Lines()(event, **fields)], gone=False).state


@pytest.mark.parametrize(
    ("event", "field", "given", "family", "label", "becomes"),
    [
        ("sources_listed", "result", "ok", "mx_p2p_list_sources_total", "result", "ok"),
        ("sources_listed", "result", "OK", "mx_p2p_list_sources_total", "result", "error"),
        ("sources_listed", "result", "", "mx_p2p_list_sources_total", "result", "error"),
        ("source_attempted", "result", "odd", "mx_p2p_source_attempts_total", "result", "odd"),
        ("source_attempted", "result", "", "mx_p2p_source_attempts_total", "result", ""),
        ("nixl_failed", "kind", "odd", "mx_nixl_data_plane_errors_total", "kind", "status_error"),
        ("nixl_failed", "kind", "timeout", "mx_nixl_data_plane_errors_total", "kind", "timeout"),
        ("nixl_received", "result", "odd", "mx_nixl_receive_total", "result", "empty"),
        ("nixl_received", "result", "partial", "mx_nixl_receive_total", "result", "partial"),
    ],
)
def test_labels_of_counters(event, field, given, family, label, becomes):
    policy = {"policy": "p"} if any(f.name == "policy" for f in EVENTS[event].fields) else {}
    state = one(event, **{field: given, **policy})
    assert value(state, family, **{label: becomes, **policy}) == 1


LOAD = {"engine": "vllm", "model": "m", "model_role": "main", "outcome": "success", "seconds": 1}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"engine": "mine"}, {"engine": "other"}),
        ({"model_role": "judge"}, {"model_role": "other"}),
        ({"outcome": "maybe"}, {"outcome": "error"}),
        ({"model": None}, {"model": "unknown"}),
        ({"model": " \t"}, {"model": "unknown"}),
        ({"model": " org/model \n"}, {"model": "org/model"}),
        ({"model": "m" * 97}, {"model": "m" * 96}),
        ({"model": "None"}, {"model": "None"}),
    ],
)
def test_labels_of_loads(given, shown):
    state = one("load_finished", **{**LOAD, **given})
    expected = {k: v for k, v in {**LOAD, **shown}.items() if k != "seconds"}
    assert value(state, "mx_load_seconds_count", **expected) == 1


def test_a_model_that_is_not_named_at_all_is_unknown():
    line = json.loads(Lines()("load_finished", **LOAD))
    del line["model"]
    state = fold([json.dumps(line).encode()]).state
    labels = {k: v for k, v in LOAD.items() if k != "seconds"}
    assert value(state, "mx_load_seconds_count", **{**labels, "model": "unknown"}) == 1


@pytest.mark.parametrize(
    ("event", "fields", "reason"),
    [
        (
            "source_attempt_phase_finished",
            {"policy": "p", "phase": "stray", "outcome": "ok", "seconds": 1},
            "unknown_phase",
        ),
        (
            "load_phase_finished",
            {"engine": "vllm", "model": "m", "phase": "stray", "seconds": 1},
            "unknown_phase",
        ),
        (
            "artifact_install_step_finished",
            {"artifact": "other", "archive": "primary", "step": "stray", "seconds": 1},
            "unknown_step",
        ),
    ],
)
def test_a_stray_phase_or_step_is_dropped_and_counted(event, fields, reason):
    state = one(event, **fields)
    assert state.refused == {reason: 1}
    assert not any("_bucket" in name for name, _ in samples(state))
    assert state.books["aaaaaaaaaaaa"].refused == 1


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "missing"),
        (True, "boolean"),
        (False, "boolean"),
        ("1", "not_a_number"),
        ("nan", "not_finite"),
        ("-inf", "not_finite"),
        ([1], "not_a_number"),
        ({}, "not_a_number"),
    ],
)
@pytest.mark.parametrize(
    ("event", "field", "fields"),
    [
        ("transfer_finished", "seconds", {"policy": "p", "outcome": "success"}),
        ("candidates_counted", "count", {"policy": "p", "stage": "listed"}),
        ("artifact_extracted", "bytes", {"artifact": "other", "archive": "primary"}),
    ],
)
def test_values_that_are_refused(event, field, fields, given, reason):
    state = one(event, **fields, **{field: given})
    assert state.refused == {reason: 1}
    assert reason in REFUSALS
    # No series at zero is left behind a refused value.
    families_with_values = {name for name, labels in samples(state) if "_count" in name}
    assert not families_with_values
    assert not state.series["mx_artifact_install_bytes_total"]


def test_a_missing_value_is_refused():
    assert one("transfer_finished", policy="p", outcome="success").refused == {"missing": 1}


@pytest.mark.parametrize("amount", [-1, -0.5, -5e-324])
def test_counters_only_grow(amount):
    state = one("artifact_extracted", artifact="other", archive="a", bytes=amount)
    assert state.refused == {"negative": 1}


def test_counters_add_amounts_exactly():
    log = Lines()
    lines = [
        log("artifact_extracted", artifact="triton_cache", archive="a", bytes=n)
        for n in (2**53, 1, 1, 0.5, 0, -0.0)
    ]
    state = fold(lines).state
    labels = {"artifact": "triton_cache", "archive": "a"}
    assert value(state, "mx_artifact_install_bytes_total", **labels) == 2**53 + 2


def test_histograms_take_negative_numbers_and_their_sum_follows():
    log = Lines()
    lines = [
        log("transfer_finished", policy="p", outcome="success", seconds=n) for n in (-3, 1.5, 2)
    ]
    state = fold(lines).state
    labels = {"policy": "p", "outcome": "success"}
    assert value(state, "mx_p2p_transfer_seconds_sum", **labels) == 0.5
    assert value(state, "mx_p2p_transfer_seconds_bucket", **labels, le="0.5") == 1
    assert value(state, "mx_p2p_transfer_seconds_bucket", **labels, le="2.0") == 3


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.buckets], ids=lambda f: f.name)
def test_boundaries_are_inclusive(family):
    """Each boundary itself, the float below and the float above it fall where they belong."""
    from math import inf, nextafter

    given = {label.name: (label.domain or ("x",))[0] for label in family.labels}
    scheme = given.pop("scheme")
    for at, bound in enumerate(family.buckets):
        log = Lines(scheme=scheme)
        lines = [
            log(family.events[0], **given, **{family.field: observed})
            for observed in (nextafter(bound, -inf), bound, nextafter(bound, inf))
        ]
        (series,) = fold(lines).state.series[family.name].values()
        assert series.counts[at] == 2
        assert series.counts[at + 1] == 1


def loads(*entries, **more):
    candidates = [{"source_worker_id": worker, "load": load} for worker, load in entries]
    return ("candidate_loads_seen", {"loads": candidates, **more})


def state_of(*events):
    log = Lines()
    return fold([log(name, **fields) for name, fields in events]).state


def test_source_load_is_that_of_the_chosen_candidate():
    assert value(state_of(loads(("a", 0.25), ("b", 0.75))), "mx_p2p_source_load") == 0.25


def test_source_load_stays_when_the_chosen_candidate_published_none():
    state = state_of(loads(("a", 0.25)), loads(("b", None), ("c", 0.5)))
    assert value(state, "mx_p2p_source_load") == 0.25
    with_ids = samples(state, source_id_label=True)
    assert with_ids == {
        ("mx_p2p_source_load", (("scheme", ""), ("source_worker_id", "a"))): 0.25,
        ("mx_p2p_source_load", (("scheme", ""), ("source_worker_id", "c"))): 0.5,
    }


def test_no_candidate_published_a_load():
    state = state_of(loads(("a", None)), loads())
    assert samples(state) == {}
    assert state.events == {"candidate_loads_seen": 2}


def test_a_load_that_is_no_number_is_refused_and_the_others_are_taken():
    state = state_of(loads(("a", "busy"), ("b", 0.5)))
    assert state.refused == {"not_a_number": 1}
    assert value(state, "mx_p2p_source_load") is None
    labels = (("scheme", ""), ("source_worker_id", "b"))
    assert samples(state, source_id_label=True)[("mx_p2p_source_load", labels)] == 0.5


def test_the_most_recent_gauge_goes_by_time_then_process_then_number():
    early, late = Lines("aaaaaaaaaaaa", start=100), Lines("bbbbbbbbbbbb", start=100)
    a = early("candidate_loads_seen", loads=[{"source_worker_id": "a", "load": 0.1}])
    b = late("candidate_loads_seen", loads=[{"source_worker_id": "b", "load": 0.2}])
    for lines in ([a, b], [b, a]):
        assert value(fold(lines).state, "mx_p2p_source_load") == 0.2


def test_selections_with_and_without_the_opt_in_label():
    state = state_of(
        *(("source_selected", {"policy": "p", "source_worker_id": w}) for w in ("a", "a", None))
    )
    assert value(state, "mx_p2p_source_selections_total", policy="p") == 3
    with_ids = samples(state, source_id_label=True)
    name = "mx_p2p_source_selections_total"
    for worker, count in (("a", 2), ("unknown", 1)):
        labels = (("policy", "p"), ("scheme", ""), ("source_worker_id", worker))
        assert with_ids[(name, labels)] == count
    assert len([key for key in with_ids if key[0] == name]) == 2


def test_zero_series_of_a_header():
    state = fold([Lines(scheme="s").header()], gone=False).state
    expected = {
        ("mx_build_info", (("component", "client"), ("scheme", "s"), ("version", "0.7.0"))): 1
    }
    for kind in ("timeout", "status_error"):
        expected["mx_nixl_data_plane_errors_total", (("kind", kind), ("scheme", "s"))] = 0
    for result in ("complete", "partial", "empty", "rejected"):
        expected["mx_nixl_receive_total", (("result", result), ("scheme", "s"))] = 0
    for reason in DROP_REASONS:
        expected["mx_emitter_events_dropped_total", (("reason", reason), ("scheme", "s"))] = 0
    assert samples(state) == expected


@pytest.mark.parametrize(
    "event",
    [
        ("sources_ordered", {"policy": "p", "seconds": 1}),
        ("source_attempt_phase_started", {"policy": "p", "phase": "receive"}),
        ("sources_ordered", {"policy": "p", "seconds": None}),
    ],
    ids=["an observation", "a start", "a refused one"],
)
def test_zero_series_of_a_policy(event):
    found = {key: v for key, v in samples(state_of(event)).items() if key[0].endswith("_total")}
    expected = {}
    for result in ("ok", "empty", "error"):
        labels = (("policy", "p"), ("result", result), ("scheme", ""))
        expected["mx_p2p_list_sources_total", labels] = 0
    for result in ("success", "metadata_miss", "transfer_retry", "transfer_fallback"):
        labels = (("policy", "p"), ("result", result), ("scheme", ""))
        expected["mx_p2p_source_attempts_total", labels] = 0
    for name in ("mx_p2p_metadata_lookup_failures_total", "mx_p2p_source_selections_total"):
        expected[name, (("policy", "p"), ("scheme", ""))] = 0
    assert found == expected


def test_build_info_is_one_series_a_pod():
    lines = [Lines(proc).header() for proc in ("aaaaaaaaaaaa", "bbbbbbbbbbbb")]
    lines.append(Lines("aaaaaaaaaaaa", seq=1).header(1))
    state = fold(lines).state
    assert value(state, "mx_build_info", component="client", version="0.7.0") == 1
    other = fold([Lines("cccccccccccc").header()]).state
    state.merge(other)
    assert value(state, "mx_build_info", component="client", version="0.7.0") == 1


def test_created_is_the_first_event_that_brought_the_series_into_being():
    log = Lines(start=Lines.START + 100)
    late = log("sources_listed", policy="p", result="ok")
    early = Lines("bbbbbbbbbbbb")("sources_ordered", policy="p", seconds=1)
    state = fold([late, early]).state
    (series,) = (
        series
        for labels, series in state.series["mx_p2p_list_sources_total"].items()
        if labels == ("p", "", "ok")
    )
    assert seconds(series.created) == Lines.START
    page = page_of(state, source_id_label=False).decode()
    (created,) = (
        sample.value
        for family in openmetrics_families(page)
        for sample in family.samples
        if sample.name == "mx_p2p_list_sources_created" and sample.labels["result"] == "ok"
    )
    assert created == Lines.START


@pytest.mark.parametrize(
    ("family", "event", "fields"),
    [
        ("mx_p2p_source_selection_seconds", "sources_ordered", {"policy": "p", "seconds": 1}),
        (
            "mx_artifact_install_bytes_total",
            "artifact_extracted",
            {"artifact": "other", "archive": "a", "bytes": 1},
        ),
    ],
)
@pytest.mark.parametrize("bad", [None, "nan", True, []])
def test_a_refused_event_creates_no_series_whenever_it_was_fed(family, event, fields, bad):
    log = Lines()
    measured = list(fields)[-1]
    refused, good = log(event, **{**fields, measured: bad}), log(event, **fields)
    for feedings in ([refused, good],), ([refused], [good]), ([good], [refused]):
        whole = Fold(CATALOG)
        for lines in feedings:
            whole.feed_lines(lines)
        (series,) = whole.state.series[family].values()
        assert seconds(series.created) == Lines.START + 1


def test_an_exemplar_is_its_buckets_last_event():
    log = Lines(rank=3)
    lines = [
        log("transfer_finished", policy="p", outcome="success", seconds=s, load_id=i)
        for s, i in ((0.1, "l1"), (0.2, "l2"), (400, "l3"))
    ]
    state = fold(reversed(lines)).state
    page = page_of(state, source_id_label=False).decode()
    buckets = [line for line in page.splitlines() if "_bucket" in line]
    assert buckets[0].endswith('# {load_id="l2",rank="3"} 0.2 1767225601.0')
    assert buckets[-1].endswith('# {load_id="l3",rank="3"} 400.0 1767225602.0')
    assert all("#" not in line for line in buckets[1:-1])
    classic = derived_page(state).decode()
    assert "load_id" not in classic
    assert "_created" not in classic


def test_an_exemplar_never_passes_128_characters():
    log = Lines(rank=3)
    state = fold(
        [log("sources_ordered", policy="p", seconds=1, load_id="x" * 200)], gone=False
    ).state
    page = page_of(state, source_id_label=False).decode()
    assert '# {rank="3"} 1.0' in page
