"""The dashboard is well formed and asks for series that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.core.builtin import FAMILIES
from tests.support import DEPLOY
from tests.support.promql import filled, selectors

DASHBOARDS = sorted(DEPLOY.glob("grafana/**/*.json"))


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield target["expr"]


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.name)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.param.read_text())
    return found


def test_there_is_a_dashboard() -> None:
    assert DASHBOARDS


def test_ids_are_unique(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in panels(dashboard)]
    assert len(ids) == len(set(ids))
    assert dashboard["uid"]
    uids = [json.loads(path.read_text())["uid"] for path in DASHBOARDS]
    assert len(uids) == len(set(uids))


def test_it_asks_the_chosen_data_source(dashboard: dict[str, Any]) -> None:
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels(dashboard):
        if panel["type"] != "row":
            for part in (panel, *panel["targets"]):
                assert part["datasource"]["uid"] == "${datasource}"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    assert {name for name in used if not name.startswith("__")} == set(variables)


def test_each_panel_says_what_it_means_and_what_an_empty_one_means(
    dashboard: dict[str, Any],
) -> None:
    for panel in panels(dashboard):
        if panel["type"] != "row":
            meaning, empty, reason = panel["description"].partition("Empty: ")
            assert len(meaning) > 20, panel["title"]
            assert empty, panel["title"]
            assert reason.endswith("."), panel["title"]


def test_an_empty_panel_says_why(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        if panel["type"] != "row":
            reason = panel["description"].partition("Empty: ")[2]
            shown = panel["fieldConfig"]["defaults"]["noValue"]
            assert reason.lower().startswith(shown.lower()), panel["title"]
            assert shown


def test_titles_name_the_window(dashboard: dict[str, Any]) -> None:
    """Whoever sees a number knows of how long; and one that is of now has none."""
    for panel in panels(dashboard):
        windowed = any("$window" in target["expr"] for target in panel.get("targets", []))
        assert panel["title"].endswith(", last $window") == windowed, panel["title"]


def test_estimates_are_called_so(dashboard: dict[str, Any]) -> None:
    """Quantiles of a histogram; and next to them stand the loads themselves, as exemplars."""
    seen = 0
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            estimated = "histogram_quantile" in target["expr"]
            assert target["exemplar"] == estimated
            assert ("estimate" in panel["description"]) == estimated
            seen += estimated
    assert seen > 5


def test_one_can_look_at_a_pod_or_a_node(dashboard: dict[str, Any]) -> None:
    names = [one["name"] for one in dashboard["templating"]["list"]]
    assert {"pod", "node"} <= set(names)
    for expression in expressions(dashboard):
        for selector in selectors(filled(expression)):
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert {"namespace", "node", "pod"} <= labels, expression


def test_each_panel_links_to_the_page_of_an_exporter(dashboard: dict[str, Any]) -> None:
    (variable,) = [one for one in dashboard["templating"]["list"] if one["name"] == "exporter"]
    assert "mx_exporter_build_info" in variable["definition"]
    assert variable["definition"].endswith(", instance)")
    assert 'pod=~"$pod"' in variable["definition"]
    drawn = [panel for panel in panels(dashboard) if panel["type"] != "row"]
    assert all(panel["links"][0]["url"] == "http://$exporter/" for panel in drawn)
    # A value of one pod leads to that pod's own.
    for panel in drawn:
        links = panel["fieldConfig"]["defaults"].get("links", [])
        of_pods = any("pod, node, instance" in target["expr"] for target in panel["targets"])
        assert [link["url"] for link in links] == ["http://${__field.labels.instance}/"] * of_pods
    assert any(panel["fieldConfig"]["defaults"].get("links") for panel in drawn)


def test_a_phase_has_a_name_in_each_legend(dashboard: dict[str, Any]) -> None:
    for expression in expressions(dashboard):
        if re.search(r"mx_loads_(in_progress|abandoned)|mx_exporter_oldest_load", expression):
            assert "label_replace" in expression
            assert '"phase", "between", "phase", ""' in expression


def test_the_questions_come_in_an_operators_order(dashboard: dict[str, Any]) -> None:
    rows = [panel["title"] for panel in panels(dashboard) if panel["type"] == "row"]
    assert rows == [
        "Is it up?",
        "How long do loads take?",
        "Where does the time go?",
        "Does the selection of peers work?",
        "What fails?",
    ]


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(dashboard):
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_it_names_series_that_exist(dashboard: dict[str, Any], series: dict[str, set[str]]) -> None:
    for expression in expressions(dashboard):
        for selector in selectors(filled(expression)):
            assert selector.name in series, expression
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels <= series[selector.name], expression
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
            assert asked
            assert asked[2] in series[asked[1]]


def test_every_family_is_shown() -> None:
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", selector.name)
        for path in DASHBOARDS
        for expression in expressions(json.loads(Path(path).read_text()))
        for selector in selectors(filled(expression))
    }
    assert {family.name for family in FAMILIES} <= shown


def test_load_times_are_those_of_successes(dashboard: dict[str, Any]) -> None:
    """A load that fails early would look fast."""
    times = [one for one in expressions(dashboard) if "mx_load_seconds_bucket" in one]
    assert {re.findall(r"quantile\(([\d.]+)", one)[0] for one in times} == {"0.5", "0.95", "0.99"}
    for expression in times:
        for selector in selectors(filled(expression)):
            (outcome,) = (m for m in selector.matchers.matchers if m.name == "outcome")
            assert outcome.value == "success"
