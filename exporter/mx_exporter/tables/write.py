"""Families as TOML, in the terms that a file of families is read by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import orjson

from ..core.catalog import ABANDONED, DROP, IN_PROGRESS, KEEP, Family, Label, Path

_LOADS = {IN_PROGRESS: "in progress", ABANDONED: "abandoned"}


def toml(families: Iterable[Family]) -> str:
    """Families as a file."""
    return "\n".join("".join(f"{line}\n" for line in _family(family)) for family in families)


def _family(family: Family) -> Iterator[str]:
    yield "[[family]]"
    yield f"name = {_text(family.name)}"
    yield f"type = {_text(family.type)}"
    yield f"help = {_text(family.help)}"
    if family.recorder:
        yield f"recorder = {_text(family.recorder)}"
    elif len(family.events) == 1:
        yield f"event = {_text(family.events[0])}"
    else:
        yield f"events = [{', '.join(map(_text, family.events))}]"
    if family.measure in _LOADS:
        yield f"loads = {_text(_LOADS[family.measure])}"
    if family.field:
        yield f"value = {_text(family.field)}"
    elif family.recorder and family.paths:
        yield f"value = {{ {', '.join(_call(family.paths))} }}"
    elif family.paths:
        yield f"value = {_text(str(family.paths[0][0]))}"
    if family.buckets:
        yield f"buckets = [{', '.join(map(repr, family.buckets))}]"
    if family.zeros:
        yield f"zeros = {_text(family.zeros)}"
    yield f"since = {_text(family.since)}"
    for label in family.labels:
        yield ""
        yield from _label(label)


def _label(label: Label) -> Iterator[str]:
    yield "[[family.labels]]"
    yield f"name = {_text(label.name)}"
    if label.doc:
        yield f"help = {_text(label.doc)}"
    if label.paths and label.paths[-1][0] in ("args", "kwargs"):
        yield from _call(label.paths)
    elif label.paths:
        yield f"field = {_text(str(label.paths[0][0]))}"
    if label.unexpected == DROP:
        yield "drop_unexpected = true"
    elif label.unexpected != KEEP:
        yield f"unexpected = {_text(label.unexpected)}"
    if label.null:
        yield f"missing = {_text(label.null)}"
    if label.max_length is not None:
        yield f"max_length = {label.max_length}"
    if label.opt_in:
        yield "opt_in = true"
    if label.values is not None:
        meanings: Mapping[str, str] = {value.name: value.doc for value in label.values}
        yield (
            "values = { "
            + ", ".join(f"{_text(k)} = {_text(v)}" for k, v in meanings.items())
            + (" }")
        )


def _call(paths: tuple[Path, ...]) -> Iterator[str]:
    for place, key in paths:
        yield f"argument = {key}" if place == "args" else f"keyword = {_text(str(key))}"


def _text(value: str) -> str:
    """A text as a basic string of TOML, which is written as JSON's are."""
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
