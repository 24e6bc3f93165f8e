"""OTLP: what a receiver finds is what the page says, and what becomes of troubles."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

import mx_exporter.push
from mx_exporter.cli.main import main
from mx_exporter.errors import MxError
from mx_exporter.exposition.samples import FamilySamples, Histogram, Point
from mx_exporter.exposition.text import boundary_texts
from mx_exporter.push.otlp import metrics_address, send_families
from mx_exporter.push.post import target
from tests import support
from tests.support import running
from tests.support.pages import parse, replayed

CUMULATIVE = 2

LOG = support.ROOT / "tests" / "golden" / "loads"

ONE = [FamilySamples("x_total", "counter", "X.", (), [Point((), 1.0)])]


def attributes(given: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in given}


def read(body: bytes) -> tuple[dict[str, str], list[Any]]:
    """The resource of a request, and its metrics."""
    message = ExportMetricsServiceRequest.FromString(gzip.decompress(body))
    (of,) = message.resource_metrics
    (scope,) = of.scope_metrics
    assert scope.scope.name == "mx-metrics"
    return attributes(of.resource.attributes), list(scope.metrics)


def as_samples(metrics: list[Any]) -> Iterator[tuple[tuple[str, frozenset[Any]], float]]:
    """What Prometheus would make of metrics."""
    for metric in metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = attributes(point.attributes)

            def named(suffix: str, metric: Any = metric, **more: str) -> tuple[str, Any]:
                return metric.name + suffix, frozenset({**labels, **more}.items())  # noqa: B023

            if kind == "sum":
                assert metric.sum.is_monotonic
                assert metric.sum.aggregation_temporality == CUMULATIVE
                yield named("_total"), point.as_double
            elif kind == "gauge":
                yield named(""), point.as_double
            else:
                assert metric.histogram.aggregation_temporality == CUMULATIVE
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                for bound, count in zip(
                    boundary_texts(tuple(point.explicit_bounds)),
                    accumulate(point.bucket_counts),
                    strict=True,
                ):
                    yield named("_bucket", le=bound), count
                yield named("_count"), point.count
                yield named("_sum"), point.sum


def test_what_is_pushed_is_what_a_replay_prints(
    receive: Any, spawn: support.Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path(shutil.copytree(LOG, tmp_path / "log", ignore=shutil.ignore_patterns("*.prom")))
    expected = parse(replayed(spawn, log).decode())
    receiver = receive(200)
    for name, value in {"POD_UID": "uid-1", "POD_NAME": "engine-0", "NODE_NAME": "n1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("POD_NAMESPACE", "models")
    assert main(["push", str(log), "--otlp", receiver.url.removesuffix("/write")]) == 0
    ((headers, body),) = receiver.requests
    assert receiver.paths == ["/v1/metrics"]
    assert headers["Content-Type"] == "application/x-protobuf"
    resource, metrics = read(body)
    assert resource == {
        "service.name": "modelexpress",
        "service.instance.id": "uid-1",
        "k8s.pod.uid": "uid-1",
        "k8s.pod.name": "engine-0",
        "k8s.namespace.name": "models",
        "k8s.node.name": "n1",
    }
    found = dict(as_samples(metrics))
    ours = {
        (name, labels): value
        for (name, labels), value in found.items()
        if not name.startswith("mx_exporter_")
    }
    assert len(ours) > 50
    assert {(name, frozenset(labels)): value for (name, labels), value in expected.items()} == ours


def test_times_and_exemplars(receive: Any) -> None:
    receiver = receive(200)
    exemplar = ("2026-01-02T03:04:05.000001Z", "aaaaaaaaaaaa", 7, 1.5, 3, "feedfacecafe")
    series = Histogram((), (1.0, 2.0), (0, 1, 1), (None, exemplar, None), 1.5, exemplar[0])
    negative = Histogram((), (1.0,), (1, 1), (None, None), -3.0, None)
    families = [
        FamilySamples("y_seconds", "histogram", "Y.", (), [series]),
        FamilySamples("z_seconds", "histogram", "Z.", (), [negative]),
        FamilySamples("x_total", "counter", "X.", (), [Point((), 1.0, exemplar[0])]),
    ]
    send_families(families, {}, target(receiver.url))
    _, (metric, other, counter) = read(receiver.requests[0][1])
    (point,) = metric.histogram.data_points
    assert metric.description == "Y."
    assert point.start_time_unix_nano == 1_767_323_045_000_001_000
    assert point.time_unix_nano > point.start_time_unix_nano
    assert list(point.bucket_counts) == [0, 1, 0]
    (kept,) = point.exemplars
    assert (kept.as_double, kept.time_unix_nano) == (1.5, point.start_time_unix_nano)
    assert attributes(kept.filtered_attributes) == {"load_id": "feedfacecafe", "rank": "3"}
    (point,) = other.histogram.data_points
    assert (point.start_time_unix_nano, point.HasField("sum")) == (0, False)
    (point,) = counter.sum.data_points
    assert point.start_time_unix_nano == 1_767_323_045_000_001_000


@pytest.mark.parametrize(
    ("statuses", "pauses"), [((503, 429, 502, 504, 200), [7, 7, 7, 7]), ((200,), [])]
)
def test_it_is_tried_again_where_otlp_says_so(
    statuses: tuple[int, ...], pauses: list[float], receive: Any
) -> None:
    waited: list[float] = []
    receiver = receive(*statuses)
    send_families(ONE, {}, target(receiver.url), waited.append)
    assert waited == pauses
    assert len(receiver.requests) == len(statuses)


@pytest.mark.parametrize("status", [400, 404, 500, 501])
def test_what_is_refused_is_not_tried_again(status: int, receive: Any) -> None:
    receiver = receive(status)
    with pytest.raises(MxError, match=f"it answered {status} .*: so it is"):
        send_families(ONE, {}, target(receiver.url), lambda _: pytest.fail("a pause"))


def test_points_that_were_refused_are_told(receive: Any, caplog: pytest.LogCaptureFixture) -> None:
    def answer(count: int) -> bytes:
        said = ExportMetricsPartialSuccess(rejected_data_points=count, error_message="too old")
        return ExportMetricsServiceResponse(partial_success=said).SerializeToString()

    receiver = receive(200, answer=answer(3))
    with pytest.raises(MxError, match="it refused 3 data points: too old"):
        send_families(ONE, {}, target(receiver.url))
    receiver = receive(200, answer=answer(0))
    send_families(ONE, {}, target(receiver.url))
    assert f"{receiver.url}: too old" in caplog.text


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:4318", "http://h:4318/v1/metrics"),
        ("https://h/", "https://h/v1/metrics"),
        ("http://h/api/v1/otlp/v1/metrics", "http://h/api/v1/otlp/v1/metrics"),
        ("http://h/?key=1", "http://h/v1/metrics?key=1"),
    ],
)
def test_the_address_of_a_receiver(url: str, address: str) -> None:
    assert metrics_address(url) == address


def test_the_extra_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    support.Lines().segment(tmp_path, 0, [])
    monkeypatch.delitem(sys.modules, "mx_exporter.push.otlp")
    monkeypatch.delattr(mx_exporter.push, "otlp")
    monkeypatch.setitem(
        sys.modules, "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", None
    )
    assert main(["push", str(tmp_path), "--otlp", "http://127.0.0.1:1"]) == 1
    assert "pip install 'mx-metrics[exporter,otlp]'" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["--otlp", "--remote-write"])
def test_an_engine_that_was_killed_is_pushed_at_the_end_of_run(
    how: str, receive: Any, spawn: support.Spawner, tmp_path: Path
) -> None:
    receiver = receive(200)
    killer = (
        "import os, signal; from mx_emitter import metrics; "
        "metrics.record_nixl_receive('complete'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = running.start(
        *(spawn, tmp_path / "log", sys.executable, "-c", killer),
        port=0,
        options=(how, receiver.url),
        env={"POD_UID": "uid-1"},
    )
    assert run.process.result() == 128 + 9, run.log
    assert "ERROR" not in run.log
    assert "as pod uid-1" in run.log
    ((_, body),) = receiver.requests
    if how == "--otlp":
        found = dict(as_samples(read(body)[1]))
        received = frozenset({("result", "complete"), ("scheme", "")})
        assert found["mx_nixl_receive_total", received] == 1
    else:
        assert b"mx_nixl_receive_total" in body


def test_of_several_addresses_none_is_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    receive: Any,
) -> None:
    support.Lines().segment(tmp_path, 0, [])
    receiver = receive(200)
    monkeypatch.setenv("MX_METRICS_PUSHGATEWAY", "127.0.0.1:1")
    monkeypatch.setenv("MX_METRICS_REMOTE_WRITE", "http://127.0.0.1:1")
    assert main(["push", str(tmp_path)]) == 2
    said = "MX_METRICS_PUSHGATEWAY and MX_METRICS_REMOTE_WRITE: set only one of them"
    assert said in capsys.readouterr().err
    # One that is given by a flag counts before those of variables.
    assert main(["push", str(tmp_path), "--otlp", receiver.url]) == 0
    assert len(receiver.requests) == 1
