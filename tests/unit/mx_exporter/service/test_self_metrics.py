"""The tables of the exporter's own families are what its page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.process_collector import ProcessCollector

from mx_exporter.config import Directory, Settings
from mx_exporter.core.builtin import CATALOG
from mx_exporter.directory.maintenance import Maintenance
from mx_exporter.exposition.fold_metrics import CAP_ROWS, STATE_ROWS
from mx_exporter.exposition.rows import Row, read_rows
from mx_exporter.exposition.samples import Point
from mx_exporter.exposition.text import render
from mx_exporter.service.pipeline import Pipeline
from mx_exporter.service.self_metrics import ROWS, process_families
from tests.support import Lines
from tests.support.pages import check_metrics

ALL: tuple[Row[Any], ...] = (*STATE_ROWS, *CAP_ROWS, *ROWS)


def test_a_page_has_the_families_of_the_tables_in_their_order(
    tmp_path: Path, promtool: str
) -> None:
    directory, archive = tmp_path / "log", tmp_path / "archive"
    directory.mkdir()
    archive.mkdir()
    Lines().segment(directory, 0, [("source_attempted", {"policy": "p", "result": "ok"})])
    settings = Settings(directory=Directory(str(directory), named=True), archive_dir=str(archive))
    maintenance = Maintenance(CATALOG, settings)
    running = Pipeline(CATALOG, settings, maintenance, lambda: None)
    try:
        running.drain(None)
        page = running.page(False)
    finally:
        maintenance.finish_shipping(5)
        running.close()
    found = re.findall(r"^# TYPE (mx_exporter_\S+) (\S+)$", page.decode(), re.MULTILINE)
    teed = "mx_exporter_lines_teed_total"  # shown with a tee alone
    assert found == [(row.name, row.type) for row in ALL if row.name != teed]
    for row in ALL:
        assert row.name == teed or f"# HELP {row.name} {row.help}\n" in page.decode()
    check_metrics(promtool, page)


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_a_row_is_a_family_by_the_rules(row: Row[Any]) -> None:
    assert row.type in ("counter", "gauge")
    assert row.name.endswith("_total") == (row.type == "counter")
    assert row.help.endswith(".")
    assert bool(row.labels) or not row.known
    assert [other.name for other in ALL].count(row.name) == 1
    assert row.name not in CATALOG.by_name


def test_known_values_always_show_and_others_as_they_come() -> None:
    known = {"b": "", "a": ""}
    row: Row[dict[str, float]] = Row("x", "gauge", "X.", lambda given: given, ("l",), known)
    (family,) = read_rows([row], {"c": 3, "b": 2})
    assert family.series == [Point(("a",), 0), Point(("b",), 2), Point(("c",), 3)]
    declared: Row[dict[str, float]] = Row(
        "x", "gauge", "X.", lambda given: given, ("l",), known, as_declared=True
    )
    (family,) = read_rows([declared], {"a": 1})
    assert family.series == [Point(("b",), 0), Point(("a",), 1)]


def test_a_row_without_a_value_is_left_out() -> None:
    row: Row[float | None] = Row("x", "gauge", "X.", lambda given: given)
    assert list(read_rows([row], None)) == []
    (family,) = read_rows([row], 0)
    assert family.series == [Point((), 0)]


def test_the_families_of_the_process_have_the_usual_names() -> None:
    page = render(process_families(ProcessCollector(registry=None))).decode()
    assert re.search(r"^process_cpu_seconds_total [\d.e+]+$", page, re.MULTILINE)
    assert "# TYPE process_cpu_seconds_total counter\n" in page
    assert "# TYPE process_resident_memory_bytes gauge\n" in page
