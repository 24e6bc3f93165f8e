"""What the paragraphs of the alerts say to do can be done."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from tests import support

PAGE = (support.DEPLOY.parent / "docs" / "alerts.md").read_text()


def block(alert: str) -> str:
    """The commands of an alert's paragraph."""
    (_, paragraph) = re.split(rf"^## {alert}$", PAGE, flags=re.MULTILINE)
    found = re.search(r"^```sh\n(.*?)^```$", paragraph.partition("\n## ")[0], re.M | re.S)
    assert found, alert
    return found[1]


def load(number: int, sources: list[str], result: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a load that took its weights from the last of these sources."""
    fields: dict[str, Any] = {"load_id": f"{number:012x}"}
    return [
        (
            "candidate_loads_seen",
            {**fields, "candidates": [{"source_worker_id": "worker-of-many", "load": 1.0}]},
        ),
        *(
            ("source_selected", {**fields, "policy": "p", "source_worker_id": source})
            for source in sources
        ),
        ("nixl_received", {**fields, "result": result}),
    ]


def test_the_source_of_what_arrived_incomplete_is_found(tmp_path: Path) -> None:
    events = [
        *load(1, ["good"], "complete"),
        *load(2, ["bad"], "partial"),
        *load(3, ["good"], "rejected"),
    ]
    for number, more in enumerate((load(4, ["bad"], "empty"), load(5, ["good", "bad"], "partial"))):
        proc = f"{number:012x}"
        support.Lines(proc).segment(tmp_path, 0, events + more)
        (tmp_path / f"events-{proc}-0.jsonl").rename(tmp_path / f"engine-{number}.log")
    commands = block("MxSilentReceiveFailures")
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Of the ten selections, those of the four loads whose receive was short.
    counted = [line.split() for line in done.stdout.splitlines()]
    assert counted == [["4", '"source_worker_id":"bad"'], ["1", '"source_worker_id":"good"']]
