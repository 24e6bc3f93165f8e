"""What a script or a notebook imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mx_exporter
from mx_exporter.core.builtin import CATALOG
from tests.support import Lines, clean_environment


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    attempt = ("source_attempted", {"policy": "random", "result": "success"})
    Lines().segment(tmp_path, 0, [attempt] * 3)
    return tmp_path


def test_logs_become_families(logged: Path) -> None:
    state = mx_exporter.replay(str(logged), jobs=1)
    assert isinstance(state, mx_exporter.State)
    families = {family.name: family for family in mx_exporter.samples(state)}
    points = families["mx_p2p_source_attempts_total"].series
    assert {point.labels: point.value for point in points}["random", "", "success"] == 3


def test_a_catalogue_of_ones_own(logged: Path) -> None:
    attempts = CATALOG.by_name["mx_p2p_source_attempts_total"]
    mine = mx_exporter.Catalog(CATALOG.events.values(), [attempts])
    state = mx_exporter.replay(str(logged), catalog=mine)
    assert [family.name for family in mx_exporter.samples(state, catalog=mine)] == [attempts.name]


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        mx_exporter.nothing  # noqa: B018


def test_importing_it_imports_no_library() -> None:
    code = "import sys, mx_exporter; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )
    assert not set(done.stdout.split()) & {"prometheus_client", "msgspec", "click", "watchdog"}
