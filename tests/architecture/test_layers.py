"""Imports go one way, as the architecture's tables draw it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import support
from tests.support.layers import PACKAGES, floors, impurities, unplaced, violations

PAGE = (support.ROOT / "docs" / "architecture.md").read_text()


def test_every_module_has_a_room() -> None:
    assert unplaced(support.ROOT, PAGE) == []


def test_imports_go_down() -> None:
    assert violations(support.ROOT, PAGE) == []


def test_core_and_loads_are_pure() -> None:
    assert impurities(support.ROOT) == []


def test_each_room_that_is_drawn_is_there() -> None:
    for room in {room for table in floors(PAGE) for room in table}:
        place = support.ROOT / PACKAGES[room.partition(".")[0]] / room.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), room


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the sources, to be broken."""
    for package, folder in PACKAGES.items():
        shutil.copytree(support.ROOT / folder / package, tmp_path / folder / package)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("exporter/mx_exporter/core/fold.py", "from ..directory.follower import Follower"),
        ("exporter/mx_exporter/core/fold.py", "import mx_exporter.cli.main"),
        ("exporter/mx_exporter/core/fold.py", "def late():\n    from ..exposition import text"),
        ("exporter/mx_exporter/http/app.py", "from ..push import pushgateway"),
        ("exporter/mx_exporter/directory/follower.py", "from ..exposition.text import render"),
        ("exporter/mx_exporter/config.py", "from mx_emitter.settings import read_settings"),
        ("emitter/mx_emitter/log/stream.py", "from ..recorders import metrics"),
        ("emitter/mx_emitter/context/rank.py", "from mx_exporter import config"),
        ("emitter/mx_log/files.py", "from mx_emitter import settings"),
        ("emitter/mx_activate/__init__.py", "from mx_emitter import modelexpress"),
    ],
)
def test_an_import_that_goes_another_way_is_found(house: Path, module: str, line: str) -> None:
    with open(house / module, "a") as file:
        file.write(f"\n{line}\n")
    (found,) = violations(house, PAGE)
    assert found.startswith(f"{module} line ")


@pytest.mark.parametrize("module", ["core/fold.py", "loads/story.py"])
def test_a_clock_in_a_pure_room_is_found(house: Path, module: str) -> None:
    with open(house / "exporter/mx_exporter" / module, "a") as file:
        file.write("\ndef now():\n    import time\n    return time.time()\n")
    (found,) = impurities(house)
    assert found.endswith("imports time")
