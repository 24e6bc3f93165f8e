"""The documentation says what the code does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import support

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target
