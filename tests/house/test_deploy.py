"""What lies in deploy/ is accepted by who reads it, and true to the code beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml

import support
from mx_emitter.events import DEFAULT_MAX_BYTES
from mx_exporter.cli import cli
from mx_exporter.families import FAMILIES
from mx_exporter.settings import OPTIONS

DEPLOY = support.ROOT / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes/**/*.yaml"))
DASHBOARDS = sorted(DEPLOY.glob("grafana/**/*.json"))

KNOWN = {
    name
    for family in FAMILIES
    for name in (
        [f"{family.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")]
        if family.type == "histogram"
        else [family.name]
    )
}
LABELS = {family.name: set(family.label_names()) for family in FAMILIES}


def documents() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from filter(None, yaml.safe_load_all(path.read_text()))


def test_something_is_there() -> None:
    assert MANIFESTS
    assert DASHBOARDS


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_manifests_are_valid(version: str) -> None:
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    pod = document["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_the_sidecar_runs_a_command_that_exists() -> None:
    (document,) = documents()
    sidecar, engine = containers(document)
    assert sidecar["restartPolicy"] == "Always"
    program, command, *rest = sidecar["command"]
    assert program == "mx-metrics"
    flags = {flag for parameter in cli.commands[command].params for flag in parameter.opts}
    assert set(rest) <= flags
    assert sidecar["ports"][0]["containerPort"] == int(OPTIONS["port"].shown)
    read = {option.variable for option in OPTIONS.values()}
    assert {variable["name"] for variable in sidecar["env"]} <= read

    # Both look at the same place, which is the volume.
    for container in (sidecar, engine):
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        (mount,) = container["volumeMounts"]
        assert env["MX_METRICS_DIR"] == mount["mountPath"]
        assert mount["name"] == "mx-metrics"


def test_the_volume_has_room_for_the_log() -> None:
    (document,) = documents()
    (volume,) = document["spec"]["template"]["spec"]["volumes"]
    size = re.fullmatch(r"(\d+)Mi", volume["emptyDir"]["sizeLimit"])
    assert size
    writers, segment = 16, 1024 * 1024
    assert int(size[1]) * 1024 * 1024 > DEFAULT_MAX_BYTES + writers * segment


def test_the_sidecar_keeps_the_pods_class_of_service() -> None:
    (document,) = documents()
    sidecar, _ = containers(document)
    assert sidecar["resources"]["requests"] == sidecar["resources"]["limits"]
    assert not {"startupProbe", "readinessProbe"} & set(sidecar)


# --------------------------------------------------------------------------------------
# Dashboards


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield target["expr"]


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """The vector selectors of an expression, which has to parse."""
    text = expression.replace("$__rate_interval", "5m")
    found = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        for name in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
            child = getattr(node, name, None)
            for one in child if isinstance(child, list) else [child]:
                if one is not None and not isinstance(one, str | float | int):
                    visit(one)

    visit(promql_parser.parse(text))
    assert found, f"no selector found in {expression}"
    return found


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.name)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads(request.param.read_text())


def test_dashboard_identities(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in panels(dashboard)]
    assert len(ids) == len(set(ids))
    assert dashboard["uid"]
    uids = [json.loads(path.read_text())["uid"] for path in DASHBOARDS]
    assert len(uids) == len(set(uids))


def test_dashboard_asks_the_chosen_data_source(dashboard: dict[str, Any]) -> None:
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels(dashboard):
        if panel["type"] == "row":
            continue
        assert panel["description"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"]["uid"] == "${datasource}"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    assert {name for name in used if not name.startswith("__")} <= set(variables)


def test_dashboard_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(dashboard):
        at = panel["gridPos"]
        cells = {
            (at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboard_names_families_that_exist(dashboard: dict[str, Any]) -> None:
    for expression in expressions(dashboard):
        for selector in selectors(expression):
            assert selector.name in KNOWN, expression
            family = re.sub(r"_(bucket|sum|count)$", "", selector.name)
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels <= LABELS[family], expression


def test_dashboards_show_every_family() -> None:
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", selector.name)
        for path in DASHBOARDS
        for expression in expressions(json.loads(path.read_text()))
        for selector in selectors(expression)
    }
    assert shown == {family.name for family in FAMILIES}
