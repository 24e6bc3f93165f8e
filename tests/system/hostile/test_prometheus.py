"""A real Prometheus scrapes a page of hostile labels, in both formats."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import support
from tests.support import Lines, Prometheus, serving
from tests.support.strategies import HOSTILE

FORMATS = {
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "classic": "text/plain; version=0.0.4; charset=utf-8",
}

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- {{job_name: openmetrics, static_configs: [{{targets: ["{openmetrics}"]}}]}}
- {{job_name: classic, static_configs: [{{targets: ["{classic}"]}}]}}
"""


def hostile_log(directory: Path) -> None:
    log = Lines(scheme='s"\\\n\0')
    lines = [log.header(version="\n")]
    for text in HOSTILE:
        lines += [
            log("source_attempted", policy=text, result=text),
            log("source_attempted", policy=text, result=text),
            log("transfer_finished", policy=text, outcome=text, seconds=-1, load_id=text),
            log("load_started", engine=text, model=text, model_role=text, load_id=text),
            log("load_phase_started", engine=text, model=text, phase=text, load_id=text),
            log("artifact_extracted", artifact=text, archive=text, bytes=0.5),
            log("candidate_loads_seen", loads=[{"source_worker_id": text, "load": -0.5}]),
            log("events_dropped", reason=text, count=1),
            log(text or "of_the_future", policy=text),
            log("nixl_received", result=text, timestamp="0001-01-01T00:00:00.000000Z"),
            # No UTF-8, and half of a character: no lines at all, for JSON.
            log("source_attempted", policy="P", result="R").replace(b"P", b"\xfftest-api"),
            log("source_attempted", policy="P", result="R").replace(b"P", b"\\ud800"),
        ]
    path = directory / f"events-{log.proc}-0.jsonl"
    path.write_bytes(b"".join(lines))


@contextmanager
def relay(exporter: serving.Exporter, accept: str | None) -> Iterator[tuple[str, list[str]]]:
    """A proxy that asks for another format; its address, and the types that it passed on."""
    types: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = exporter.get(Accept=accept or self.headers["Accept"])
            types.append(answer.headers["content-type"])
            self.send_response(answer.status)
            self.send_header("Content-Type", types[-1])
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", types
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def scraped(
    spawn: support.Spawner, prometheus: str, tmp_path: Path
) -> Iterator[tuple[Prometheus, dict[str, list[str]]]]:
    """A Prometheus that scraped the page twice in each format, and the types it was given."""
    directory = tmp_path / "segments"
    directory.mkdir()
    hostile_log(directory)
    exporter = serving.start(spawn, directory, "--source-id-label")
    with relay(exporter, None) as (own, own_types), relay(exporter, "text/plain") as (old, types):
        config = CONFIG.format(openmetrics=own, classic=old)
        running = Prometheus(spawn, prometheus, tmp_path / "prometheus", config)
        support.wait_until(lambda: len(running.query("count_over_time(up[1h]) > 1")) == 2, limit=60)
        yield running, {"openmetrics": own_types, "classic": types}
        running.process.end()


@pytest.mark.long
def test_labels_arrive_as_they_were_logged(
    scraped: tuple[Prometheus, dict[str, list[str]]],
) -> None:
    prometheus, types = scraped
    for job, wanted in FORMATS.items():
        assert set(types[job]) == {wanted}
        assert prometheus.query(f'up{{job="{job}"}}')[0]["value"][1] == "1", job
        found = prometheus.query(f'mx_p2p_source_attempts_total{{job="{job}"}}')
        shown = {
            (series["metric"].get("policy", ""), series["metric"].get("result", "")): series
            for series in found
            if series["value"][1] != "0"
        }
        # A label that is empty is none, to Prometheus; a NUL is a sign that stands for it.
        texts = {text.replace("\0", "\ufffd") for text in HOSTILE}
        assert shown.keys() == {(text, text) for text in texts}
        for series in shown.values():
            assert series["value"][1] == "2"
            assert series["metric"]["scheme"] == 's"\\\n\ufffd'
        rejected = prometheus.query(
            f'mx_exporter_lines_rejected_total{{job="{job}",reason="not_json"}}'
        )
        assert rejected[0]["value"][1] == str(2 * len(HOSTILE))
