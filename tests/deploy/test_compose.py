"""The compose file is consistent, and the programs accept what it mounts for them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mx_demo.loads import SCENARIOS
from mx_exporter.config import DEFAULT_PORT
from tests import support
from tests.support import DEPLOY

COMPOSE = DEPLOY / "compose"

#: Keys of a service that the file uses; another one is taken for a mistake.
KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "entrypoint", "environment", "image",
    "init", "ports", "read_only", "restart", "security_opt", "volumes",
}  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Sources of a service's mounts by place."""
    return {one.split(":")[1]: one.split(":")[0] for one in service["volumes"]}


def test_the_file_holds_together(compose: dict[str, Any]) -> None:
    assert {key for key in compose if not key.startswith("x-")} == {"name", "services", "volumes"}
    for name, service in compose["services"].items():
        assert set(service) <= KEYS, name
        assert re.search(r":[\w.]+$", service["image"]), f"{name}: no version"
        assert set(service.get("depends_on", [])) <= set(compose["services"])
        for source in mounts(service).values():
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source
            else:
                assert source in compose["volumes"]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port
    built = compose["services"]["exporter-0"]["build"]
    context = COMPOSE / built["context"]
    assert context.resolve() == support.ROOT
    assert (context / built["dockerfile"]).exists()


def ranks(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in compose["services"].items() if name.startswith("rank")}


def test_ranks_and_exporter_look_at_one_place(compose: dict[str, Any]) -> None:
    """Those of a pod; and pods do not share one."""
    logs = {}
    for name, rank in ranks(compose).items():
        pod = rank["environment"]["POD_NAME"]
        exporter = compose["services"][pod.replace("engine", "exporter")]
        where = exporter["environment"]["MX_METRICS_DIR"]
        assert rank["environment"]["MX_METRICS_DIR"] == where
        assert mounts(exporter)[where] == mounts(rank)[where]
        assert logs.setdefault(pod, mounts(rank)[where]) == mounts(rank)[where], name
        assert rank["image"] == exporter["image"]
        # A service that names the image without building it would have it pulled from somewhere.
        assert rank["build"] == exporter["build"]
    assert len(set(logs.values())) == len(logs) == 2


def test_prometheus_names_pods_and_nodes_as_the_ranks_do(compose: dict[str, Any]) -> None:
    config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    named = {
        (one["labels"]["namespace"], one["labels"]["pod"], one["labels"]["node"])
        for one in scrape["static_configs"]
    }
    said = {
        tuple(rank["environment"][name] for name in ("POD_NAMESPACE", "POD_NAME", "NODE_NAME"))
        for rank in ranks(compose).values()
    }
    assert named == said


def test_the_ranks_commands_are_the_demos(compose: dict[str, Any], spawn: support.Spawner) -> None:
    releases, loads = set(), set()
    for rank in ranks(compose).values():
        python, *words = [*rank["entrypoint"], *rank["command"]]
        assert python == "/opt/mx-metrics/bin/python"
        # Understood to the last word; with --help nothing is loaded.
        done = spawn(sys.executable, *words, "--help")
        assert done.result() == 0, done.error_output
        done = spawn(sys.executable, *words, "--nonsense")
        assert done.result() == 2
        assert "unrecognized arguments: --nonsense" in done.error_output
        releases.add(words[words.index("--release") + 1])
        loads |= set(words) & set(SCENARIOS)
        # Process 1 cannot be killed by itself.
        assert rank["init"] or "killed" not in words
    assert len(releases) == 2
    assert {"hang", "killed", "retry"} <= loads


def test_prometheus_takes_its_configuration(
    compose: dict[str, Any], promtool: str, tmp_path: Path
) -> None:
    inside = mounts(compose["services"]["prometheus"])
    config = yaml.safe_load((COMPOSE / inside["/etc/prometheus/prometheus.yml"]).read_text())
    (rules,) = config["rule_files"]
    folder, pattern = rules.rsplit("/", 1)
    here = (COMPOSE / inside[folder]).resolve()
    assert len(list(here.glob(pattern))) == 2
    (scrape,) = config["scrape_configs"]
    targets = [target for one in scrape["static_configs"] for target in one["targets"]]
    assert targets == [f"exporter-{n}:{DEFAULT_PORT}" for n in range(2)]
    assert all(target.partition(":")[0] in compose["services"] for target in targets)
    config["rule_files"] = [str(here / pattern)]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


def test_grafana_is_provisioned(compose: dict[str, Any]) -> None:
    grafana = compose["services"]["grafana"]
    inside = mounts(grafana)
    provisioning = COMPOSE / inside["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()  # type: ignore[union-attr]
    assert any(one.endswith(f":{port}") for one in compose["services"][host]["ports"])
    assert source["isDefault"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/mx-metrics.yaml").read_text())[
        "providers"
    ]
    boards = provider["options"]["path"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{boards}/")
    assert (COMPOSE / inside[boards] / home.removeprefix(f"{boards}/")).exists()
