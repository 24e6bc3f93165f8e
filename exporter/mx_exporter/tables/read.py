"""A file of TOML to families beside the built-in ones."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from itertools import pairwise

from mx_log import schema
from mx_log.schema import ANY, LOADS, OPTIONAL_TEXT, TEXT

from ..core.builtin import CATALOG
from ..core.catalog import (
    ABANDONED,
    COUNT,
    DROP,
    HISTOGRAM,
    IN_PROGRESS,
    KEEP,
    LATEST,
    PRESENCE,
    RECORDER_CALLED,
    SUM,
    VALUE,
    WITH_HEADER,
    WITH_POLICY,
    Catalog,
    Family,
    Label,
    Path,
    Value,
)
from ..errors import MxError, UsageError
from .keys import Keys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_FIELD = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*", re.ASCII)

#: Names of what the exporter says of itself begin so.
_OURS = ("mx_exporter_", "process_")

#: What a family's samples are called, beside its name.
_SUFFIXES = {
    "counter": ("_total", "_created"),
    "gauge": (),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
}

#: Text that a line of every event has; a label may be read from it.
_CARRIED = {"scheme": TEXT, "level": TEXT, "load_id": OPTIONAL_TEXT, "proc": TEXT, "rank": ANY}

_LOADS = {"in progress": IN_PROGRESS, "abandoned": ABANDONED}
_OF_LOADS = ("engine", "model", "phase", "scheme")


def catalog_of(path: str | None) -> Catalog:
    """The built-in catalogue with the families of a file, if there is one.

    :raises MxError: it cannot be read.
    :raises UsageError: what is in it is no table of families; the message names file, table, key.
    """
    if path is None:
        return CATALOG
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise MxError(f"{path}: the catalogue cannot be read: {why}") from None
    families = read_families(path, data)
    return extended(path, families)


def extended(path: str, families: list[Family]) -> Catalog:
    """The built-in catalogue with further families.

    :raises UsageError: one has a name that is taken.
    """
    taken: dict[str, str] = {}
    for family in (*CATALOG.families, *families):
        names = {family.name, _bare(family)}
        names |= {_bare(family) + suffix for suffix in _SUFFIXES[family.type]}
        for name in sorted(names):
            if name in taken:
                raise UsageError(
                    f"{path}, family {family.name}, name: {taken[name]} has samples called "
                    f"{name} as well"
                )
        taken.update(dict.fromkeys(names, family.name))
    return Catalog([*CATALOG.events.values(), *_events(families)], [*CATALOG.families, *families])


def read_families(path: str, data: bytes) -> list[Family]:
    """The families of a file.

    :param path: for messages.
    :raises UsageError: as `catalog_of` does.
    """
    try:
        given = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: no TOML: {error}") from None
    top = Keys(path, given)
    families = [_family(keys) for keys in top.tables("family", "family")]
    top.end()
    return families


def _bare(family: Family) -> str:
    """The name of a family in OpenMetrics."""
    return family.name.removesuffix("_total") if family.type == "counter" else family.name


def _events(families: Iterable[Family]) -> list[schema.Event]:
    """The events that are none of the built-in ones, with the fields that are read of them."""
    fields: dict[str, dict[str, None]] = {}
    for family in families:
        paths = [*family.paths, *(path for label in family.labels for path in label.paths)]
        for event in family.events:
            if event not in CATALOG.events:
                of = fields.setdefault(event, {})
                of.update({str(path[0]): None for path in paths if path[0] not in _CARRIED})
    return [
        schema.Event(
            name, "An event of the engine's own.", tuple(_field(field) for field in sorted(of))
        )
        for name, of in fields.items()
    ]


def _field(name: str) -> schema.Field:
    return schema.Field(name, ANY, "", required=False)


# --------------------------------------------------------------------------------------
# A family


def _family(keys: Keys) -> Family:
    name = keys.take("name", str)
    kind = keys.take("type", str)
    if kind not in _SUFFIXES:
        keys.wrong("type", "expected counter, gauge or histogram")
    if not _NAME.fullmatch(name):
        keys.wrong("name", "expected letters, digits, _ and :, no digit first")
    if name.startswith(_OURS):
        keys.wrong("name", "such names are of what the exporter says of itself")
    if (kind == "counter") != name.endswith("_total"):
        keys.wrong("name", "a counter's ends in _total, and no other family's does")
    if name.endswith(("_bucket", "_count", "_sum", "_created")):
        keys.wrong("name", "such an end is of the samples of a histogram")
    help = keys.take("help", str)
    if "\0" in help:
        keys.wrong("help", "a zero byte ends a page")
    recorder = keys.take("recorder", str, "")
    events = (RECORDER_CALLED,) if recorder else _event_names(keys)
    loads = keys.take("loads", str, "")
    if loads and loads not in _LOADS:
        keys.wrong("loads", "expected 'in progress' or 'abandoned'")
    field, paths = _value(keys, events, recorder)
    measure = _measure(keys, kind, loads, events, field, bool(field or paths))
    labels = _labels(keys, events, recorder, measure)
    family = Family(
        name,
        measure,
        help,
        labels,
        events,
        keys.take("since", str, "own"),
        field=field,
        buckets=_buckets(keys) if measure == HISTOGRAM else (),
        zeros=_zeros(keys, labels),
        recorder=recorder,
        paths=paths,
        own=True,
    )
    keys.end()
    return family


def _event_names(keys: Keys) -> tuple[str, ...]:
    events = [keys.take("event", str)] if keys.has("event") else keys.texts("events")
    if not events or "" in events:
        keys.wrong("event", "expected the name of an event, or a recorder")
    for event in events:
        try:
            event.encode()
        except UnicodeEncodeError:
            keys.wrong("event", "no text")
        if "\0" in event:
            keys.wrong("event", "a zero byte is in no name")
    if len(set(events)) < len(events):
        keys.wrong("events", "expected each once")
    if RECORDER_CALLED in events:
        keys.wrong("event", "calls are told apart by their recorder: name that in its place")
    return tuple(events)


def _measure(
    keys: Keys, kind: str, loads: str, events: tuple[str, ...], field: str, valued: bool
) -> str:
    if loads:
        if valued:
            keys.wrong("value", "loads are counted, and have none")
        measure = _LOADS[loads]
        if measure.partition(",")[0] != kind:
            keys.wrong("type", f"expected {measure.partition(',')[0]}")
        tracked = {e for f in CATALOG.families if f.measure == measure for e in f.events}
        if set(events) != tracked:
            keys.wrong("events", f"expected {', '.join(sorted(tracked))}")
        return measure
    if kind == "histogram":
        if not valued:
            keys.wrong("value", "missing")
        return HISTOGRAM
    if kind == "counter":
        return SUM if valued else COUNT
    if any(field and _kind_of(event, field) == LOADS for event in events):
        return LATEST
    return VALUE if valued else PRESENCE


def _value(keys: Keys, events: tuple[str, ...], recorder: str) -> tuple[str, tuple[Path, ...]]:
    """The field, or the paths, of the amount or observation; neither where there is none."""
    if not keys.has("value"):
        return "", ()
    given = keys.take_any("value")
    if recorder:
        if type(given) is not dict:
            keys.wrong("value", "expected { argument = N, keyword = 'name' }, or one of these")
        of = Keys(f"{keys.where}, value", given)
        paths = _of_call(of, "")
        of.end()
        if not paths:
            keys.wrong("value", "expected an argument or a keyword")
        return "", paths
    if type(given) is not str:
        keys.wrong("value", "expected the name of a field")
    return _at(keys, "value", events, given)


def _at(keys: Keys, key: str, events: tuple[str, ...], field: str) -> tuple[str, tuple[Path, ...]]:
    """A field of events: as built-in ones have it, or a path to it."""
    if not _FIELD.fullmatch(field):
        keys.wrong(key, f"{field!r} is no name of a field: expected letters, digits and _")
    known = {event for event in events if event in CATALOG.events}
    for event in sorted(known):
        if _kind_of(event, field) is None:
            fields = [each.name for each in CATALOG.events[event].fields]
            keys.wrong(key, f"{event} has no field {field}; it has {', '.join(fields) or 'none'}")
    if known and field not in _CARRIED:
        return field, ()
    if field in ("timestamp", "event", "seq"):
        keys.wrong(key, f"{field} differs between any two events")
    return "", ((field,),)


def _kind_of(event: str, field: str) -> str | None:
    """How a field of an event is typed; None where there is none, or the event is not ours."""
    if field in _CARRIED:
        return _CARRIED[field]
    of = CATALOG.events.get(event)
    return next((each.kind for each in of.fields if each.name == field), None) if of else None


def _of_call(keys: Keys, keyword: str) -> tuple[Path, ...]:
    """Where a call has an argument: by position, or by name."""
    paths: list[Path] = []
    if keys.has("argument"):
        position = keys.take("argument", int)
        if position < 0:
            keys.wrong("argument", "expected a position, from 0")
        paths.append(("args", position))
    keyword = keys.take("keyword", str, keyword)
    return (*paths, ("kwargs", keyword)) if keyword else tuple(paths)


def _buckets(keys: Keys) -> tuple[float, ...]:
    given = keys.take("buckets", list)
    if not given or not all(type(each) in (int, float) for each in given):
        keys.wrong("buckets", "expected numbers")
    try:
        bounds = tuple(map(float, given))
    except OverflowError:
        bounds = (math.inf,)
    if not all(map(math.isfinite, bounds)):
        keys.wrong("buckets", "expected finite numbers; the last bucket needs no boundary")
    if any(low >= high for low, high in pairwise(bounds)):
        keys.wrong("buckets", "expected ascending numbers")
    return bounds


def _zeros(keys: Keys, labels: tuple[Label, ...]) -> str:
    zeros = keys.take("zeros", str, "")
    given = {"": (), WITH_HEADER: ("scheme",), WITH_POLICY: ("scheme", "policy")}.get(zeros)
    if given is None:
        keys.wrong("zeros", f"expected {WITH_HEADER} or {WITH_POLICY}")
    for label in labels if zeros else ():
        if label.domain is None and label.name not in given and not label.opt_in:
            keys.wrong("zeros", f"the label {label.name} has no values that are known before")
    return zeros


# --------------------------------------------------------------------------------------
# Labels


def _labels(keys: Keys, events: tuple[str, ...], recorder: str, measure: str) -> tuple[Label, ...]:
    labels = tuple(
        _label(each, events, recorder, measure) for each in keys.tables("labels", "label")
    )
    names = [label.name for label in labels]
    if len(set(names)) < len(names):
        keys.wrong("labels", "expected names that differ")
    if measure in _LOADS.values() and tuple(names) != _OF_LOADS:
        keys.wrong("labels", f"expected {', '.join(_OF_LOADS)}")
    return labels


def _label(keys: Keys, events: tuple[str, ...], recorder: str, measure: str) -> Label:
    name = keys.take("name", str)
    if not _LABEL.fullmatch(name):
        keys.wrong("name", "expected letters, digits and _, no digit first, nor __")
    if measure == HISTOGRAM and name == "le":
        keys.wrong("name", "a histogram has its boundaries under le")
    values = _values(keys)
    domain = {value.name for value in values or ()}
    unexpected = keys.take("unexpected", str, KEEP)
    if unexpected != KEEP and unexpected not in domain:
        keys.wrong("unexpected", "expected one of the values")
    if keys.take("drop_unexpected", bool, False):
        if unexpected != KEEP or values is None:
            keys.wrong("drop_unexpected", "expected values, and no other rule about the rest")
        unexpected = DROP
    length = keys.take("max_length", int) if keys.has("max_length") else None
    if length is not None and length < 1:
        keys.wrong("max_length", "expected a number above 0")
    opt_in = keys.take("opt_in", bool, False)
    if opt_in and measure not in (COUNT, LATEST):
        keys.wrong("opt_in", "only a counter of events can have such a label")
    label = Label(
        name,
        keys.take("help", str, ""),
        values,
        unexpected,
        keys.take("missing", str, "").replace("\0", "\ufffd"),
        length,
        opt_in,
        _source(keys, name, events, recorder, measure),
    )
    keys.end()
    return label


def _source(
    keys: Keys, name: str, events: tuple[str, ...], recorder: str, measure: str
) -> tuple[Path, ...]:
    """Where a label's value is; nothing where it is as the built-in ones are."""
    if recorder:
        if keys.has("field"):
            field = keys.take("field", str)
            if field not in _CARRIED:
                keys.wrong("field", f"a call has {', '.join(_CARRIED)}, and its arguments")
            return ((field,),)
        if name == "scheme" and not keys.has("argument") and not keys.has("keyword"):
            return ()
        return _of_call(keys, name)
    field = keys.take("field", str, name)
    if measure in _LOADS.values() or (measure == LATEST and field == "source_worker_id"):
        return ()
    kinds = {_kind_of(event, field) for event in events}
    if field == name and kinds <= {TEXT, OPTIONAL_TEXT}:
        return ()
    if field not in _CARRIED:
        _at(keys, "field", events, field)
    return ((field,),)


def _values(keys: Keys) -> tuple[Value, ...] | None:
    if not keys.has("values"):
        return None
    given = keys.take_any("values")
    meanings = dict.fromkeys(given, "") if _are_texts(given) else given
    if type(meanings) is not dict or not meanings or not _are_texts(list(meanings.values())):
        keys.wrong("values", "expected texts, or a table of texts with what they mean")
    if any("\0" in value for value in meanings):
        keys.wrong("values", "a zero byte ends a page")
    return tuple(Value(value, doc) for value, doc in meanings.items())


def _are_texts(given: object) -> bool:
    return type(given) is list and all(type(each) is str for each in given)
