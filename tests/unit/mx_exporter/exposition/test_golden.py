"""Golden cases: a folder of segments and the page that operators will scrape.

Adding a case is adding a folder. ``make golden`` writes the expected pages again; read the
difference before it is committed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.follower import Follower
from mx_exporter.exposition.fold_metrics import state_families
from mx_exporter.exposition.text import families, render
from tests import support

GOLDEN = support.ROOT / "tests" / "golden"
CASES = sorted(path for path in GOLDEN.iterdir() if path.is_dir())


def pages(case: Path) -> dict[str, bytes]:
    follower = Follower(str(case), Fold(CATALOG))
    follower.drain()
    state = follower.fold.state
    return {
        "expected.prom": render([*families(state), *state_families(state)]),
        "expected.om": render(
            families(state, openmetrics=True, source_id_label=True), openmetrics=True
        ),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case, promtool):
    for name, text in pages(case).items():
        expected = case / name
        if os.environ.get("WRITE_GOLDEN"):
            expected.write_bytes(text)
        assert text.decode() == expected.read_text("utf-8")
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=(case / "expected.prom").read_bytes(),
        capture_output=True,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert list(openmetrics_families((case / "expected.om").read_text("utf-8")))


def test_there_are_cases():
    assert len(CASES) >= 3
