"""Selectors of series, as PromQL writes them: ``mx_load_seconds{outcome="error",le="5"}``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..core.catalog import COUNT, HISTOGRAM, SUM, Catalog, Family
from ..errors import UsageError

_NAME = re.compile(r"\s*([a-zA-Z_:][\w:]*)\s*(\{.*\}\s*)?", re.DOTALL)
_CONDITION = re.compile(
    r"""\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*"""
)

#: Endings of the samples of a histogram, each of which stands for all its observations.
_ENDINGS = ("_bucket", "_count", "_sum")

#: Measures of which a value is made up of events, one by one.
_ADDED = (COUNT, SUM, HISTOGRAM)


class Selector(NamedTuple):
    """Series of one family, and observations of one bucket."""

    family: Family
    conditions: tuple[Callable[[Mapping[str, str]], bool], ...]
    #: Observations up to this bound; None: all.
    bound: float | None = None
    #: A label that is shown only when asked for is named.
    opt_in: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The labels of its series."""
        return self.family.label_names(opt_in=self.opt_in)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is meant."""
        return all(condition(labels) for condition in self.conditions)


def looks_like_one(text: str) -> bool:
    """Whether a text is a selector, rather than the id of a load."""
    return "{" in text or text.lstrip().startswith("mx_")


def parse_selector(catalog: Catalog, text: str) -> Selector:
    """Read a selector.

    :raises UsageError: it is none, or names no family or label.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise UsageError(f'{text!r} is no selector; write it as mx_load_seconds{{outcome="error"}}')
    family = _family(catalog, match[1])
    known = family.label_names(opt_in=True)
    conditions, bound, opt_in = [], None, False
    for label, operator, value in _conditions(text, (match[2] or "{}").strip()[1:-1]):
        if label == "le" and family.measure == HISTOGRAM and operator == "=":
            bound = _bound(family, value)
        elif label in known:
            conditions.append(_condition(label, operator, value, text))
            opt_in = opt_in or label not in family.label_names()
        else:
            raise UsageError(f"{family.name} has no label {label}; it has {', '.join(known)}")
    return Selector(family, tuple(conditions), bound, opt_in)


def _family(catalog: Catalog, name: str) -> Family:
    names = [name, *(name.removesuffix(ending) for ending in _ENDINGS)]
    for each in names:
        family = catalog.by_name.get(each)
        if family is not None:
            if family.measure not in _ADDED:
                raise UsageError(
                    f"{each} is a {family.type}: its value is no sum of events; ask for a counter "
                    "or a histogram"
                )
            return family
    raise UsageError(f"there is no family {name}; docs/families.md lists them")


def _conditions(text: str, inner: str) -> list[tuple[str, str, str]]:
    found = []
    at = 0
    while at < len(inner.rstrip()):
        match = _CONDITION.match(inner, at)
        if match is None:
            raise UsageError(f'{text!r}: expected label="value" at {inner[at:].strip()!r}')
        found.append((match[1], match[2], _unquoted(match[3])))
        at = match.end()
        if at < len(inner):
            if inner[at] != ",":
                raise UsageError(f"{text!r}: expected a comma at {inner[at:].strip()!r}")
            at += 1
    return found


def _unquoted(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]
    inner = text[1:-1]
    if text[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inner}"'))
    except ValueError:
        return inner


def _condition(
    label: str, operator: str, value: str, text: str
) -> Callable[[Mapping[str, str]], bool]:
    if operator in ("=", "!="):
        return lambda labels: (labels[label] == value) == (operator == "=")
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise UsageError(f"{text!r}: {value!r} is no regular expression: {error}") from None
    return lambda labels: bool(pattern.fullmatch(labels[label])) == (operator == "=~")


def _bound(family: Family, value: str) -> float:
    try:
        bound = float(value)
    except ValueError:
        bound = float("nan")
    if bound not in (*family.buckets, float("inf")):
        bounds = ", ".join(f"{each:g}" for each in family.buckets)
        raise UsageError(f'{family.name} has no bucket le="{value}"; it has {bounds} and +Inf')
    return bound
