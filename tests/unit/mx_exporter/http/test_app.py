"""The endpoint's paths over real sockets."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from mx_log.schema import VERSION
from tests import support
from tests.support import load_logs, serving
from tests.support.pages import derived

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'


@pytest.fixture
def exporter(spawn: support.Spawner, tmp_path: Path) -> serving.Exporter:
    directory = tmp_path / "segments"
    directory.mkdir()
    serving.attempts(directory, 3)
    return serving.start(spawn, directory)


def test_both_formats_say_the_same(exporter: serving.Exporter) -> None:
    text = exporter.get()
    assert (text.status, text.headers["content-type"]) == (200, CLASSIC)
    assert text.sample(SUCCESS) == 3
    assert int(text.headers["content-length"]) == len(text.body)
    assert not text.text.endswith("# EOF\n")

    other = exporter.get(Accept="application/openmetrics-text; version=0.0.1")
    assert (other.status, other.headers["content-type"]) == (200, OPENMETRICS)
    assert other.sample(SUCCESS) == 3
    assert other.text.endswith("# EOF\n")
    names = {metric.name for metric in classic(derived(text.body).decode())}
    assert {metric.name for metric in openmetrics(other.text)} > names > {"mx_build_info"}


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/", "/status"])
def test_a_slash_at_the_end_of_a_path_changes_nothing(
    path: str, exporter: serving.Exporter
) -> None:
    plain, slash = exporter.get(path), exporter.get(f"{path}/")
    assert (slash.status, slash.headers["content-type"]) == (200, plain.headers["content-type"])
    assert exporter.get(f"{path}/x").status == 404


def test_creation_times_are_left_out_where_the_client_librarys_variable_says_so(
    exporter: serving.Exporter, spawn: support.Spawner, tmp_path: Path
) -> None:
    accept = {"Accept": "application/openmetrics-text"}
    log, off = tmp_path / "segments", {"PROMETHEUS_DISABLE_CREATED_SERIES": "True"}
    with_them = exporter.derived(**accept)
    exporter.process.terminate()
    assert exporter.process.result() == 0
    without = serving.start(spawn, log, env=off).derived(**accept)
    assert b"_created{" in with_them
    lines = with_them.splitlines(keepends=True)
    assert without == b"".join(line for line in lines if b"_created{" not in line)
    replay = spawn.python("-m", "mx_exporter", "replay", "--openmetrics", log, env=off)
    assert replay.result() == 0
    assert replay.output.removesuffix("# EOF\n") == without.decode().removesuffix("# EOF\n")


def test_caches_are_told_what_the_answer_depends_on(exporter: serving.Exporter) -> None:
    for headers in ({}, {"Accept_Encoding": "gzip"}, {"Accept": "application/openmetrics-text"}):
        assert exporter.get(**headers).headers["vary"] == "Accept, Accept-Encoding"


def test_gzip_when_accepted(exporter: serving.Exporter) -> None:
    zipped = exporter.get(Accept_Encoding="gzip")
    assert zipped.headers["content-encoding"] == "gzip"
    plain = exporter.get(Accept_Encoding="gzip;q=0, *")
    assert "content-encoding" not in plain.headers
    assert derived(gzip.decompress(zipped.body)) == derived(plain.body)
    assert len(zipped.body) < len(plain.body) / 2


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/", "/status"])
def test_head_is_get_without_the_body(exporter: serving.Exporter, path: str) -> None:
    head = exporter.get(path, "HEAD")
    got = exporter.get(path)
    assert (head.status, head.body) == (got.status, b"") == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert abs(int(head.headers["content-length"]) - len(got.body)) < 100


def test_unknown_paths_are_not_found(exporter: serving.Exporter) -> None:
    for path in ("/metric", "/metrics//", "/favicon.ico", "//metrics", "/%2e%2e/etc/passwd"):
        assert exporter.get(path).status == 404
    assert exporter.get("/nothing", "POST").status == 404
    assert exporter.get("/metrics?name[]=up").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(exporter: serving.Exporter, method: str) -> None:
    answer = exporter.get("/metrics", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_body_is_not_read_and_ends_the_connection(exporter: serving.Exporter) -> None:
    answer = exporter.get("/metrics", "POST", body=b"x" * 1000)
    assert (answer.status, answer.headers["connection"]) == (405, "close")
    # A body that is announced and never comes does not keep the answer back.
    with exporter.connect(
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n"
    ) as sock:
        assert serving.read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_http_1_0_and_pipelining(exporter: serving.Exporter) -> None:
    with exporter.connect(b"GET /healthz HTTP/1.0\r\n\r\n") as sock:
        answer = serving.read_all(sock)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nok\n")
    two = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 2
    last = b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with exporter.connect(two + last) as sock:
        answers = serving.read_all(sock)
    assert [line[9:12] for line in answers.splitlines() if line.startswith(b"HTTP/")] == [
        b"200",
        b"200",
        b"404",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/x.y\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
        b"POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_malformed_requests_are_refused_and_closed(exporter: serving.Exporter, data: bytes) -> None:
    with exporter.connect() as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
        answer = serving.read_all(sock)
    assert answer == b"" or answer[9:10] == b"4", answer[:100]
    assert exporter.get().sample(SUCCESS) == 3
    assert "Traceback" not in exporter.log


def test_a_scrape_reads_its_own_past(exporter: serving.Exporter, tmp_path: Path) -> None:
    """No sleep between the write and the scrape, hundreds of times."""
    making = tmp_path / "segments" / ".events-bbbbbbbbbbbb-0.jsonl"
    log = support.Lines("bbbbbbbbbbbb")
    with making.open("ab", buffering=0) as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        out.write(log.header())
        making.rename(making.with_name(making.name[1:]))
        for n in range(1, 301):
            out.write(log("source_attempted", policy="own-past", result="success"))
            name = 'mx_p2p_source_attempts_total{policy="own-past",result="success",scheme=""}'
            assert exporter.get().sample(name) == n


def test_the_drain_stops_at_the_scrapes_deadline(
    exporter: serving.Exporter, tmp_path: Path
) -> None:
    def cut_short(n: int) -> bool:
        serving.attempts(tmp_path / "segments", 1000, f"{n:012x}")
        answer = exporter.get(X_Prometheus_Scrape_Timeout_Seconds="0.0000001")
        return answer.sample("mx_exporter_unread_bytes") > 0

    # A drain of its own may have been quicker than the scrape.
    tries = next(n for n in range(1, 50) if cut_short(n))
    # Junk is no deadline: all is read, and nothing was read twice.
    answer = exporter.get(X_Prometheus_Scrape_Timeout_Seconds="soon")
    assert answer.sample("mx_exporter_unread_bytes") == 0
    assert answer.sample(SUCCESS) == 3 + 1000 * tries
    assert answer.sample("mx_exporter_duplicates_total") == 0


def test_a_page_that_is_made_too_late_is_counted_and_said_once(
    exporter: serving.Exporter,
) -> None:
    late = "mx_exporter_scrapes_late_total"
    assert exporter.get(X_Prometheus_Scrape_Timeout_Seconds="600").sample(late) == 0
    for _ in range(2):
        assert exporter.get(X_Prometheus_Scrape_Timeout_Seconds="0.0000001").status == 200
    # A scrape that gives up hangs up.
    request = (
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Prometheus-Scrape-Timeout-Seconds: 1e-7\r\n\r\n"
    )
    exporter.connect(request).close()
    support.wait_until(lambda: exporter.get().sample(late) == 3)
    assert exporter.log.count("a page took longer than its scrape's time-out, 1e-07 s") == 1


@pytest.fixture
def held(spawn: support.Spawner, tmp_path: Path) -> Iterator[tuple[serving.Exporter, IO[bytes]]]:
    """An exporter whose first drain begins only when the pipe that is given is closed."""
    serving.attempts(tmp_path, 3)
    gate, opened = os.pipe()
    port = support.free_port()
    code = (
        "import os, sys\n"
        "from mx_exporter.cli import main as cli\n"
        "from mx_exporter.directory import follower as follow\n"
        "drain, held = follow.Follower.drain, [True]\n"
        "def late(self, deadline=None):\n"
        f"    if held: held.clear(); os.read({gate}, 1)\n"
        "    drain(self, deadline)\n"
        "follow.Follower.drain = late\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    process = spawn.python(
        *("-c", code, "serve", "--dir", tmp_path, "--listen", f"127.0.0.1:{port}"),
        pass_fds=[gate],
    )
    os.close(gate)
    support.wait_until(lambda: "serving http://" in process.error_output)
    with open(opened, "wb") as pipe:
        yield serving.Exporter(process, "127.0.0.1", port), pipe


def test_503_until_the_first_fold_is_done(held: tuple[serving.Exporter, IO[bytes]]) -> None:
    exporter, gate = held
    answer = exporter.get()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert exporter.get("/readyz").status == 503
    assert exporter.get("/healthz").status == 200
    page = exporter.get("/")
    assert page.status == 200
    assert "is being read for the first time" in page.text
    gate.close()
    support.wait_until(exporter.ready)
    assert exporter.get().sample(SUCCESS) == 3
    assert "Read so far" in exporter.get("/status").text


def test_a_drain_that_hangs_does_not_delay_sigterm(
    held: tuple[serving.Exporter, IO[bytes]],
) -> None:
    exporter, _ = held
    start = time.monotonic()
    exporter.process.terminate()
    assert exporter.process.result() == 0
    assert time.monotonic() - start < support.SOON
    assert "Traceback" not in exporter.log


def test_promtool_likes_the_page(exporter: serving.Exporter, promtool: str) -> None:
    page = exporter.get().body
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr, checked.stdout) == (0, b"", b"")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page + b"x 1\nx 1\ny{ 1", capture_output=True
    )
    assert checked.returncode != 0


def test_own_families(exporter: serving.Exporter) -> None:
    page = exporter.get()
    assert re.search(rf'^mx_exporter_build_info{{python="3\.[\d.]+",version="{VERSION}"}} 1\.0$',
                     page.text, re.MULTILINE)  # fmt: skip
    assert page.sample("mx_exporter_last_drain_seconds") > 0
    assert page.sample('mx_exporter_directory_state{state="segments"}') == 1
    assert page.sample('mx_exporter_directory_state{state="missing"}') == 0
    assert page.sample("process_resident_memory_bytes") > 1e6
    assert page.sample("mx_exporter_events_logged_total") == 4


# --------------------------------------------------------------------------------------
# Where it listens


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_one_ipv6_address(spawn: support.Spawner, tmp_path: Path) -> None:
    if not has_ipv6():
        support.leave_out("this machine has no IPv6")
    exporter = serving.start(spawn, tmp_path, host="::1")
    assert exporter.get().status == 200
    assert f"serving http://[::1]:{exporter.port}/metrics, from {tmp_path}" in exporter.log


def test_all_interfaces_by_the_variable(spawn: support.Spawner, tmp_path: Path) -> None:
    port = support.free_port()
    env = {"MX_METRICS_PORT": str(port), "MX_METRICS_DIR": f" {tmp_path} "}
    process = spawn.python("-m", "mx_exporter", "serve", env=env)
    hosts = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]
    for host in hosts:
        exporter = serving.Exporter(process, host, port)
        support.wait_until(exporter.ready)
        assert exporter.get().status == 200
    assert f"serving http://localhost:{port}/metrics on all interfaces" in exporter.log


@pytest.mark.parametrize("port", ["0", "-1"])
def test_no_endpoint_still_follows(spawn: support.Spawner, tmp_path: Path, port: str) -> None:
    serving.attempts(tmp_path, 3)
    env = {"MX_METRICS_PORT": port, "MX_METRICS_DIR": str(tmp_path)}
    process = spawn.python("-m", "mx_exporter", "serve", env=env)
    support.wait_until(lambda: "found 1 segment" in process.error_output)
    assert "no endpoint (port 0 or below)" in process.error_output
    sockets = [
        link
        for fd in os.listdir(f"/proc/{process.pid}/fd")
        if (link := os.readlink(f"/proc/{process.pid}/fd/{fd}")).startswith("socket:")
    ]
    tables = "".join(
        Path(f"/proc/{process.pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")
    )
    assert not [s for s in sockets if f" {s[8:-1]} " in tables]
    process.terminate()
    assert process.result() == 0


# --------------------------------------------------------------------------------------
# Pages for people


@pytest.fixture
def loads(spawn: support.Spawner, tmp_path: Path) -> serving.Exporter:
    directory = tmp_path / "segments"
    load_logs.ranks(directory, end=False)
    return serving.start(spawn, directory)


def test_pages_for_people(loads: serving.Exporter) -> None:
    front = loads.get("/")
    found = json.loads(loads.get("/loads.json").body)
    assert len(found["loads"]) + len(found["running"]) == 3 * 2 * 3
    assert len(found["running"]) == 3
    load_id = found["running"][0]["load_id"]
    assert f'href="/loads/{load_id}"' in front.text
    one = loads.get(f"/loads/{load_id}")
    assert one.status == 200
    assert "running after" in one.text
    unknown = loads.get("/loads/%3Cb%3E")
    assert unknown.status == 404
    assert "&lt;b&gt;" in unknown.text
    for answer in (front, one, unknown, loads.get("/?sort=seconds&x=%ff"), loads.get("/status")):
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        # The style that it names is the one that is there.
        style = re.search(r"<style>(.*)</style>", answer.text, re.DOTALL)
        assert style
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    zipped = loads.get("/", Accept_Encoding="gzip")
    assert "Model loads" in gzip.decompress(zipped.body).decode()
    assert loads.get("/", method="HEAD").body == b""
    assert loads.get("/", method="POST").status == 405
