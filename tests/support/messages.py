"""The texts of errors, out of the source: what of them is always the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Errors that a command line prints, and those that it prints behind the name of an option or file.
RAISED = frozenset({"MxError", "UsageError", "BindError"})
NAMED = {
    "exporter/mx_exporter/option_values.py": "ValueError",
    "exporter/mx_exporter/config.py": "ValueError",
    "exporter/mx_exporter/http/web_config.py": "ValueError",
}

#: Functions that such a message is a call of (`error` is a logger's), or that return a part of one.
CALLED = frozenset({"_fail", "error"})
RETURNED = frozenset(
    {"_archive_problem", "objection", "cause_of", "cannot_write", "become", "_cause", "_by_proxy"}
)

#: A part that is shorter says nothing by which it could be found.
_LEAST = 8


class Message(NamedTuple):
    """A text as it stands in the source, in the parts that are always the same."""

    place: str
    parts: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The parts by which it may be found; none where all depends on the case."""
        return [part for part in self.parts if len(part) >= _LEAST]


def messages(root: Path) -> Iterator[Message]:
    """Each text of an error of the command lines below ``root``."""
    for folder in ("exporter/mx_exporter", "emitter/mx_emitter", "emitter/mx_activate"):
        for path in sorted((root / folder).rglob("*.py")):
            place = str(path.relative_to(root))
            for node, line in _texts(ast.parse(path.read_text()), place):
                yield Message(f"{place} line {line}", tuple(_parts(node)))


def _texts(tree: ast.AST, place: str) -> Iterator[tuple[ast.expr, int]]:
    raised = RAISED | {NAMED.get(place, "")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            if getattr(node.exc.func, "id", "") in raised and node.exc.args:
                yield node.exc.args[0], node.lineno
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            logged = name == "error" and getattr(node.func, "value", None) is not None
            if logged or (name in CALLED and place.endswith("__main__.py")):
                yield node.args[0], node.lineno
        elif isinstance(node, ast.FunctionDef) and node.name in RETURNED:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    for text in _strings(inner.value):
                        yield text, inner.lineno


def _strings(node: ast.expr) -> Iterator[ast.expr]:
    """The texts of an expression, each whole."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _strings(child)


def _parts(node: ast.expr) -> Iterator[str]:
    for text in _strings(node):
        values = text.values if isinstance(text, ast.JoinedStr) else [text]
        for value in values:
            if isinstance(value, ast.Constant):
                for sentence in re.split(r"[;:,]\s|\.\s|\s\(|%[a-z]", str(value.value)):
                    if trimmed := plain(sentence).strip(" .:;,()'\""):
                        yield trimmed


def plain(text: str) -> str:
    """A text without the marks of Markdown, on one line."""
    return " ".join(text.replace("`", "").replace("\\|", "|").split())
