"""Each alert fires when it should and stays silent when it should, and has its paragraph."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests import support
from tests.support import DEPLOY
from tests.support.promql import selectors

RULES = sorted(DEPLOY.glob("prometheus/*.rules.yaml"))
PAGE = DEPLOY.parent / "docs" / "alerts.md"

#: Where the pages are published, which is said once.
(PUBLISHED,) = re.findall(
    r'^Documentation = "(https://.+/)"$', (DEPLOY.parent / "pyproject.toml").read_text(), re.M
)


def rules() -> list[dict[str, Any]]:
    return [
        rule
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}

# --------------------------------------------------------------------------------------
# What stands in the files


def test_rules_are_accepted(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", *RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_name_series_that_exist(series: dict[str, set[str]]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        for selector in selectors(rule["expr"]):
            if selector.name not in recorded:
                assert selector.name in series, rule["expr"]
                labels = {matcher.name for matcher in selector.matchers.matchers}
                assert labels <= series[selector.name], rule["expr"]


def test_each_alert_has_its_paragraph() -> None:
    paragraphs = dict(re.findall(r"^## (\w+)\n\n(.+?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S))
    assert set(paragraphs) == set(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"{PUBLISHED}alerts.md#{name.lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert len(paragraphs[name]) > 200


def test_runbooks_lead_where_one_says(spawn: support.Spawner, tmp_path: Path) -> None:
    """The rules for Prometheus and for its operator alike."""
    for name in ("deploy", "pyproject.toml"):
        source = DEPLOY.parent / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    wiki = "https://wiki.example/mx"
    done = spawn(
        sys.executable,
        tmp_path / "deploy" / "generate.py",
        "--docs-url",
        wiki,
        env={"PATH": "/nowhere"},
    )
    assert done.result() == 0, done.error_output
    for path in ("prometheus/alerts.rules.yaml", "kubernetes/monitoring/prometheusrule.yaml"):
        text = (tmp_path / "deploy" / path).read_text()
        assert text.count("runbook_url: ") == len(ALERTS)
        assert text.count(f"runbook_url: {wiki}/alerts.md#mx") == len(ALERTS)


# --------------------------------------------------------------------------------------
# When they fire
#
# A sample each 35 s, since no window of a rule is a multiple of that: releases of Prometheus
# differ in whether a window holds the sample on its left edge.

INTERVAL = 35
POD = 'job="mx-metrics", namespace="serving", pod="engine-0", instance="10.0.0.1:9402"'


class Case(NamedTuple):
    """``series``: values by series, in promtool's notation; ``at``: minutes. Firing: ``labels``
    of the alert's instances are matched by these; none: silent."""

    name: str
    alert: str
    series: dict[str, str]
    at: int
    labels: tuple[dict[str, str], ...] = ()


def receives(**values: str) -> dict[str, str]:
    return {
        f'mx_nixl_receive_total{{{POD}, scheme="prod", result="{result}"}}': value
        for result, value in values.items()
    }


def listings(**values: str) -> dict[str, str]:
    labels = f'{POD}, scheme="prod", policy="load_aware"'
    return {
        f'mx_p2p_list_sources_total{{{labels}, result="{result}"}}': value
        for result, value in values.items()
    }


def abandoned(value: str) -> dict[str, str]:
    labels = f'{POD}, scheme="", engine="vllm", model="m", phase="chain"'
    return {f"mx_loads_abandoned_total{{{labels}}}": value}


def ended(value: str, outcome: str = "error") -> dict[str, str]:
    labels = f'{POD}, scheme="", engine="vllm", model="m", model_role="main", outcome="{outcome}"'
    return {f"mx_load_seconds_count{{{labels}}}": value}


def at_directory(**values: str) -> dict[str, str]:
    return {
        f'mx_exporter_directory_state{{{POD}, state="{state}"}}': value
        for state, value in values.items()
    }


def oldest(value: str) -> dict[str, str]:
    labels = f'{POD}, scheme="", engine="vllm", model="m", phase="chain"'
    return {f"mx_exporter_oldest_load_seconds{{{labels}}}": value}


def own(name: str, value: str, **labels: str) -> dict[str, str]:
    more = "".join(f', {label}="{text}"' for label, text in labels.items())
    return {f"{name}{{{POD}{more}}}": value}


SILENT = "MxSilentReceiveFailures"
PLANE = "MxDataPlaneErrors"
LIST = "MxListSourcesErrors"
GONE = "MxRanksGone"
HANGS = "MxLoadHangs"
FAIL = "MxLoadsFail"
NOTHING = "MxNothingLogged"
LOST = "MxEventsLost"
REFUSED = "MxEventsRefused"
DROPS = "MxEmitterDrops"
BEHIND = "MxExporterBehind"
TROUBLE = "MxRetentionTrouble"
NEAR = "MxDirectoryNearLimit"
UNSHIPPED = "MxLogNotShipped"

