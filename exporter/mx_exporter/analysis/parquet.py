"""Events as tables of Parquet, with types by the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from mx_log.schema import ANY, INTEGER, LOADS, NUMBER, OPTIONAL_TEXT, TEXT, Event

from ..core.catalog import Catalog
from ..core.reducers import refusal

#: Events of a row group, and so about how many are in memory at a time.
_GROUP = 20_000

#: Column of what the schema does not know, or of values that do not fit their columns, as JSON.
MORE = "more"

#: Table of the events that the schema does not know.
_OTHERS = "other_events"

_STAMP = "timestamp"

_TYPES: dict[str, pa.DataType] = {
    TEXT: pa.string(),
    OPTIONAL_TEXT: pa.string(),
    INTEGER: pa.int64(),
    NUMBER: pa.float64(),
    LOADS: pa.list_(pa.struct([("source_worker_id", pa.string()), ("load", pa.float64())])),
    # Text as it is, all else as JSON.
    ANY: pa.string(),
    _STAMP: pa.timestamp("us", tz="UTC"),
}

#: Columns of every table.
_EVERY = {
    "event": TEXT,
    "timestamp": _STAMP,
    "level": TEXT,
    "proc": TEXT,
    "seq": INTEGER,
    "rank": INTEGER,
    "scheme": TEXT,
    "load_id": TEXT,
}


def write_parquet(catalog: Catalog, lines: Iterable[bytes], path: str) -> None:
    """Write one table of all events.

    :param lines: each an event.
    """
    kinds = dict(_EVERY)
    for event in catalog.events.values():
        kinds.update(_kinds(event))
    with _Table(path, kinds) as table:
        left = iter(lines)
        while group := list(islice(left, _GROUP)):
            table.write([orjson.loads(line) for line in group])


def write_tables(catalog: Catalog, lines: Iterable[bytes], folder: Path) -> None:
    """Write a table for each event that there is, ``<event>.parquet``.

    :param folder: where to; it is there.
    """
    tables: dict[str, _Table] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    try:
        for number, line in enumerate(lines, 1):
            record = orjson.loads(line)
            name = record["event"] if record["event"] in catalog.events else _OTHERS
            rows.setdefault(name, []).append(record)
            if number % _GROUP == 0:
                _flush(catalog, folder, tables, rows)
        _flush(catalog, folder, tables, rows)
    finally:
        for table in tables.values():
            table.close()


def _flush(
    catalog: Catalog,
    folder: Path,
    tables: dict[str, _Table],
    rows: dict[str, list[dict[str, Any]]],
) -> None:
    for name, records in rows.items():
        if name not in tables:
            event = catalog.events.get(name)
            own = {} if event is None else _kinds(event)
            tables[name] = _Table(str(folder / f"{name}.parquet"), {**_EVERY, **own})
        tables[name].write(records)
    rows.clear()


def _kinds(event: Event) -> dict[str, str]:
    return {field.name: field.kind for field in event.fields}


class _Table:
    """One file, with a column a field and `MORE`."""

    def __init__(self, path: str, kinds: dict[str, str]) -> None:
        self._kinds = kinds
        columns = [(name, _TYPES[kind]) for name, kind in kinds.items()]
        self._schema = pa.schema([*columns, (MORE, pa.string())])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the file's end."""
        self._writer.close()

    def write(self, records: list[dict[str, Any]]) -> None:
        """Write events as a row group."""
        columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        for record in records:
            more = {key: value for key, value in record.items() if key not in self._kinds}
            for name, kind in self._kinds.items():
                value = record.get(name)
                fitting = None if value is None else _fitting(kind, value)
                columns[name].append(fitting)
                if fitting is None and value is not None:
                    more[name] = value
            columns[MORE].append(orjson.dumps(more).decode() if more else None)
        arrays = [
            pa.array(columns[name], type=self._schema.field(name).type)
            for name in self._schema.names
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))


def _fitting(kind: str, value: Any) -> Any:
    """A value as its column takes it; None when it does not."""
    if kind in (TEXT, OPTIONAL_TEXT):
        return value if type(value) is str else None
    if kind == INTEGER:
        return value if type(value) is int and -(2**63) <= value < 2**63 else None
    if kind == NUMBER:
        return float(value) if refusal(value) is None else None
    if kind == _STAMP:
        return _moment(value)
    if kind == LOADS:
        return list(_candidates(value))
    return value if type(value) is str else orjson.dumps(value).decode()


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    except ValueError:  # the 31st of a month that has 30 days
        return None


def _candidates(value: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in value:
        load: Any = each.get("load")
        fits = load is not None and refusal(load) is None
        yield {"source_worker_id": each["source_worker_id"], "load": float(load) if fits else None}
