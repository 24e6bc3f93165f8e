"""Expressions of rules and dashboards."""

from __future__ import annotations

from typing import Any

import promql_parser


def filled(expression: str, window: str = "1h") -> str:
    """An expression of the dashboard as Grafana sends it with "All" chosen everywhere."""
    for name in ("namespace", "node", "pod", "scheme", "engine", "model"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$window", window)


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
