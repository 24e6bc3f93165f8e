"""Every expression of the dashboard and the rules, asked of a real Prometheus that scrapes a real
exporter while the demo's ranks load."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import support
from tests.support import DEPLOY, Prometheus, serving
from tests.support.promql import filled

#: One worker runs them all, and begins with them.
pytestmark = pytest.mark.long


#: A pod whose engine logs, and one whose engine does not.
PODS = LOADS, IDLE = "engine-0", "engine-1"


def impatient_rules(home: Path) -> Path:
    """The rules, with alerts that fire at once."""
    folder = home / "rules"
    folder.mkdir()
    for path in DEPLOY.glob("prometheus/*.rules.yaml"):
        text = re.sub(r"^ +for: .*\n", "", path.read_text(), flags=re.MULTILINE)
        (folder / path.name).write_text(text)
    return folder


def scraping(
    binary: str, spawner: support.Spawner, home: Path, exporters: dict[str, serving.Exporter]
) -> Prometheus:
    """A Prometheus with the configuration of the compose file that has scraped the exporters of
    these pods."""
    config = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(impatient_rules(home) / "*.rules.yaml")]
    config["scrape_configs"][0]["static_configs"] = [
        {
            "targets": [exporter.address],
            "labels": {"namespace": "models", "pod": pod, "node": f"node-of-{pod}"},
        }
        for pod, exporter in exporters.items()
    ]
    server = Prometheus(spawner, binary, home / "prometheus", yaml.safe_dump(config))
    support.wait_until(lambda: numbers(server, "up") == [1.0, 1.0], 60)
    return server


@pytest.fixture(scope="module")
def server(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has seen the pod before its first rank, then loads of all kinds, one rank that hangs, one
    that was killed and one that was told to stop; and a pod that logs nothing."""
    home = tmp_path_factory.mktemp("prometheus")
    for name in ("log", "nothing"):
        (home / name).mkdir()
    spawner = support.Spawner(home / "processes")
    env = {
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(home / "log"),
        "MX_METRICS_SCHEME": "demo",
    }

    def start(*scenarios: str, **more: Any) -> support.Process:
        return spawner.python("-m", "mx_demo.rank", *scenarios, "--speed", "300", env=env, **more)

    try:
        exporter = serving.start(spawner, home / "log")
        other = serving.start(spawner, home / "nothing")
        server = scraping(prometheus, spawner, home, {LOADS: exporter, IDLE: other})
        usual = [
            start("alone", "peer", "artifacts", "retry", "miss", "fallback", "--engine", engine)
            for engine in ("vllm", "sglang")
        ]
        hanging = [start(how, stdout=subprocess.PIPE) for how in ("hang", "killed", "hang")]
        for process in hanging:
            assert process.stdout
            assert process.stdout.readline() == b"receiving\n"
        hanging[1].send_signal(signal.SIGKILL)
        hanging[2].send_signal(signal.SIGTERM)
        for process in usual:
            assert process.result() == 0, process.error_output
        support.wait_until(lambda: "\nmx_loads_abandoned_total{" in exporter.page())
        yield server
    finally:
        spawner.end()


def numbers(server: Prometheus, expression: str) -> list[float]:
    """The values of an instant query that are numbers."""
    values = [float(one["value"][1]) for one in server.query(expression)]
    return [value for value in values if not math.isnan(value)]


DASHBOARD = json.loads((DEPLOY / "grafana" / "loads.json").read_text())
ASKED = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
]


@pytest.mark.parametrize("expression", ASKED)
def test_each_expression_returns_data(expression: str, server: Prometheus) -> None:
    support.wait_until(lambda: numbers(server, filled(expression)), 60, f"no data: {expression}")


