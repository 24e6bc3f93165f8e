"""Golden cases: a folder of segments and the page that operators will scrape.

Adding a case is adding a folder. With ``WRITE_GOLDEN=1`` the expected pages are written again;
read the difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)

from tests import support
from tests.support.folding import classic_page, follow, page_of
from tests.support.pages import check_metrics

GOLDEN = support.ROOT / "tests" / "golden"
CASES = sorted(path for path in GOLDEN.iterdir() if path.is_dir())


def pages(case: Path) -> dict[str, bytes]:
    state = follow(case).fold.state
    return {
        "expected.prom": classic_page(state),
        "expected.om": page_of(state),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case, promtool):
    for name, text in pages(case).items():
        expected = case / name
        if os.environ.get("WRITE_GOLDEN"):
            expected.write_bytes(text)
        assert text.decode() == expected.read_text("utf-8")
    check_metrics(promtool, (case / "expected.prom").read_bytes())
    assert list(openmetrics_families((case / "expected.om").read_text("utf-8")))


def test_there_are_cases():
    assert len(CASES) >= 3
