"""The compose file is consistent, and the programs accept what it mounts for them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mx_exporter.config import DEFAULT_PORT
from tests import support
from tests.support import DEPLOY

COMPOSE = DEPLOY / "compose"

#: Keys of a service that the file uses; another one is taken for a mistake.
KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "entrypoint", "environment", "image",
    "ports", "read_only", "security_opt", "volumes",
}  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Sources of a service's mounts by place."""
    return {one.split(":")[1]: one.split(":")[0] for one in service["volumes"]}


def test_the_file_holds_together(compose: dict[str, Any]) -> None:
    assert set(compose) == {"name", "services", "volumes"}
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
    built = compose["services"]["exporter"]["build"]
    context = COMPOSE / built["context"]
    assert context.resolve() == support.ROOT
    assert (context / built["dockerfile"]).exists()


def test_ranks_and_exporter_look_at_one_place(compose: dict[str, Any]) -> None:
    exporter, ranks = compose["services"]["exporter"], compose["services"]["ranks"]
    where = exporter["environment"]["MX_METRICS_DIR"]
    assert ranks["environment"]["MX_METRICS_DIR"] == where
    assert mounts(exporter)[where] == mounts(ranks)[where] == "log"
    assert ranks["image"] == exporter["image"]
    # A service that names the image without building it would have it pulled from somewhere.
    assert ranks["build"] == exporter["build"]


def test_the_ranks_commands_are_the_demos(compose: dict[str, Any], spawn: support.Spawner) -> None:
    ranks = compose["services"]["ranks"]
    python, program = ranks["entrypoint"]
    assert python == "/opt/mx-metrics/bin/python"
    folder, name = program.rsplit("/", 1)
    rank = (COMPOSE / mounts(ranks)[folder] / name).resolve()
    assert ranks["command"][-1] == "--forever"
    scenarios = ranks["command"][:-1]
    for scenario in scenarios:  # each is one that the rank knows
        assert f'"{scenario}"' in rank.read_text()
    done = spawn(
        sys.executable,
        rank,
        *scenarios[:1],
        "--speed",
        "1000",
        env={"MX_METRICS_ENABLED": "0"},
    )
    assert done.result() == 0, done.error_output


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
    assert scrape["static_configs"] == [{"targets": [f"exporter:{DEFAULT_PORT}"]}]
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
