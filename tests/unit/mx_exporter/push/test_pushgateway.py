"""One push a pod, to a real Pushgateway."""

from __future__ import annotations

import gzip
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import bcrypt
import pytest

from mx_exporter.config import read_settings
from tests import support
from tests.support import running, serving
from tests.support.pages import derived, parse, replayed

BIN = Path(sys.executable).parent / "mx-metrics"

#: A push is in the way for a few seconds; here with others on the same cores.
FEW_SECONDS = 20

#: An engine of so many ranks, all of which it kills with SIGKILL, and ends itself that way.
KILLER = f"""
import os, signal, subprocess, sys
ranks = [
    subprocess.Popen(
        [sys.executable, "-c", {running.RANK!r}, str(number)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    for number in map(int, sys.argv[1:])
]
for rank in ranks:
    assert rank.stdout.readline() == b"logged\\n"
for rank in ranks:
    rank.kill()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def gateway(spawn: support.Spawner, pushgateway: str) -> support.Pushgateway:
    return support.Pushgateway(spawn, pushgateway)


def push(
    spawn: support.Spawner,
    *arguments: str | Path,
    status: int = 0,
    **env: str,
) -> str:
    """Push, and return what is said about it."""
    process = spawn.python("-m", "mx_exporter", "push", *arguments, env=env)
    assert process.result() == status, process.error_output
    assert process.output == ""
    return process.error_output


def comparable(given: dict[str, str]) -> frozenset[tuple[str, str]]:
    """Labels to compare: the gateway writes boundaries in its own way."""
    bound = {"le": str(float(given["le"]))} if "le" in given else {}
    return frozenset({**given, **bound}.items())


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples of the derived families by name and labels."""
    found = parse(derived(page.encode()).decode())
    return {(name, comparable(dict(labels))): value for (name, labels), value in found.items()}


def of_pod(page: str, pod: str, job: str = "modelexpress") -> dict[object, float]:
    """The derived families that a pod pushed, without the labels of its group."""
    group = {("pod", pod), ("job", job), ("instance", "")}
    return {
        (name, labels - group): value
        for (name, labels), value in samples(page).items()
        if labels >= group - {("instance", "")}
    }


