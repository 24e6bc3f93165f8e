"""The real parts that manifests, images and dashboards are held against."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from mx_exporter.core.builtin import FAMILIES
from mx_exporter.exposition import fold_metrics
from mx_exporter.service import self_metrics
from tests import support
from tests.support import DEPLOY, serving
from tests.support.pages import parse


@pytest.fixture(scope="session")
def kubectl() -> str:
    """Path of kubectl, for its kustomize."""
    return support.tool("kubectl")


@pytest.fixture(scope="session")
def systemd_analyze() -> str:
    """Path of systemd-analyze."""
    return support.tool("systemd-analyze", "Debian's package systemd")


@pytest.fixture(scope="session")
def parts() -> dict[str, dict[str, Any]]:
    """The pods from which the kustomize components take their parts, by name."""
    pods = [
        yaml.safe_load(path.read_text())
        for path in DEPLOY.glob("kubernetes/components/*/parts.yaml")
    ]
    return {pod["metadata"]["name"]: pod for pod in pods}


#: The components that add a container; the others change one.
ADDING = ("mx-metrics", "mx-emitter")


@pytest.fixture(scope="session")
def added(parts: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The containers that components add: the sidecar, and the one that brings the emitter."""
    containers = [parts[f"{name}-parts"]["spec"]["initContainers"] for name in ADDING]
    return [container for (container,) in containers]


#: Labels that Prometheus, not the page, gives a series.
TARGET_LABELS = {"job", "instance", "namespace", "node", "pod"}


@pytest.fixture(scope="session")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every name that can be asked for, with its labels: those of the table of families, and of
    the page of a real exporter."""
    known: dict[str, set[str]] = {}
    for family in FAMILIES:
        labels = {*family.label_names(), *TARGET_LABELS}
        if family.type == "histogram":
            known[f"{family.name}_bucket"] = {*labels, "le"}
            known[f"{family.name}_sum"] = known[f"{family.name}_count"] = labels
        else:
            known[family.name] = labels
    # Those of which a page may have no series yet.
    for row in (*fold_metrics.STATE_ROWS, *fold_metrics.CAP_ROWS, *self_metrics.ROWS):
        known[row.name] = {*row.labels, *TARGET_LABELS}
    home = tmp_path_factory.mktemp("page")
    for name in ("log", "archive"):
        (home / name).mkdir()
    load = {"engine": "e", "model": "m", "model_role": "main", "load_id": "l"}
    support.Lines().segment(home / "log", 0, [("load_started", load)])
    spawner = support.Spawner(home / "processes")
    try:
        served = serving.start(spawner, home / "log", "--tee", "--archive-dir", home / "archive")
        for name, labels in parse(served.page()):
            known.setdefault(name, set(TARGET_LABELS)).update(label for label, _ in labels)
    finally:
        spawner.end()
    return known