#: One burst of loads as a pod starts, and nothing after it: how engines load.
BURST = "0x3 8x200"

CASES = [
    Case(
        "partial receives, all along",
        SILENT,
        receives(complete="0+95x60", partial="0+5x60", empty="0x60", rejected="0x60"),
        30,
        ({"scheme": "prod", "severity": "critical"},),
    ),
    Case(
        "a burst with an empty one",
        SILENT,
        receives(complete="0x3 7x200", partial="0x203", empty="0x3 1x200"),
        20,
        ({"scheme": "prod"},),
    ),
    Case("in the first minutes", SILENT, receives(complete=BURST, partial="0x3 1x200"), 8),
    Case("one in two hundred", SILENT, receives(complete="0+199x60", partial="0+1x60"), 30),
    Case("rejected ones raise by themselves", SILENT, receives(complete=BURST, rejected=BURST), 30),
    Case("none at all", SILENT, receives(complete="0x200", partial="0x200"), 30),
    Case("long ago", SILENT, receives(complete="0x3 7x400", partial="0x3 1x400"), 120),
    Case(
        "a time-out",
        PLANE,
        own("mx_nixl_data_plane_errors_total", "0x3 1x60", scheme="prod", kind="timeout")
        | own("mx_nixl_data_plane_errors_total", "0x60", scheme="prod", kind="status_error"),
        10,
        ({"kind": "timeout", "scheme": "prod"},),
    ),
    Case(
        "no error",
        PLANE,
        own("mx_nixl_data_plane_errors_total", "0x60", scheme="prod", kind="timeout"),
        10,
    ),
    Case(
        "errors before the exporter's restart",
        PLANE,
        own("mx_nixl_data_plane_errors_total", "5x60", scheme="prod", kind="timeout"),
        20,
    ),
    Case(
        "one in ten fails",
        LIST,
        listings(ok="0+9x60", empty="0x60", error="0+1x60"),
        30,
        ({"scheme": "prod"},),
    ),
    Case(
        "a burst of which one fails",
        LIST,
        listings(ok="0x3 7x60", empty="0x60", error="0x3 1x60"),
        15,
        ({"scheme": "prod"},),
    ),
    Case("one in fifty fails", LIST, listings(ok="0+49x60", error="0+1x60"), 30),
    Case("all of them empty", LIST, listings(ok="0x60", empty="0+8x60", error="0x60"), 30),
    Case("a load that does not end", HANGS, oldest("0x3 0+35x60"), 40, ({"phase": "chain"},)),
    Case("one that takes its time", HANGS, oldest("0x3 0+35x40 0x60"), 60),
    Case("a load is abandoned", GONE, abandoned("1 1+0x5 2x60"), 10, ({"phase": "chain"},)),
    Case("a series born with one", GONE, abandoned("_x5 1x60"), 10, ({"engine": "vllm"},)),
    Case("an old one", GONE, abandoned("1x100"), 40),
    Case("long after its birth", GONE, abandoned("_x5 1x100"), 40),
    Case("a load fails", FAIL, ended("1 1+0x5 2x60"), 10, ({"engine": "vllm", "model": "m"},)),
    Case("the only load fails", FAIL, ended("_x5 1x60"), 10, ({"engine": "vllm", "model": "m"},)),
    Case("failed long ago", FAIL, ended("1x100"), 40),
    Case("failed once, long ago", FAIL, ended("_x5 1x100"), 40),
    Case("loads succeed", FAIL, ended("_x5 1x5 2x60", "success"), 10),
    Case(
        "no segment ever",
        NOTHING,
        at_directory(segments="0x60", empty="1x60"),
        20,
        ({"state": "empty", "pod": "engine-0"},),
    ),
    Case(
        "an engine that takes its time",
        NOTHING,
        at_directory(segments="0x20 1x60", empty="1x20 0x60"),
        20,
    ),
    Case("segments", NOTHING, at_directory(segments="1x60", empty="0x60", missing="0x60"), 20),
    Case("a gap", LOST, own("mx_exporter_events_lost", "0x3 7x60"), 10, ({"pod": "engine-0"},)),
    Case("a file that came late", LOST, own("mx_exporter_events_lost", "0x3 7x3 0x60"), 10),
    Case("no gap", LOST, own("mx_exporter_events_lost", "0x60"), 10),
    Case(
        "a value and a line",
        REFUSED,
        own("mx_exporter_observations_refused_total", "0x3 2x60", reason="negative")
        | own("mx_exporter_observations_refused_total", "0x60", reason="boolean")
        | own("mx_exporter_lines_rejected_total", "0x3 1x60", reason="not_json"),
        10,
        ({"reason": "negative"}, {"reason": "not_json"}),
    ),
    Case(
        "none refused",
        REFUSED,
        own("mx_exporter_observations_refused_total", "0x60", reason="negative")
        | own("mx_exporter_lines_rejected_total", "3x60", reason="torn"),
        10,
    ),
    Case(
        "at the limit",
        DROPS,
        own("mx_emitter_events_dropped_total", "0x3 40x60", reason="limit", scheme="")
        | own("mx_emitter_events_dropped_total", "0x60", reason="disk", scheme=""),
        10,
        ({"reason": "limit"},),
    ),
    Case(
        "none dropped",
        DROPS,
        own("mx_emitter_events_dropped_total", "0x60", reason="limit", scheme=""),
        10,
    ),
    Case(
        "bytes stay unread",
        BEHIND,
        own("mx_exporter_unread_bytes", "4096x60") | own("mx_exporter_last_drain_seconds", "2x60"),
        10,
        ({"pod": "engine-0"},),
    ),
    Case(
        "reading takes long",
        BEHIND,
        own("mx_exporter_unread_bytes", "0x60") | own("mx_exporter_last_drain_seconds", "8x60"),
        10,
        ({"pod": "engine-0"},),
    ),
    Case(
        "one slow scrape",
        BEHIND,
        own("mx_exporter_unread_bytes", "0x3 4096 0x60")
        | own("mx_exporter_last_drain_seconds", "0.001x3 8 0.001x60"),
        10,
    ),
    Case(
        "the snapshot cannot be written",
        TROUBLE,
        own("mx_exporter_retention_trouble", "0x3 1x60")
        | own("mx_exporter_snapshot_trouble", "0x60"),
        10,
        ({"pod": "engine-0"},),
    ),
    Case(
        "the snapshot cannot be read",
        TROUBLE,
        own("mx_exporter_retention_trouble", "0x60") | own("mx_exporter_snapshot_trouble", "1x60"),
        10,
        ({"pod": "engine-0"},),
    ),
    Case(
        "one failed try",
        TROUBLE,
        own("mx_exporter_retention_trouble", "0x3 1 0x60")
        | own("mx_exporter_snapshot_trouble", "0x60"),
        10,
    ),
    Case(
        "nearly full",
        NEAR,
        own("mx_exporter_directory_bytes", "950x60")
        | own("mx_exporter_directory_limit_bytes", "1000x60"),
        10,
        ({"pod": "engine-0"},),
    ),
    Case(
        "compacted in time",
        NEAR,
        own("mx_exporter_directory_bytes", "950x3 600x60")
        | own("mx_exporter_directory_limit_bytes", "1000x60"),
        10,
    ),
    Case(
        "a segment too many",
        UNSHIPPED,
        own("mx_exporter_unshipped_segments_total", "0x3 1x60"),
        10,
        ({"pod": "engine-0"},),
    ),
    Case("all of them", UNSHIPPED, own("mx_exporter_unshipped_segments_total", "0x60"), 10),
]


