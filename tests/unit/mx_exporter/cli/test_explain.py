"""The story of one load, and the events behind a value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mx_exporter
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import COUNT, HISTOGRAM, SUM
from mx_exporter.core.exact_sum import to_float
from tests.support.commands import Run
from tests.support.folding import compact
from tests.support.simulated_loads import events, simulate


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Three ranks, with loads of every kind."""
    place = tmp_path / "logs"
    place.mkdir()
    for rank, scenarios in enumerate((["retry"], ["miss", "artifacts"], ["fallback", "killed"])):
        simulate(scenarios, rank=rank, scheme="v1").write(place)
    return place


def load_ids(place: Path, outcome: str = "success") -> list[str]:
    return [
        load.load_id or "" for load in mx_exporter.timeline(str(place)) if load.outcome == outcome
    ]


def test_a_story_reads_back_what_happened(logs: Path, mx_metrics: Run) -> None:
    (load,) = [load for load in mx_exporter.timeline(str(logs)) if load.outcome == "killed"]
    code, out, err = mx_metrics("explain", load.load_id or "", logs)
    text = out.decode()
    assert (code, err) == (0, "")
    head, place, _, *rows = text.splitlines()
    assert head.startswith(f"Load {load.load_id}: killed after ")
    assert head.endswith(" times the median of its 4 peers")
    assert place.startswith("example/model on vllm, main · pod-0 rank 2 on node-0 · process ")
    told = [row[15:].strip() for row in rows]
    peer = load.attempts[-1].peer
    for said in ("model_init", f"attempt 1: {peer}   never ended", "receive   never ended"):
        assert any(row.startswith(said) for row in told), said
    assert f"in receive from {peer}, which never ended" in text
    assert f"Its lines: mx-metrics events --load {load.load_id} {logs}" in text


def test_time_that_no_event_covers_is_shown(logs: Path, mx_metrics: Run) -> None:
    texts = [mx_metrics("explain", load_id, logs)[1].decode() for load_id in load_ids(logs)]
    (fallback,) = [text for text in texts if "transfer_fallback" in text]
    assert "no event says what ran here: the chain went on without a peer   <-- " in fallback


def test_a_load_is_found_by_the_beginning_of_its_id(logs: Path, mx_metrics: Run) -> None:
    load_id = load_ids(logs)[0]
    assert mx_metrics("explain", load_id[:8], logs) == mx_metrics("explain", load_id, logs)
    code, out, err = mx_metrics("explain", "", logs)
    assert (code, out) == (2, b"")
    assert "may be any of" in err
    code, out, err = mx_metrics("explain", "ffffffffffffff", logs)
    assert (code, out) == (1, b"")
    assert "there is no load ffffffffffffff there" in err


def test_json_is_the_load(logs: Path, mx_metrics: Run) -> None:
    load_id = load_ids(logs)[0]
    _, out, _ = mx_metrics("explain", "--json", load_id, logs)
    _, listed, _ = mx_metrics("loads", "--json", logs)
    assert json.loads(out) in [json.loads(line) for line in listed.splitlines()]


def test_the_events_behind_each_series_are_as_many_as_its_value(
    logs: Path, mx_metrics: Run
) -> None:
    state = mx_exporter.replay(str(logs))
    looked_at = 0
    for family in CATALOG.families:
        if family.measure not in (COUNT, SUM, HISTOGRAM):
            continue
        for labels, series in state.series[family.name].items():
            names = family.label_names()
            pairs = [f'{n}="{v}"' for n, v in zip(names, labels, strict=True)]
            _, out, err = mx_metrics(
                "explain", "--json", f"{family.name}{{{','.join(pairs)}}}", logs
            )
            found = [json.loads(line) for line in out.splitlines()]
            assert err == ""
            if family.measure == COUNT:
                assert len(found) == series.value
            elif family.measure == SUM:
                assert sum(each["value"] for each in found) == to_float(series.total.units())
            else:
                assert len(found) == sum(series.counts)
            looked_at += bool(found)
            for each in found:
                line = Path(each["file"]).read_bytes().splitlines()[each["line"] - 1]
                assert json.loads(line)["seq"] == each["seq"]
    assert looked_at > 20


@pytest.mark.parametrize("bound", [10.0, 30.0, 60.0])
def test_a_bound_means_that_bucket(logs: Path, mx_metrics: Run, bound: float) -> None:
    (family,) = [f for f in CATALOG.families if "transfer_finished" in f.events]
    text = f'{family.name}_bucket{{outcome!="success",le="{bound:g}"}}'
    code, out, _ = mx_metrics("explain", "--json", text, logs)
    values = [json.loads(line)["value"] for line in out.splitlines()]
    assert code == 0
    every = [
        event.seconds
        for path in logs.iterdir()
        for event in events(path.read_bytes().splitlines())
        if type(event).__name__ == "transfer_finished" and event.outcome != "success"
    ]
    assert sorted(values) == sorted(value for value in every if value <= bound)


def test_doubles_are_listed_once(logs: Path, mx_metrics: Run) -> None:
    once = mx_metrics("explain", "mx_load_seconds", logs)
    assert mx_metrics("explain", "mx_load_seconds", logs, *sorted(logs.iterdir()))[1] == once[1]


def test_what_a_snapshot_stands_for_is_said(logs: Path, mx_metrics: Run) -> None:
    _, whole, _ = mx_metrics("explain", "--json", "mx_load_seconds", logs)
    compact(logs)
    code, out, err = mx_metrics("explain", "--json", "mx_load_seconds", logs)
    count = len(whole.splitlines()) - len(out.splitlines())
    assert (code, count) == (0, 4)
    assert "4 is all, and stands in a snapshot alone, without its events" in err
    code, _, err = mx_metrics("explain", "0123", logs)
    assert code == 1
    assert "only a snapshot is left, and no load in it" in err


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("mx_load_second{}", "there is no family mx_load_second"),
        ('mx_load_seconds{outcom="error"}', "mx_load_seconds has no label outcom; it has engine"),
        ('mx_load_seconds{outcome="error"', "is no selector"),
        ("mx_load_seconds{outcome=error}", "expected label=\"value\" at 'outcome=error'"),
        ('mx_load_seconds{outcome="error" engine="x"}', "expected a comma at"),
        ('mx_load_seconds{outcome=~"("}', "is no regular expression"),
        ('mx_load_seconds{le="7"}', 'has no bucket le="7"; it has 0.5, 1, 2.5'),
        ("mx_loads_in_progress", "its value is no sum of events"),
    ],
)
def test_what_is_no_selector_says_why(
    logs: Path, mx_metrics: Run, selector: str, said: str
) -> None:
    code, out, err = mx_metrics("explain", selector, logs)
    assert (code, out) == (2, b"")
    assert said in err
    assert err.count("\n") == 1
