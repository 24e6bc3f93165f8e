"""The documentation says what the code does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from mx_emitter.recorders import Recorders
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Event
from mx_log.schema import EVENTS, HEADERS, RESERVED_KEYS
from tests import support
from tests.support.layers import modules

PAGES = sorted([*support.ROOT.glob("*.md"), *support.ROOT.glob("docs/**/*.md")])


def test_generated_pages_are_not_stale(spawn: support.Spawner) -> None:
    check = spawn(sys.executable, support.ROOT / "docs" / "generate.py", "--check")
    assert check.result() == 0, check.error_output


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(support.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target


def test_the_architecture_names_every_module() -> None:
    text = (support.ROOT / "docs" / "architecture.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    there = {
        name.rpartition(".")[2]
        for name, path in modules(support.ROOT)
        if not path.stem.startswith("__") and "site" not in path.parts
    }
    assert named == there


def test_each_recorder_is_listed_with_its_events() -> None:
    text = (support.ROOT / "docs" / "recorders.md").read_text()
    row = r"^\| `(\w+)\([^|]*\| [^|]* \| ([^|]+) \| [^|]+ \|$"
    rows = dict(re.findall(row, text, re.MULTILINE))
    assert rows.keys() == {name for name in vars(Recorders) if not name.startswith("_")}
    logged = {name: re.findall(r"\[`(\w+)`\]", cell) for name, cell in rows.items()}
    for name, events in logged.items():
        assert len(events) == 1 + name.startswith("time_"), name
    of_their_own = {"recorder_called", "log_recorded", "events_dropped", *HEADERS}
    assert {name for names in logged.values() for name in names} == EVENTS.keys() - of_their_own


def test_examples_of_lines_are_events() -> None:
    text = (support.ROOT / "docs" / "formats.md").read_text()
    examples = re.findall(r"^```json\n(.+?)\n```$", text, re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        assert isinstance(CATALOG.decoder.decode_line(example.encode()), Event), example
        event = json.loads(example)
        assert event["event"] in EVENTS
        assert RESERVED_KEYS - {"load_id"} <= set(event)
        unknown = set(event) - RESERVED_KEYS - {f.name for f in EVENTS[event["event"]].fields}
        assert not unknown


def test_every_variable_that_is_read_is_listed() -> None:
    page = (support.ROOT / "docs" / "configuration.md").read_text()
    for package in ("emitter/mx_emitter", "exporter/mx_exporter"):
        for path in (support.ROOT / package).rglob("*.py"):
            for name in re.findall(r'"([A-Z][A-Z_]+)"', path.read_text()):
                if support.is_products(name):
                    assert f"`{name}`" in page, f"{path.name} reads {name}"
