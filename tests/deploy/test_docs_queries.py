"""The series and queries that the guides name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mx_exporter.core.builtin import BY_NAME
from tests.support import DEPLOY
from tests.support.promql import selectors

PAGES = sorted([*DEPLOY.parent.glob("*.md"), *DEPLOY.parent.glob("docs/*.md")])

#: Names that begin like a family's: the packages, and the plug-in of vLLM.
OTHERS = {"mx_activate", "mx_demo", "mx_emitter", "mx_exporter", "mx_log", "mx_metrics", "mx_"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DEPLOY.parent)))
def test_guides_name_series_that_exist(page: Path, series: dict[str, set[str]]) -> None:
    text = page.read_text()
    named = set(re.findall(r"(?<![\w./])mx_\w*(?![\w.]*/)", text))
    # Families of somebody's own, which the page has a table for.
    own = set(re.findall(r'^name = "(\w+)"', text, re.M))
    assert {name for name in named if name not in series and name not in BY_NAME} <= OTHERS | own


def queries() -> list[str]:
    pages = [re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S) for page in PAGES]
    spans = [span for page in pages for span in re.findall(r"`([^`]+)`", page)]
    return [
        " ".join(span.split())
        for span in spans
        if not span.startswith("mx-metrics ")
        and re.search(r"\bmx_\w+", span)
        and re.search(r"==|\bunless\b|\bby \(|\{", span)
    ]


def test_queries_of_the_guides_can_be_asked(series: dict[str, set[str]]) -> None:
    found = queries()
    assert len(found) >= 4
    for query in found:
        for selector in selectors(query):
            assert selector.name in series, query
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels <= series[selector.name], query
