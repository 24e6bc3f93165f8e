"""DuckDB computes what a replay does: replaying_duckdb.py DIRECTORY THREADS

One pass over the files with the columns given, so that nothing is sniffed and nothing else is
kept, and one grouping: by event, labels and the bucket among the boundaries of all families.
What is left has one row a series and bucket. Prints the samples as JSON.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from collections import defaultdict

import duckdb

from mx_exporter.core.builtin import FAMILIES
from mx_exporter.core.catalog import COUNT, HISTOGRAM, LATEST, PRESENCE, SUM, Family

#: The client's families, and the labels that a replay shows without being asked for more.
CLIENTS = [family for family in FAMILIES if family.since != "ours"]
LABELS = sorted({name for family in CLIENTS for name in family.label_names()})
EVENTS = sorted({event for family in CLIENTS for event in family.events})
BOUNDS = sorted({bound for family in CLIENTS for bound in family.buckets})

COLUMNS = {
    "event": "VARCHAR",
    "timestamp": "VARCHAR",
    **dict.fromkeys(LABELS, "VARCHAR"),
    "seconds": "DOUBLE",
    "count": "DOUBLE",
    "bytes": "DOUBLE",
    "loads": "STRUCT(load DOUBLE)[]",
}


def query(directory: str) -> str:
    """The one statement."""
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
    bucket = " ".join(f"WHEN v <= {bound!r} THEN {at}" for at, bound in enumerate(BOUNDS))
    labels = ", ".join(f'"{name}"' for name in LABELS)
    events = ", ".join(f"'{event}'" for event in EVENTS)
    return f"""
        SELECT event, {labels}, CASE {bucket} ELSE {len(BOUNDS)} END AS bucket,
            count(*), sum(v), arg_max(load, timestamp)
        FROM (
            SELECT event, {labels}, timestamp,
                coalesce(seconds, "count", "bytes") AS v, loads[1].load AS load
            FROM read_json('{directory}/events-*.jsonl', format = 'newline_delimited',
                columns = {{{columns}}})
            WHERE event IN ({events})
        )
        GROUP BY ALL
    """


def main(directory: str, threads: str) -> None:
    connection = duckdb.connect(config={"threads": threads})
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
    by_event: dict[str, list[Family]] = defaultdict(list)
    for family in CLIENTS:
        for event in family.events:
            by_event[event].append(family)
    for event, *labels, bucket, count, total, load in connection.sql(query(directory)).fetchall():
        given = dict(zip(LABELS, labels, strict=True))
        for family in by_event[event]:
            key = tuple(sorted((name, given[name]) for name in family.label_names()))
            if family.measure == HISTOGRAM:
                bound = BOUNDS[bucket] if bucket < len(BOUNDS) else float("inf")
                bounds = (*family.buckets, float("inf"))
                for at, upper in enumerate(bounds):
                    le = (*key, ("le", repr(upper)))
                    found[f"{family.name}_bucket", tuple(sorted(le))] += (
                        count if at >= bisect_left(bounds, bound) else 0
                    )
                found[f"{family.name}_count", key] += count
                found[f"{family.name}_sum", key] += total
            elif family.measure in (COUNT, SUM):
                found[family.name, key] += count if family.measure == COUNT else total
            elif family.measure in (PRESENCE, LATEST):
                found[family.name, key] = 1.0 if family.measure == PRESENCE else load
    json.dump([[name, labels, value] for (name, labels), value in found.items()], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
