"""The page always parses, whatever labels and values a log holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as classic_families

from mx_exporter.core.builtin import FAMILIES
from mx_exporter.exposition.fold_metrics import state_families
from mx_exporter.exposition.samples import FamilySamples, Point, seconds
from mx_exporter.exposition.text import labels_text, render, series_texts
from tests.support import Lines
from tests.support.folding import classic_page, derived_page, fold, page_of, whole_page
from tests.support.pages import check_metrics
from tests.support.strategies import HOSTILE, logs


def values_of(family: object) -> list[dict[str, str]]:
    return [sample.labels for sample in family.samples]


@given(logs())
def test_every_page_parses_in_both_formats(lines):
    state = fold(lines).state
    assert len(list(classic_families(classic_page(state).decode()))) >= 7
    assert len(list(openmetrics_families(whole_page(state).decode()))) >= 7


@pytest.fixture
def hostile_state():
    log = Lines(scheme='s"\\\n\0')
    lines = [log.header(version="\n")]
    for text in HOSTILE:
        lines += [
            log("source_selected", policy=text, source_worker_id=text),
            log("source_attempted", policy=text, result=text),
            log("transfer_finished", policy=text, outcome=text, seconds=1, load_id=text),
            log(
                "load_started",
                engine="vllm",
                model=text,
                model_role="main",
                load_id=text,
            ),
            log(
                "load_finished", engine="vllm", model=text, model_role="main", outcome="", seconds=1
            ),
            log("artifact_extracted", artifact=text, archive=text, bytes=1),
            log("candidate_loads_seen", loads=[{"source_worker_id": text, "load": 0.5}]),
            log("events_dropped", reason=text, count=1),
        ]
    return fold(lines).state


def test_hostile_labels_come_back_as_they_were(hostile_state):
    text = derived_page(hostile_state).decode()
    found = {
        labels["result"]
        for family in classic_families(text)
        if family.name == "mx_p2p_source_attempts"
        for labels in values_of(family)
    }
    assert {text.replace("\0", "\ufffd") for text in HOSTILE} <= found


def test_promtool_takes_hostile_labels(hostile_state, promtool):
    check_metrics(promtool, classic_page(hostile_state))


def test_the_empty_page_is_a_page(promtool):
    state = fold([]).state
    assert derived_page(state) == b""
    assert page_of(state) == b"# EOF\n"
    check_metrics(promtool, render(state_families(state)))


def test_a_clock_that_steps_backwards_and_dates_that_are_none():
    log = Lines()
    lines = []
    for stamp in ("9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000000Z"):
        lines.append(log("sources_ordered", policy="p", seconds=1, timestamp=stamp))
        lines.append(log("sources_ordered", policy="p", seconds=1, timestamp=stamp))
    state = fold(lines).state
    assert list(openmetrics_families(whole_page(state).decode()))
    assert seconds(state.last_event) == 253402300799.999999


def test_a_negative_sum_shows_in_the_classic_text_alone():
    """OpenMetrics has no place for it; its page must still parse."""
    state = fold([Lines()("sources_ordered", policy="p", seconds=-1)]).state
    assert b'_sum{policy="p",scheme=""} -1.0' in derived_page(state)
    text = whole_page(state).decode()
    assert list(openmetrics_families(text))
    assert "mx_p2p_source_selection_seconds_sum" not in text
    assert 'mx_p2p_source_selection_seconds_bucket{le="+Inf",policy="p",scheme=""} 1.0' in text


def test_the_page_has_the_families_of_the_table_in_its_order():
    log = Lines()
    lines = [log.header()]
    for family in FAMILIES:
        event = family.events[0]
        given = {
            label.name: (label.domain or ("x",))[-1]
            for label in family.labels
            if label.name != "scheme"
        }
        if family.field == "loads":
            given["loads"] = [{"source_worker_id": "w", "load": 1}]
        elif family.field:
            given[family.field] = 1
        if event == "load_started":
            given.update(load_id="l", model_role="main")
        lines.append(log(event, **given))
    text = derived_page(fold(lines, gone=False).state).decode()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names == [family.name for family in FAMILIES]
    for family in FAMILIES:
        assert f"# TYPE {family.name} {family.type}\n" in text
        labels = {"le"} if family.buckets else set()
        sample = next(
            s
            for s in text.splitlines()
            if s.startswith((f"{family.name}{{", f"{family.name}_bucket{{"))
        )
        (parsed,) = list(classic_families(sample))
        assert set(parsed.samples[0].labels) == labels | set(family.label_names())


def test_a_json_line_with_an_escaped_surrogate_is_a_bad_line_and_breaks_no_page():
    line = Lines()("source_attempted", policy="X", result="ok").replace(b"X", b"\\ud800")
    assert json.loads(line)["policy"] == "\ud800"
    whole = fold([line])
    assert whole.state.rejected == {"not_json": 1}
    whole_page(whole.state).decode()


@given(st.dictionaries(st.sampled_from(["a", "le", "z", "Z"]), st.text(max_size=8)))
def test_labels_of_a_line_are_those_that_the_library_writes(labels):
    labels = {name: value.replace("\0", "") for name, value in labels.items()}
    names, values = tuple(labels), tuple(labels.values())
    family = FamilySamples("x", "gauge", "h", names, [Point(values, 1)])
    for openmetrics in (False, True):
        _, (line,) = series_texts(family, openmetrics=openmetrics)
        assert line.decode() == f"x{labels_text(sorted(labels.items()))} 1.0\n"
