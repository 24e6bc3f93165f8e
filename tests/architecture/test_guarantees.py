"""Each promise of the documentation names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests import support

PAGE = (support.ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE)))


def test_each_promise_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise |", "| --- |"))]
    assert len(promises) > 20
    for row in promises:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row.split(" | ")[1]), row


@pytest.mark.parametrize("name", NAMED, ids=lambda name: name.partition("::")[2])
def test_what_is_named_exists(name: str) -> None:
    path, _, test = name.partition("::")
    tree = ast.parse((support.ROOT / path).read_text())
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
