"""Mutants of a module: its source with one small fault each.

The operators are mutmut's where it has one. Its own runner is not used: it leaves out every
property, and it takes away no statement and no operand, which are the faults that tests miss most.

Left out are faults that no test ought to notice, or that any run does: strings (messages and
docstrings; labels and names of families are held by the golden pages), annotations, imports,
decorators, ``__slots__``, assertions, and ``None`` in place of a value that is then called.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst
from libcst import matchers
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

_MUTMUT = (
    (cst.BaseNumber, mutators.operator_number),
    (cst.Name, mutators.operator_name),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.Call, mutators.operator_symmetric_string_methods_swap),
    (cst.Call, mutators.operator_unsymmetrical_string_methods_swap),
    (cst.Lambda, mutators.operator_lambda),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.IfExp, mutators.operator_if_exp),
)

#: Not entered. What a message says is no behaviour of the program.
_SKIPPED = (
    *(cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.Assert),
    *(cst.SimpleString, cst.FormattedString, cst.ConcatenatedString),
)

#: Neither is what goes to the exporter's own log.
_LOGGED = matchers.Expr(matchers.Call(matchers.Attribute(matchers.Name("_log"))))


@dataclass(frozen=True)
class Mutant:
    """One fault: ``name`` says where it is and what it changes, the same for each run."""

    name: str
    source: str
    #: First and last line of the statement that is changed.
    lines: tuple[int, int]


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module's source, in the order of its lines."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    module, positions = wrapper.module, wrapper.resolve(PositionProvider)
    names: Counter[str] = Counter()
    for place, statement, node, instead in _changes(module, "", module):
        code = module.deep_replace(node, instead).code
        if code == source:
            continue
        name = f"`{place or 'module'}`: {_difference(source, code)}"
        names[name] += 1
        if names[name] > 1:
            name += f" ({names[name]})"
        first, last = positions[statement].start.line, positions[statement].end.line
        if isinstance(statement, cst.BaseCompoundStatement):  # its header
            last = positions[statement.body].start.line
        yield Mutant(name, code, (first, last))


def _difference(source: str, code: str) -> str:
    lines = list(difflib.unified_diff(source.splitlines(), code.splitlines(), n=0))[3:]
    old = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
    new = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
    return f"`{old}` -> `{new}`"


#: Where it is (a function), the statement there, the node that is changed, what it becomes.
_Change = tuple[str, cst.CSTNode, cst.CSTNode, cst.CSTNode]


def _changes(node: cst.CSTNode, place: str, statement: cst.CSTNode) -> Iterator[_Change]:
    if (
        isinstance(node, _SKIPPED)
        or _is_declaration(node, place)
        or matchers.matches(node, _LOGGED)
    ):
        return
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        place = f"{place}.{node.name.value}".lstrip(".")
    if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
        statement = node
    for instead in _instead(node):
        yield place, statement, node, instead
    if not isinstance(node, cst.Raise):
        for child in node.children:
            yield from _changes(child, place, statement)


def _is_declaration(node: cst.CSTNode, place: str) -> bool:
    """Whether it is ``__slots__``, a type variable, or a name for a type."""
    if not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
        return False
    name = node.targets[0].target.value
    return name == "__slots__" or (
        not place and name[0].isupper() and (len(name) == 1 or not name.isupper())
    )


def _instead(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for kind, operator in _MUTMUT:
        if isinstance(node, kind):
            yield from operator(node)
    if isinstance(node, cst.BooleanOperation):
        yield node.left
        yield node.right
    elif isinstance(node, cst.If):
        for always in ("True", "False"):
            yield node.with_changes(
                test=cst.Name(always), whitespace_before_test=cst.SimpleWhitespace(" ")
            )
    elif isinstance(node, cst.Call):
        for at, arg in enumerate(node.args):
            if arg.keyword:
                yield node.with_changes(args=_without(node.args, at))
    elif _is_removable(node):
        yield cst.Pass()


def _without(args: Iterable[cst.Arg], at: int) -> list[cst.Arg]:
    left = [arg for where, arg in enumerate(args) if where != at]
    if left and at == len(left):
        left[-1] = left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return left


def _is_removable(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Expr):
        return not isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)
    if isinstance(node, cst.Assign):
        return not isinstance(node.targets[0].target, cst.Name)
    return isinstance(
        node, cst.AugAssign | cst.Raise | cst.Return | cst.Continue | cst.Break | cst.Del
    )