def test_each_choice_of_the_dashboard_has_values(server: Prometheus) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            _, family, *_, label = re.findall(r"\w+", variable["definition"])
            found = support.wait_until(
                lambda family=family, label=label: server.ask(
                    f"label/{label}/values", **{"match[]": family}
                ),
                60,
            )
            if label == "instance":  # where the exporters are
                continue
            of_pods = {"models", *(f"{node}{pod}" for pod in PODS for node in ("", "node-of-"))}
            assert set(found) <= of_pods | {"demo", "vllm", "sglang", "example/model-70b"}


def test_each_recording_rule_returns_data(server: Prometheus) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "recording.rules.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        expression = rule["expr"]
        support.wait_until(lambda asked=expression: numbers(server, asked), 60, expression)


def test_the_demo_fires_what_it_should(server: Prometheus) -> None:
    """Two ranks had time-outs, one was killed, one was told to stop, and a pod logs nothing;
    nothing was lost, refused or dropped."""
    wanted = {"MxDataPlaneErrors", "MxRanksGone", "MxLoadsFail", "MxNothingLogged"}

    def firing() -> dict[str, dict[str, Any]]:
        return {
            alert["labels"]["alertname"]: alert
            for alert in server.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    found = support.wait_until(lambda: (f := firing()) and wanted <= set(f) and f, 60)
    assert set(found) == wanted
    assert found["MxRanksGone"]["annotations"]["description"] == (
        "A rank of vllm that loaded example/model-70b is gone without an end of its load, "
        'in phase "chain".'
    )
    described = found["MxDataPlaneErrors"]["annotations"]["description"]
    assert re.fullmatch(
        r'About \d+ failures of kind timeout in the last 15 minutes, scheme "demo"\.', described
    )
    assert found["MxLoadsFail"]["annotations"]["description"] == (
        "About 1 loads of example/model-70b by vllm ended in an error in the last 15 minutes."
    )
    assert found["MxNothingLogged"]["labels"]["pod"] == IDLE
    assert found["MxNothingLogged"]["labels"]["state"] == "empty"
    assert found["MxRanksGone"]["labels"]["pod"] == LOADS


def test_the_slowest_pod_is_named_with_its_node(server: Prometheus) -> None:
    (expression,) = (
        target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
        if panel["title"].startswith("Slowest pods")
    )
    (one,) = support.wait_until(lambda: server.query(filled(expression)), 60)
    assert {one["metric"][name] for name in ("pod", "node")} == {LOADS, f"node-of-{LOADS}"}
    # And its value is the mean of its loads.
    mean = "sum({0}_sum{1}) / sum({0}_count{1})".format("mx_load_seconds", '{outcome="success"}')
    assert support.wait_until(lambda: numbers(server, mean)) == [
        pytest.approx(float(one["value"][1]))
    ]


def test_growth_within_the_window(promtool: str, tmp_path: Path) -> None:
    """What the panels count, unlike increase(): a series born with its only event, one that grew,
    one that began again, and one of a pod that is gone."""
    (template,) = (
        target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
        if panel["title"].startswith("Loads abandoned")
    )
    expression = filled(template, "1h")
    series = {"born": "_x99 1x20", "grew": "5x99 8x20", "again": "9x99 2x20", "gone": "4x30 _x99"}
    labels = 'engine="vllm", model="m", scheme=""'
    (tmp_path / "test.json").write_text(
        json.dumps(
            {
                "evaluation_interval": "1m",
                "tests": [
                    {
                        "interval": "35s",
                        "input_series": [
                            {
                                "series": f'mx_loads_abandoned_total{{{labels}, phase="{name}"}}',
                                "values": values,
                            }
                            for name, values in series.items()
                        ],
                        "promql_expr_test": [
                            {
                                "expr": expression,
                                "eval_time": "65m",
                                "exp_samples": [
                                    {"labels": f'{{phase="{name}"}}', "value": value}
                                    for name, value in (("born", 1), ("grew", 3), ("again", 2))
                                ],
                            }
                        ],
                    }
                ],
            }
        )
    )
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "test.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
