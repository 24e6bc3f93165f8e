"""What in an environment looks like one of our variables and is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from mx_emitter import enable_metrics, metrics
from mx_exporter.config import OPTIONS, Settings, read_settings
from mx_log.variables import NAMES, OF_EMITTER, doubts
from tests import support
from tests.support import running, serving
from tests.support.emitter_fixtures import log, undecided
from tests.support.emitting import Log, Program

__all__ = ["log", "undecided"]

#: What Kubernetes sets in each pod for Services named mx-metrics and mx-metrics-exporter.
LINKS = {
    "MX_METRICS_SERVICE_HOST": "10.96.0.12",
    "MX_METRICS_SERVICE_PORT": "9402",
    "MX_METRICS_SERVICE_PORT_METRICS": "9402",
    "MX_METRICS_PORT": "tcp://10.96.0.12:9402",
    "MX_METRICS_PORT_9402_TCP": "tcp://10.96.0.12:9402",
    "MX_METRICS_PORT_9402_TCP_PROTO": "tcp",
    "MX_METRICS_PORT_9402_TCP_PORT": "9402",
    "MX_METRICS_PORT_9402_TCP_ADDR": "10.96.0.12",
    "MX_METRICS_EXPORTER_PORT": "udp://[fd00::1]:9402",
    "MX_METRICS_EXPORTER_SERVICE_HOST": "fd00::1",
}


def test_a_port_that_is_a_service_link_is_not_set_and_said_once() -> None:
    assert read_settings({}, LINKS) == Settings()
    (said,) = doubts(LINKS)
    assert said.startswith("MX_METRICS_PORT='tcp://10.96.0.12:9402' is what Kubernetes sets for a ")
    assert "Service named mx-metrics" in said
    assert doubts(LINKS, OF_EMITTER) == []  # it has no port


def test_serve_and_run_start_beside_a_service_of_that_name(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    exporter = serving.start(spawn, tmp_path, env=LINKS)
    assert exporter.log.count("is what Kubernetes sets") == 1
    run = running.start(spawn, tmp_path, "true", env=LINKS)
    assert run.process.result() == 0
    assert run.log.count("is what Kubernetes sets") == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MX_METRIC_ENABLED", "MX_METRICS_ENABLED"),
        ("MX_METRICS_ENABLE", "MX_METRICS_ENABLED"),
        ("MX_METRICS_DIRECTORY", "MX_METRICS_DIR"),
        ("MX_METRIC_DIRECTORY", "MX_METRICS_DIR"),
        ("MX_METRICS_PROT", "MX_METRICS_PORT"),
        ("MX_METRCS_DIR", "MX_METRICS_DIR"),
        ("MX_METIRCS_PORT", "MX_METRICS_PORT"),
        ("MXMETRICS_DIR", "MX_METRICS_DIR"),
        ("mx_metrics_dir", "MX_METRICS_DIR"),
        ("MX_METRICS_PUSH_GATEWAY", "MX_METRICS_PUSHGATEWAY"),
        ("MX_METRICS_LABEL", "MX_METRICS_SOURCE_ID_LABEL"),
    ],
)
def test_a_name_that_is_nearly_right_is_said(name: str, meant: str) -> None:
    assert doubts({name: "1"}) == [f"{name} is no setting; {meant}?"]


def test_a_name_that_is_like_no_other_is_said_without_a_guess() -> None:
    assert doubts({"MX_METRICS_FOO": "1"}) == ["MX_METRICS_FOO is no setting"]
    assert doubts({"MX_METRICS_\n\udcff": "1"}) == ["'MX_METRICS_\\n\\udcff' is no setting"]


@pytest.mark.parametrize(
    "name",
    [
        "MX_METADATA_PORT",
        "MX_REFIT_TIMING",
        "MX_MODEL_URI",
        "X_METRICS_DIR",
        "MXNET_ENABLED",
        "",
        "M",
    ],
)
def test_names_of_others_are_left_alone(name: str) -> None:
    assert doubts({name: "1"}) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MX_METRICS_ENABLED", "enabled", "is none of 1, true, yes, on"),
        ("MX_METRICS_DIR", '"/var/run/mx"', "is in quotes"),
        ("MX_METRICS_DIR", "'/var/run/mx'", "is in quotes"),
        ("MX_METRICS_SCHEME", '"a"', "is in quotes"),
        ("MX_METRICS_DIR", "run/mx", "is not absolute"),
        ("MX_METRICS_DIR", "~/mx", "is not absolute"),
        ("MX_METRICS_DIR", '"', "is not absolute"),
    ],
)
def test_a_value_that_can_hardly_be_meant_is_said(name: str, value: str, words: str) -> None:
    (said,) = doubts({name: value})
    assert said.startswith(f"{name}={value!r} {words}")


def test_right_settings_are_not_doubted() -> None:
    right = {
        "MX_METRICS_ENABLED": " On ",
        "MX_METRICS_DIR": " /var/run/mx ",
        "MX_METRICS_PORT": "9402",
        "MX_METRICS_PUSHGATEWAY": "http://gateway:9091",
        "POD_NAME": "a",
    }
    assert doubts({**dict.fromkeys(NAMES, ""), **right}) == []


def test_what_is_said_is_bounded() -> None:
    assert len(doubts({f"MX_METRICS_X{n}": "" for n in range(100)})) == 10
    (said,) = doubts({"MX_METRICS_ENABLED": "x" * 1000})
    assert len(said) < 200


def test_every_variable_of_ours_is_known() -> None:
    assert {row.variable for row in OPTIONS.values() if row.variable} <= NAMES
    assert all(support.is_products(name) for name in NAMES)


def test_the_emitter_says_it_once_while_metrics_are_on(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MX_METRICS_DIRECTORY", "/x")
    for name, value in LINKS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MX_METRICS_ENABLED", "0")
    assert not enable_metrics()
    assert caplog.messages == []
    monkeypatch.setenv("MX_METRICS_ENABLED", "1")
    assert enable_metrics()
    assert enable_metrics()
    metrics.record_nixl_receive("empty")
    assert caplog.messages == ["MX_METRICS_DIRECTORY is no setting; MX_METRICS_DIR?"]
    assert len(log.events()) == 1


def test_nothing_is_imported_where_there_is_nothing_to_say(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    code = (
        "import sys; from mx_emitter import enable_metrics; assert enable_metrics();"
        "print('difflib' in sys.modules)"
    )
    program = Program(spawn, tmp_path)
    assert program.run(code, MX_METADATA_PORT="1").output == "False\n"
    assert program.run(code, MX_METRICS_PROT="1").output == "True\n"
