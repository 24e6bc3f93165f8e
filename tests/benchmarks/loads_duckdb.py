"""DuckDB computes the loads of a log, by SQL that knows nothing of the timeline: loads_duckdb.py
DIRECTORY THREADS

Prints an object of JSON a load, with the keys of `mx-metrics loads --json` but ``why``. An attempt
is what lies up to a ``source_attempted``; so two that overlap are not told apart, and of a load
some of whose events are missing the attempts are not right. Processes are taken to be gone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

COLUMNS = {
    "event": "VARCHAR", "timestamp": "VARCHAR", "proc": "VARCHAR", "seq": "BIGINT",
    "rank": "BIGINT", "scheme": "VARCHAR", "load_id": "VARCHAR", "timed": "BOOLEAN",
    "engine": "VARCHAR", "model": "VARCHAR", "model_role": "VARCHAR", "phase": "VARCHAR",
    "outcome": "VARCHAR", "seconds": "DOUBLE", "error": "VARCHAR", "error_type": "VARCHAR",
    "policy": "VARCHAR", "result": "VARCHAR", "source_worker_id": "VARCHAR",
    "stage": "VARCHAR", "count": "DOUBLE", "artifact": "VARCHAR", "archive": "VARCHAR",
    "step": "VARCHAR", "bytes": "DOUBLE",
    "loads": "STRUCT(source_worker_id VARCHAR, load DOUBLE)[]",
    "pod_name": "VARCHAR", "pod_namespace": "VARCHAR", "node_name": "VARCHAR",
    "version": "VARCHAR",
}  # fmt: skip

_LINES = """
CREATE TABLE lines AS
SELECT * FROM read_json('{directory}/events-*.jsonl', format = 'newline_delimited',
    ignore_errors = true, columns = {{{columns}}})