def test_what_is_pushed_is_what_a_replay_prints(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    shutil.copytree(support.ROOT / "tests" / "golden" / "loads", tmp_path / "log")
    log = tmp_path / "log"
    expected = samples(replayed(spawn, *sorted(log.glob("*.jsonl"))).decode())
    assert len(expected) > 50
    for path in log.glob("*.prom"):
        path.unlink()
    said = push(spawn, log, "--pushgateway", gateway.address, POD_UID="uid-1", POD_NAME="name-1")
    assert f"pushed to http://{gateway.address}, as pod uid-1" in said
    page = gateway.page()
    assert of_pod(page, "uid-1") == expected
    # The books go along, and creation times do not: they would be families of their own.
    assert 'mx_exporter_events_lost{instance="",job="modelexpress",pod="uid-1"} 0' in page
    assert "_created" not in re.sub(r"(?m)^(#|go_|process_|push).*", "", page)


def test_two_pods_do_not_erase_each_other(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    env = {"MX_METRICS_PUSHGATEWAY": f"http://{gateway.address}/"}
    for pod, count in (("one", 3), ("two/of them", 5)):
        log = tmp_path / pod.partition("/")[0]
        log.mkdir()
        serving.attempts(log, count)
        # Twice: a push replaces what the same pod pushed before.
        for _ in range(2):
            push(spawn, log, POD_NAME=pod, **env)
    push(spawn, tmp_path / "one", "--job", "other", MX_METRICS_PORT="0", POD_NAME="one", **env)
    page = gateway.page()
    for pod, job, count in (
        ("one", "modelexpress", 3),
        ("two/of them", "modelexpress", 5),
        ("one", "other", 3),
    ):
        name = (
            "mx_p2p_source_attempts_total",
            frozenset({("policy", "policy-0"), ("result", "success"), ("scheme", "")}),
        )
        assert of_pod(page, pod, job)[name] == count


def test_killing_every_rank_still_pushes_everything(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start(
        *(spawn, tmp_path / "log", sys.executable, "-c", KILLER),
        *("100", "200", "300"),
        port=0,
        options=("--pushgateway", gateway.address),
        env={"POD_UID": "uid-1"},
    )
    assert run.process.result() == 128 + 9, run.log
    found = of_pod(gateway.page(), "uid-1")
    received = ("mx_nixl_receive_total", frozenset({("result", "complete"), ("scheme", "")}))
    assert found[received] == 600
    assert "ERROR" not in run.log


def test_an_exporter_that_died_with_the_ranks_is_not_needed(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    options = ("--pushgateway", gateway.address)
    run = running.start_rank(spawn, tmp_path, 4, port=0, options=options)
    support.wait_until(run.exporter_pid)
    running.kill(run.exporter_pid())
    running.end(run, 3)
    found = of_pod(gateway.page(), socket.gethostname())
    received = ("mx_nixl_receive_total", frozenset({("result", "complete"), ("scheme", "")}))
    assert found[received] == 4


# --------------------------------------------------------------------------------------
# Scrape or push


def test_a_port_beside_a_gateway_is_served_and_nothing_is_pushed(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start_rank(spawn, tmp_path, options=("--pushgateway", gateway.address))
    support.wait_until(lambda: run.received() == 3)
    assert run.log.count("ERROR nothing will be pushed: both a port (") == 1
    running.end(run)
    said = push(
        *(spawn, tmp_path, "--pushgateway", gateway.address), status=1, MX_METRICS_PORT="9402"
    )
    assert re.fullmatch(r"mx-metrics: nothing was pushed: both a port [^\n]+\n", said)
    assert "mx_nixl_receive_total" not in gateway.page()


@pytest.mark.parametrize("port", [None, "0", "-1", "http"])
def test_no_port_beside_a_gateway(
    port: str | None, gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    env = {"MX_METRICS_PUSHGATEWAY": gateway.address, "POD_UID": "uid-1"}
    run = running.start_rank(
        spawn, tmp_path, port=0, env=env if port is None else {**env, "MX_METRICS_PORT": port}
    )
    support.wait_until(lambda: "no endpoint" in run.log)
    running.end(run)
    assert "mx_nixl_receive_total" in gateway.page()
    assert "ERROR" not in run.log


@pytest.mark.parametrize(
    ("environ", "pod"),
    [
        ({"POD_UID": "uid", "POD_NAME": "name"}, "uid"),
        ({"POD_UID": " ", "POD_NAME": "name"}, "name"),
        ({}, socket.gethostname()),
    ],
)
def test_the_pod_of_the_grouping_key(environ: dict[str, str], pod: str) -> None:
    assert read_settings({}, environ).pod == pod


# --------------------------------------------------------------------------------------
# What fails


def one_line(said: str, reason: str) -> None:
    assert re.fullmatch(rf"mx-metrics: nothing was pushed[^\n]*{reason}[^\n]*\n", said), said


def test_a_gateway_that_is_down(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 1)
    address = f"127.0.0.1:{support.free_port()}"
    start = time.monotonic()
    one_line(push(spawn, tmp_path, "--pushgateway", address, status=1), "Connection refused")
    assert time.monotonic() - start < FEW_SECONDS


def test_a_proxy_that_stands_between_is_named(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 1)
    to = ("--pushgateway", "gateway.invalid:9091")
    port = support.free_port()
    env = {"http_proxy": f"http://me:secret@127.0.0.1:{port}"}
    said = push(spawn, tmp_path, *to, status=1, **env)
    one_line(said, rf"by the proxy 127\.0\.0\.1:{port} \(http_proxy; NO_PROXY=gateway\.invalid ")
    assert "secret" not in said
    said = push(spawn, tmp_path, *to, status=1, **env, NO_PROXY="gateway.invalid")
    assert "proxy" not in said


def test_a_gateway_that_does_not_answer(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        one_line(push(spawn, tmp_path, "--pushgateway", address, status=1), "")
        assert time.monotonic() - start < FEW_SECONDS
        # There was a second try.
        silent.settimeout(1)
        for _ in range(2):
            silent.accept()[0].close()


def test_a_gateway_that_refuses(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    serving.attempts(tmp_path, 1)
    url = f"http://{gateway.address}/no/such/path"
    one_line(push(spawn, tmp_path, "--pushgateway", url, status=1), "it answered 404")


def test_the_engines_status_is_kept_when_the_push_fails(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        run = running.start_rank(spawn, tmp_path, port=0, options=("--pushgateway", address))
        start = time.monotonic()
        running.end(run, 3)
        assert time.monotonic() - start < FEW_SECONDS
    given_up = rf"ERROR (nothing was pushed to http://{address}: |the push took longer than 5 s)"
    assert re.search(given_up, run.log), run.log


def test_the_directory_is_named(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    serving.attempts(tmp_path, 1)
    to = ("--pushgateway", gateway.address)
    for said in (
        push(spawn, tmp_path, *to),
        push(spawn, "--dir", tmp_path, *to),
        push(spawn, *to, MX_METRICS_DIR=str(tmp_path)),
    ):
        assert f"pushed to http://{gateway.address}, as pod " in said
        assert said.endswith(f", from {tmp_path}\n")
    said = push(spawn, tmp_path, "--dir", tmp_path, *to, status=2)
    assert said == "mx-metrics: DIR and --dir: give only one of them\n"


def test_an_incomplete_log_is_pushed_and_reported(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    path = serving.attempts(tmp_path, 5)
    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes())[:-4])
    path.unlink()
    to = ("--pushgateway", gateway.address, "--source-id-label")
    said = push(spawn, tmp_path, *to, status=1, POD_UID="uid-1")
    assert f"ERROR {packed}: the gzip data ends in the middle" in said
    assert "WARNING source_worker_id is shown as a label" in said
    assert "pushed to" in said
    assert of_pod(gateway.page(), "uid-1")


def test_there_must_be_something_to_push_and_somewhere_to_push_it(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    said = push(spawn, tmp_path, status=2)
    assert "set --pushgateway, --remote-write or --otlp, or the variable MX_METRICS_PUSH" in said
    one_line(
        push(spawn, tmp_path, "--pushgateway", "127.0.0.1:1", status=1), "there is no segment in"
    )


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://host", "host:port", "host:65536", "http://a b", "host?x=1"]
)
def test_what_is_no_address(url: str, spawn: support.Spawner, tmp_path: Path) -> None:
    said = push(spawn, tmp_path, "--pushgateway", url, status=2)
    assert said.startswith("mx-metrics: --pushgateway: bad value ")


def test_a_gateway_that_asks_for_a_password(
    spawn: support.Spawner, pushgateway: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    serving.attempts(log, 1)
    hashed = bcrypt.hashpw(b"se/cret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{us@er: '{hashed}'}}\n")
    file = f"--web.config.file={tmp_path}/web.yml"
    gateway = support.Pushgateway(spawn, pushgateway, file)
    one_line(push(spawn, log, "--pushgateway", gateway.address, status=1), "it answered 401")
    wrong = push(spawn, log, "--pushgateway", f"http://us%40er:other@{gateway.address}", status=1)
    one_line(wrong, "it answered 401")
    right = push(spawn, log, "--pushgateway", f"http://us%40er:se%2Fcret@{gateway.address}")
    assert f"pushed to http://{gateway.address}, as pod " in right
    assert "cret" not in right
    assert "other" not in wrong


def test_the_gateway_takes_whatever_ranks_log(
    gateway: support.Pushgateway, spawn: support.Spawner, tmp_path: Path
) -> None:
    log = support.Lines(scheme='s"\\\n\0')
    texts = ['quo"te', "back\\slash", "new\nline", "nul\0nul", "# EOF", "", "é\U0001f600"]
    events = [("source_attempted", {"policy": text, "result": "success"}) for text in texts]
    log.segment(tmp_path, 0, events)
    push(spawn, tmp_path, "--pushgateway", gateway.address, POD_UID="uid-1")
    policies = {
        dict(labels).get("policy", "")
        for (name, labels) in samples(gateway.page())
        if name == "mx_p2p_source_attempts_total"
    }
    assert {text.replace("\0", "\ufffd") for text in texts} <= policies


def test_serve_logs_that_it_does_not_push(spawn: support.Spawner, tmp_path: Path) -> None:
    exporter = serving.start(spawn, tmp_path, env={"MX_METRICS_PUSHGATEWAY": "127.0.0.1:1"})
    assert "ERROR serve does not push; `mx-metrics run` and `mx-metrics push` do" in exporter.log


def test_help_of_push() -> None:
    done = subprocess.run([BIN, "push", "--help"], capture_output=True, text=True, check=True)
    assert all(flag in done.stdout for flag in ("--pushgateway", "--job", "[DIR]"))
