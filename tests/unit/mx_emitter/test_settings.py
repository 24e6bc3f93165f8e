"""The emitter's settings: defaults, variables, and what a bad value does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mx_emitter import metrics
from mx_emitter.log.sink import sink
from mx_emitter.settings import DEFAULT_SEGMENT_BYTES, read_settings
from tests.support.emitting import Log


def test_defaults() -> None:
    settings = read_settings({})
    assert settings.directory == "/tmp/mx-metrics"
    assert (settings.enabled, settings.named, settings.scheme) == (False, False, "")
    assert settings.segment_bytes == DEFAULT_SEGMENT_BYTES == 1 << 20
    assert settings.max_bytes == 32 << 20
    assert settings.problems == ()


@pytest.mark.parametrize(
    "value", ["x", "-1", "0", "1.5", "1e6", "9" * 5000, "9" * 19, "1M", "nan", "1_000_000", "٤٠٩٦"]
)
@pytest.mark.parametrize("name", ["MX_METRICS_SEGMENT_BYTES", "MX_METRICS_MAX_BYTES"])
def test_a_bad_size_is_the_default_and_one_warning(
    name: str, value: str, log: Log, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv(name, value)
    metrics.record_nixl_receive("empty")
    metrics.record_nixl_receive("empty")
    assert sink.stream is not None
    assert sink.stream.settings.segment_bytes == 1 << 20
    assert sink.stream.settings.max_bytes == 32 << 20
    (message,) = caplog.messages
    assert name in message
    assert len(log.events()) == 2


def test_a_segment_is_at_most_an_eighth_of_the_limit() -> None:
    settings = read_settings(
        {"MX_METRICS_SEGMENT_BYTES": "5000", "MX_METRICS_MAX_BYTES": " 16000 "}
    )
    assert (settings.segment_bytes, settings.max_bytes) == (2000, 16000)
    assert read_settings({"MX_METRICS_MAX_BYTES": "1"}).segment_bytes == 1


def test_directories(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/elsewhere")
    assert read_settings({"MX_METRICS_DIR": " \t"}).named is False
    assert read_settings({"MX_METRICS_DIR": " /a/b "}).directory == "/a/b"
    assert read_settings({"MX_METRICS_DIR": "a"}).directory == str(tmp_path / "a")


def test_text_that_is_no_utf8() -> None:
    settings = read_settings({"MX_METRICS_SCHEME": "\udcff", "POD_NAME": "\udcff"})
    assert settings.scheme == settings.pod.name == r"\udcff"