QUALIFY row_number() OVER (PARTITION BY proc, seq) = 1
"""

#: Within a load, positions are seconds after its first event.
_LOADS = """
WITH headers AS (
    SELECT proc, arg_min(pod_name, timestamp) AS pod,
        arg_min(pod_namespace, timestamp) AS namespace,
        arg_min(node_name, timestamp) AS node, arg_min(version, timestamp) AS version
    FROM lines WHERE event = 'process_started' GROUP BY proc
),
numbers AS (SELECT proc, max(seq) AS newest FROM lines GROUP BY proc),
bounds AS (
    SELECT proc, load_id, min(seq) AS first, max(seq) AS last,
        min(seq) FILTER (event = 'load_started') AS starts,
        min(seq) FILTER (event = 'load_finished') AS ends
    FROM lines WHERE load_id IS NOT NULL AND NOT (event = 'load_finished' AND timed IS false)
    GROUP BY proc, load_id
),
known AS (
    SELECT l.proc, l.load_id, b.ends IS NOT NULL AS done, min(l.seq) AS first, max(l.seq) AS last,
        any_value(rank) AS rank, any_value(scheme) AS scheme,
        coalesce(arg_min(engine, seq) FILTER (event LIKE 'load_%'), '') AS engine,
        arg_min(model, seq) FILTER (event LIKE 'load_%') AS model,
        arg_min(model_role, seq) FILTER (event LIKE 'load_%') AS role,
        arg_min(timestamp, seq) AS began, arg_max(timestamp, seq) AS newest,
        any_value(timestamp) FILTER (seq = b.ends) AS ended,
        any_value(seconds) FILTER (seq = b.ends) AS seconds,
        any_value(outcome) FILTER (seq = b.ends) AS outcome,
        any_value(error) FILTER (seq = b.ends) AS error,
        any_value(error_type) FILTER (seq = b.ends) AS error_type,
        count(*) FILTER (event LIKE 'source_attempt%' OR event = 'source_selected') > 0 AS tried
    FROM lines AS l JOIN bounds AS b USING (proc, load_id)
    WHERE l.seq BETWEEN coalesce(b.starts, b.first) AND coalesce(b.ends, b.last)
    GROUP BY l.proc, l.load_id, b.ends
),
placed AS (
    SELECT l.*, k.done,
        (epoch_us(l.timestamp::TIMESTAMP) - epoch_us(k.began::TIMESTAMP)) / 1e6 AS place,
        coalesce(k.seconds,
            (epoch_us(k.newest::TIMESTAMP) - epoch_us(k.began::TIMESTAMP)) / 1e6) AS elapsed,
        count(*) FILTER (l.event = 'source_attempted') OVER (
            PARTITION BY l.proc, l.load_id ORDER BY l.seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS attempt
    FROM lines AS l JOIN known AS k USING (proc, load_id)
    WHERE l.seq BETWEEN k.first AND k.last
),
spans AS (
    SELECT proc, load_id, 'load' AS what, '' AS within, phase AS name, sum(seconds) AS seconds,
        count(*) FILTER (event = 'load_phase_started')
            > count(*) FILTER (event = 'load_phase_finished') AS open,
        min(place - if(event = 'load_phase_started', 0, seconds)) AS place
    FROM placed WHERE event IN ('load_phase_started', 'load_phase_finished')
    GROUP BY ALL
    UNION ALL
    SELECT proc, load_id, 'attempt', attempt::VARCHAR, phase, sum(seconds),
        count(*) FILTER (event = 'source_attempt_phase_started')
            > count(*) FILTER (event = 'source_attempt_phase_finished'),
        min(place)
    FROM placed WHERE event IN ('source_attempt_phase_started', 'source_attempt_phase_finished')
    GROUP BY ALL
    UNION ALL
    SELECT proc, load_id, 'artifact', artifact || '/' || archive, step, sum(seconds),
        count(*) FILTER (event = 'artifact_install_step_started')
            > count(*) FILTER (event = 'artifact_install_step_finished'),
        min(place)
    FROM placed WHERE event IN ('artifact_install_step_started', 'artifact_install_step_finished')
    GROUP BY ALL
),
named AS (
    SELECT proc, load_id, what, within,
        map_from_entries(list((name, if(open, NULL, seconds)))) AS phases
    FROM spans GROUP BY ALL
),
attempts AS (
    SELECT proc, load_id, attempt::VARCHAR AS within,
        any_value(source_worker_id) FILTER (event = 'source_selected') AS peer,
        any_value(result) FILTER (event = 'source_attempted') AS result,
        min(place) AS place,
        if(done OR bool_or(event = 'source_attempted'), max(place) - min(place), NULL) AS seconds,
        arg_max(error, seq) FILTER (event = 'source_attempt_phase_finished'
            AND (outcome <> 'ok' OR error_type IS NOT NULL)) AS error,
        arg_max(error_type, seq) FILTER (event = 'source_attempt_phase_finished'
            AND (outcome <> 'ok' OR error_type IS NOT NULL)) AS error_type
    FROM placed
    WHERE event IN ('source_attempt_phase_started', 'source_attempt_phase_finished',
        'source_selected', 'transfer_finished', 'source_attempted')
    GROUP BY proc, load_id, done, attempt
),
attempted AS (
    SELECT proc, load_id, list({{peer: peer, result: result, seconds: a.seconds,
        phases: coalesce(phases, MAP {{}}), error: error, error_type: error_type}} ORDER BY place)
        AS attempts
    FROM attempts AS a LEFT JOIN
        (SELECT * FROM named WHERE what = 'attempt') USING (proc, load_id, within)
    GROUP BY ALL
),
listed AS (
    SELECT proc, load_id,
        any_value(policy) FILTER (event = 'sources_listed') AS policy,
        any_value(result) FILTER (event = 'sources_listed') AS result,
        map_from_entries(coalesce(list((stage, "count"))
            FILTER (event = 'candidates_counted'), [])) AS counts,
        any_value(seconds) FILTER (event = 'sources_ordered') AS seconds,
        map_from_entries(coalesce(any_value(list_transform(loads,
            lambda each: (each.source_worker_id, each.load)))
            FILTER (event = 'candidate_loads_seen'), [])) AS loads
    FROM placed
    WHERE event IN ('sources_listed', 'candidates_counted', 'sources_ordered',
        'candidate_loads_seen')
    GROUP BY proc, load_id
),
sizes AS (
    SELECT proc, load_id, artifact, archive, artifact || '/' || archive AS within,
        any_value(bytes) FILTER (event = 'artifact_extracted') AS bytes, min(seq) AS seq
    FROM placed WHERE artifact IS NOT NULL GROUP BY ALL
),
installed AS (
    SELECT proc, load_id, list({{artifact: artifact, archive: archive,
        steps: coalesce(phases, MAP {{}}), bytes: bytes}} ORDER BY seq) AS artifacts
    FROM sizes LEFT JOIN (SELECT * FROM named WHERE what = 'artifact')
        USING (proc, load_id, within)
    GROUP BY ALL
),
covered AS (
    SELECT proc, load_id, place, if(open, k.elapsed, place + seconds) AS until, 1 AS one
    FROM spans JOIN (SELECT DISTINCT proc, load_id, elapsed FROM placed) AS k USING (proc, load_id)
    WHERE what = 'load' AND name <> 'chain'
    UNION ALL
    SELECT a.proc, a.load_id, a.place, coalesce(a.place + a.seconds, k.elapsed), 1
    FROM attempts AS a
    JOIN (SELECT DISTINCT proc, load_id, elapsed FROM placed) AS k USING (proc, load_id)
    UNION ALL
    SELECT proc, load_id, place, 1e18, 1
    FROM spans JOIN known USING (proc, load_id)
    WHERE what = 'load' AND name = 'chain' AND open AND NOT tried
    UNION ALL
    SELECT DISTINCT proc, load_id, elapsed, elapsed, 1 FROM placed
),
swept AS (
    SELECT proc, load_id, place AS until, coalesce(max(until) OVER (PARTITION BY proc, load_id
        ORDER BY place, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS place
    FROM covered
),
gaps AS (
    SELECT proc, load_id, list({{"at": place, seconds: until - place}} ORDER BY place) AS gaps
    FROM swept WHERE until - place > 0.1 GROUP BY ALL
)
SELECT to_json({{
    load_id: k.load_id, proc: k.proc, pod: pod, namespace: namespace, node: node, rank: rank,
    engine: nullif(engine, ''), model: model, role: role, scheme: scheme, version: version,
    began: began, ended: ended, seconds: k.seconds,
    outcome: CASE
        WHEN outcome IS NOT NULL THEN outcome
        WHEN (SELECT count(*) FROM lines AS l WHERE l.proc = k.proc AND l.seq > k.last)
            < numbers.newest - k.last THEN 'unknown'
        ELSE 'killed' END,
    error: error, error_type: error_type,
    phases: coalesce(phases, MAP {{}}), attempts: coalesce(attempts, []),
    candidates: if(listed.proc IS NULL, [], [{{policy: listed.policy, result: listed.result,
        counts: listed.counts, seconds: listed.seconds, loads: listed.loads}}]),
    artifacts: coalesce(artifacts, []), gaps: coalesce(gaps, [])
}})
FROM known AS k
JOIN numbers USING (proc)
LEFT JOIN headers USING (proc)
LEFT JOIN (SELECT * FROM named WHERE what = 'load') AS named USING (proc, load_id)
LEFT JOIN attempted USING (proc, load_id)
LEFT JOIN listed USING (proc, load_id)
LEFT JOIN installed USING (proc, load_id)
LEFT JOIN gaps USING (proc, load_id)
ORDER BY began, k.proc, k.first
"""


#: How many of a group there are, how many ended well, quantiles of their seconds.
_QUANTILES = """
SELECT l ->> '$.{by}', count(*), count(seconds) {quantiles}
FROM (
    SELECT l, if(l ->> '$.outcome' = 'success', (l -> '$.seconds')::DOUBLE, NULL) AS seconds
    FROM loads
) GROUP BY 1
"""

#: Attempts by peer, how many gave the weights, and the median of their receives.
_PEERS = """
WITH tried AS (
    SELECT unnest((l -> '$.attempts')::JSON[]) AS a FROM loads
),
taken AS (
    SELECT a ->> '$.peer' AS peer, a ->> '$.result' = 'success' AS well,
        coalesce(a -> '$.phases.receive', a -> '$.seconds')::DOUBLE AS receive
    FROM tried
)
SELECT peer, count(*), count(*) FILTER (well), median(receive) FILTER (well)
FROM taken WHERE peer IS NOT NULL GROUP BY peer
"""

#: Of each pod and model, of the loads that ended well and are the first of their process: the rank
#: of the slowest, its seconds, their median.
_STARTS = """
SELECT place, rank, seconds, middle FROM (
    SELECT f.seconds, f.rank, p.pod_name AS place,
        median(f.seconds) OVER (PARTITION BY p.pod_name) AS middle
    FROM lines AS s
    JOIN lines AS f ON (f.proc, f.load_id, f.event) = (s.proc, s.load_id, 'load_finished')
    JOIN lines AS p ON (p.proc, p.event) = (s.proc, 'process_started')
    WHERE s.event = 'load_started' AND s.seq = 1 AND f.outcome = 'success'
)
QUALIFY row_number() OVER (PARTITION BY place ORDER BY seconds DESC) = 1
"""


class Loads:
    """The loads of the segments in a directory, in a database of its own in memory."""

    def __init__(self, directory: str, threads: int = 2) -> None:
        self.connection = duckdb.connect(config={"threads": threads})
        columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
        self.connection.execute(_LINES.format(directory=directory, columns=columns))

    def lines(self) -> Iterator[str]:
        """An object of JSON a load, in the order in which they began."""
        found = self.connection.execute(_LOADS.format())
        while rows := found.fetchmany(1000):
            for (text,) in rows:
                yield text

    def quantiles(self, by: str, of: Sequence[float]) -> list[tuple[Any, ...]]:
        """A row a group."""
        told = "".join(f", quantile_cont(seconds, {q!r})" for q in of)
        return self._of_loads(_QUANTILES.format(by=by, quantiles=told))

    def peers(self) -> list[tuple[Any, ...]]:
        """A row a peer."""
        return self._of_loads(_PEERS)

    def first_starts(self) -> list[tuple[Any, ...]]:
        """A row a pod."""
        return self.connection.execute(_STARTS).fetchall()

    def _of_loads(self, query: str) -> list[tuple[Any, ...]]:
        self.connection.execute(
            f"CREATE TABLE IF NOT EXISTS loads AS SELECT * FROM ({_LOADS.format()}) AS t(l)"
        )
        return self.connection.execute(query).fetchall()

    def objects(self) -> list[dict[str, Any]]:
        """The loads."""
        return [json.loads(text) for text in self.lines()]


def main(directory: str, threads: str) -> None:
    for text in Loads(directory, int(threads)).lines():
        print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
