"""The page on log collectors: what it shows as their output comes back, and the programs that run
here do what it says."""

from __future__ import annotations

import http.server
import json
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support
from tests.support import Lines
from tests.support.commands import Run, mx_metrics
from tests.support.folding import replayed_page as page

__all__ = ["mx_metrics"]

PAGE = (support.ROOT / "docs/collectors.md").read_text()

#: By heading, what comes back.
EXAMPLES = {
    section.partition("\n")[0]: example
    for section in PAGE.split("\n## ")
    for example in re.findall(r"<!-- comes back -->\n```\w+\n(.*?)```", section, re.DOTALL)
}

PLAIN = EXAMPLES.pop("# Log collectors")


def test_each_collector_has_an_example() -> None:
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert [*EXAMPLES] == [name for name in sections if name != "What has come back"]


@pytest.mark.parametrize("collector", EXAMPLES)
def test_each_example_comes_back(collector: str, tmp_path: Path, mx_metrics: Run) -> None:
    (tmp_path / "plain").write_text(PLAIN)
    (tmp_path / "back").write_text(EXAMPLES[collector])
    assert page(tmp_path / "back") == page(tmp_path / "plain")
    code, out, _ = mx_metrics("check", tmp_path / "back")
    assert (code, out.decode().splitlines()[0]) == (
        0,
        "1 line: 1 event, 0 met before, 0 rejected, 0 of others",
    )


def commands(program: str) -> list[list[str]]:
    """What the page has a program do, without what happens to its output."""
    found = re.findall(rf"^{program} [^|>\n]+", PAGE, re.MULTILINE)
    assert found
    return list(map(shlex.split, found))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of which one line is long, one has what terminals obey, and one is nobody's."""
    lines = Lines()
    told = [
        lines.header(),
        lines("source_attempted", policy="random", result="success"),
        lines("source_attempted", policy="random", result="failure", note="x" * 60_000),
        lines("source_attempted", policy="größe", result="success", note="\x7f\x9b2J"),
        b"mx-metrics: somebody else's line",
        lines("source_attempted", policy="random", result="success"),
    ]
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in told))
    return path


# --------------------------------------------------------------------------------------
# journald

JOURNALD = Path("/lib/systemd/systemd-journald")

#: Runs a journald of its own: CONFIGURATION LOG, then the commands whose output goes to files.
JOURNAL = """
set -e
mount -t tmpfs none /run
mkdir -p /run/systemd/journal /run/log/journal /run/systemd/journald.conf.d
cp "$1" /run/systemd/journald.conf.d/mx-metrics.conf
/lib/systemd/systemd-journald &
until [ -S /run/systemd/journal/stdout ]; do kill -0 $!; done
systemd-cat -t mx-metrics cat "$2"
journalctl --sync
shift 2
for command; do
    sh -c "$command"
done
kill $!
wait $! || true
"""


def journal(
    spawn: support.Spawner, place: Path, log: Path, configuration: str, *options: str
) -> list[Path]:
    """What journalctl prints of a log that was written to a journald."""
    support.tool("journalctl", "Debian's package systemd")
    support.tool("systemd-cat", "Debian's package systemd")
    if not JOURNALD.exists():
        support.leave_out(f"needs {JOURNALD}, of Debian's package systemd")
    (place / "journald.conf").write_text(configuration)
    out = [place / f"out-{number}" for number in range(len(options))]
    asked = [
        f"journalctl {given} > {shlex.quote(str(to))}"
        for given, to in zip(options, out, strict=True)
    ]
    process = spawn(
        *support.unshare("--mount", "--propagation", "private"),
        *("sh", "-c", JOURNAL, "sh", str(place / "journald.conf"), str(log), *asked),
    )
    assert process.result() == 0, process.error_output
    return out


def test_a_journal_comes_back(tmp_path: Path, log: Path, spawn: support.Spawner) -> None:
    (configuration,) = re.findall(r"```text\n(\[Journal\]\n.*?)```", PAGE, re.DOTALL)
    options = [
        shlex.join(command[1:]).replace("-u mx-metrics", "-t mx-metrics")
        for command in commands("journalctl")
    ]
    assert len(options) == 2
    for out in journal(spawn, tmp_path, log, configuration, *options):
        assert page(out) == page(log)


def test_a_line_that_journald_cut_is_joined(
    tmp_path: Path, log: Path, spawn: support.Spawner
) -> None:
    option = "-t mx-metrics -o json --all --no-pager"
    (out,) = journal(spawn, tmp_path, log, "[Journal]\n", option)
    assert b'"_LINE_BREAK":"line-max"' in out.read_bytes()
    assert page(out) == page(log)


# --------------------------------------------------------------------------------------
# kubectl

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "engine-0", "namespace": "default"},
    "spec": {"containers": [{"name": "engine"}, {"name": "mx-metrics"}]},
    "status": {"phase": "Running"},
}
PODS = [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": []}]
ANSWERS: dict[str, object] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": PODS},
    "/api/v1/namespaces/default/pods": {"kind": "PodList", "apiVersion": "v1", "items": [POD]},
    "/api/v1/namespaces/default/pods/engine-0": POD,
}


@pytest.fixture
def cluster(log: Path) -> Iterator[str]:
    """The address of an API server that has one pod, whose log it answers as a kubelet does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path.endswith("/log"):
                stamp = b"2026-01-02T03:04:05.678901234Z " if "timestamps=true" in query else b""
                body = b"".join(stamp + line for line in log.read_bytes().splitlines(keepends=True))
            elif path in ANSWERS:
                body = json.dumps(ANSWERS[path]).encode()
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/plain" if path.endswith("/log") else "application/json"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_what_kubectl_prints_comes_back(cluster: str, tmp_path: Path, log: Path) -> None:
    kubectl = support.tool("kubectl")
    asked = commands("kubectl")
    assert len(asked) == 2
    for number, (_, *arguments) in enumerate(asked):
        place = [f"--server={cluster}", f"--cache-dir={tmp_path}"]
        environment = support.clean_environment(HOME=str(tmp_path), NO_PROXY="127.0.0.1")
        done = subprocess.run(
            [kubectl, *place, *arguments], capture_output=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        out = tmp_path / f"out-{number}"
        out.write_bytes(done.stdout)
        assert page(out) == page(log)