def test_each_alert_is_seen_firing_and_silent() -> None:
    assert {case.alert for case in CASES if case.labels} == set(ALERTS)
    assert {case.alert for case in CASES if not case.labels} == set(ALERTS)


def test_no_window_is_a_multiple_of_the_interval() -> None:
    windows = {window for rule in rules() for window in re.findall(r"\[(\d+)m\]", rule["expr"])}
    hours = {window for rule in rules() for window in re.findall(r"\[(\d+)h\]", rule["expr"])}
    seconds = {int(window) * 60 for window in windows} | {int(hour) * 3600 for hour in hours}
    assert seconds
    assert not [one for one in seconds if one % INTERVAL == 0]


def firing(promtool: str, case: Case, tmp_path: Path) -> list[dict[str, str]]:
    """The labels of the alert's instances that fire at the case's time, by a test of promtool
    that expects none and says what it got."""
    path = tmp_path / "test.json"
    path.write_text(
        json.dumps(
            {
                "rule_files": [str(path) for path in RULES],
                "evaluation_interval": "1m",
                "tests": [
                    {
                        "interval": f"{INTERVAL}s",
                        "input_series": [
                            {"series": name, "values": values}
                            for name, values in case.series.items()
                        ],
                        "promql_expr_test": [
                            {
                                "expr": f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}',
                                "eval_time": f"{case.at}m",
                                "exp_samples": [],
                            }
                        ],
                    }
                ],
            }
        )
    )
    done = subprocess.run(
        [promtool, "test", "rules", path], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return []
    said = done.stdout + done.stderr
    assert "got:" in said, said
    found = said.partition("got:")[2]
    return [
        dict(re.findall(r'(\w+)="([^"]*)"', labels.replace('\\"', '"')))
        for labels in re.findall(r"\{([^}]*)\} 1", found)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.name}")
def test_alert(case: Case, promtool: str, tmp_path: Path) -> None:
    found = sorted(firing(promtool, case, tmp_path), key=lambda labels: sorted(labels.items()))
    assert len(found) == len(case.labels), found
    for labels, wanted in zip(found, case.labels, strict=True):
        assert wanted.items() <= labels.items()
