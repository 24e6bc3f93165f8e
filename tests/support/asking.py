"""What tests of rules and dashboards share: a served page, and expressions."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import promql_parser

from tests import support

DEPLOY = support.ROOT / "deploy"


def filled(expression: str, window: str = "1h") -> str:
    """An expression of the dashboard as Grafana sends it with "All" chosen everywhere."""
    for name in ("namespace", "scheme", "engine", "model"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$window", window)


class Served:
    """A real exporter of a directory."""

    def __init__(self, spawner: support.Spawner, log: Path, *options: str | Path) -> None:
        self.address = f"127.0.0.1:{support.free_port()}"
        self.log = log
        self._process = spawner.python(
            "-m", "mx_exporter", "serve", "--listen", self.address, "--dir", log, *options
        )
        support.wait_until(self.page)

    def page(self) -> str:
        """What it serves; nothing before it is ready."""
        assert self._process.poll() is None, self._process.error_output
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """The vector selectors of an expression, which has to parse."""
    found = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        for name in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
            child = getattr(node, name, None)
            for one in child if isinstance(child, list) else [child]:
                if one is not None and not isinstance(one, str | float | int):
                    visit(one)

    visit(promql_parser.parse(expression))
    assert found, f"no selector found in {expression}"
    return found
