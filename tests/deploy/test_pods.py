"""What the built manifests come to in a pod, read as the kubelet reads them: who gets which
variable, what a Service of our name changes, and what leaves the pod."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mx_exporter.config import OPTIONS, Settings, read_settings
from tests import support
from tests.support import DEPLOY, serving
from tests.support.kubelet import POD, environment, pods
from tests.support.pages import derived

EXAMPLES = sorted(path.parent.name for path in DEPLOY.glob("kubernetes/examples/*/built.yaml"))

Container = dict[str, Any]

#: One that a person may make for a ServiceMonitor.
SERVICES = [("mx-metrics", 9402), ("engine", 8000)]

IDENTITY = {
    "POD_NAME": POD["metadata.name"],
    "POD_UID": POD["metadata.uid"],
    "POD_NAMESPACE": POD["metadata.namespace"],
    "NODE_NAME": POD["spec.nodeName"],
}


def found(example: str) -> list[dict[str, Any]]:
    """The pods of an example."""
    text = (DEPLOY / "kubernetes" / "examples" / example / "built.yaml").read_text()
    return [pod for one in yaml.safe_load_all(text) for pod in pods(one)]


def exports(container: Container) -> bool:
    """Whether the exporter runs in a container."""
    return container["name"] == "mx-metrics" or "mx_exporter" in container.get("command", [])


def exporters(pod: dict[str, Any]) -> list[Container]:
    return [one for one in (*pod.get("initContainers", []), *pod["containers"]) if exports(one)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_who_logs_knows_its_pod_and_its_node(example: str) -> None:
    for pod in found(example):
        engine = pod["containers"][0]
        assert IDENTITY.items() <= environment(pod, engine).items()
        others = [*pod.get("initContainers", []), *pod["containers"][1:]]
        for container in others:  # nobody there reads it
            assert not IDENTITY.keys() & environment(pod, container).keys()


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_header_names_pod_and_node(example: str, spawn: support.Spawner, tmp_path: Path) -> None:
    for number, pod in enumerate(found(example)):
        log = tmp_path / str(number)
        env = environment(pod, pod["containers"][0], SERVICES)
        # `run` sets it for the engine that it starts.
        env |= {"MX_METRICS_DIR": str(log), "MX_METRICS_ENABLED": "1"}
        env.pop("PYTHONPATH", None)
        rank = spawn.python(
            "-c",
            "from mx_emitter import metrics, enable_metrics; "
            "enable_metrics(); metrics.record_nixl_receive('complete')",
            env=env,
        )
        assert rank.result() == 0, rank.error_output
        (segment,) = log.glob("events-*.jsonl")
        header = json.loads(segment.read_bytes().splitlines()[0])
        assert {name: header[name.lower()] for name in IDENTITY} == IDENTITY


def settings_of(env: dict[str, str]) -> Settings:
    """What an exporter reads there, but for the archive, which is not there on this machine."""
    return read_settings({}, env, names=OPTIONS.keys() - {"archive_dir"})


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_service_of_our_name_changes_no_port(example: str, links: bool) -> None:
    """Kubernetes sets MX_METRICS_PORT to the address of a Service that is named mx-metrics."""
    for pod in found(example):
        (exporter,) = exporters(pod)
        env = environment(pod, exporter, SERVICES, links)
        assert ("MX_METRICS_SERVICE_HOST" in env) == links
        settings = settings_of(env)
        assert settings == settings_of(environment(pod, exporter))
        ports = [one for one in exporter.get("ports", []) if one["name"] == "mx-metrics"]
        if settings.pushgateway:
            assert settings.asked_endpoint is None
            assert not ports
        else:
            endpoint = settings.endpoint
            assert endpoint
            assert [one["containerPort"] for one in ports] == [endpoint.port]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_take_no_variables_of_services(example: str) -> None:
    for pod in found(example):
        for container in pod["containers"]:
            named = {one["name"] for one in container.get("env", [])}
            assert environment(pod, container, SERVICES).keys() == named


def sidecar(example: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of an example's sidecar."""
    (pod,) = found(example)
    (container,) = exporters(pod)
    return container["args"], environment(pod, container, SERVICES)


def test_what_leaves_the_pod() -> None:
    """Standard output, and the archive where the component is listed. Under `run` it is the
    engine's standard output, and nothing is put there unasked."""
    for example in EXAMPLES:
        for pod in found(example):
            (exporter,) = exporters(pod)
            env = environment(pod, exporter)
            settings, archive = settings_of(env), env.get("MX_METRICS_ARCHIVE_DIR")
            assert settings.tee == (exporter["name"] == "mx-metrics")
            mounts = {one["mountPath"]: one["name"] for one in exporter["volumeMounts"]}
            volumes = {one["name"]: one for one in pod["volumes"]}
            assert "emptyDir" in volumes[mounts[settings.directory.path]]
            if example == "archive":
                assert archive
                kept = volumes[mounts[archive]]
                assert "persistentVolumeClaim" in kept
            else:
                assert archive is None


@pytest.mark.parametrize("example", ["deployment", "archive"])
def test_a_log_outlives_its_pod(example: str, spawn: support.Spawner, tmp_path: Path) -> None:
    """What `kubectl logs` shows of the sidecar, or the archive, replays to its page."""
    args, env = sidecar(example)
    log, archive, shown = tmp_path / "log", tmp_path / "archive", tmp_path / "shown"
    for folder in (log, archive):
        folder.mkdir()
    env["MX_METRICS_DIR"] = str(log)
    env["MX_METRICS_PORT"] = str(support.free_port())
    env["MX_METRICS_RETAIN_SECONDS"] = "0"
    if "MX_METRICS_ARCHIVE_DIR" in env:
        env["MX_METRICS_ARCHIVE_DIR"] = str(archive)
    for number, proc in enumerate(("aaaaaaaaaaaa", "bbbbbbbbbbbb"), 2):
        serving.attempts(log, number, proc)
    # The runtime keeps both streams in one log.
    with open(shown, "ab") as file:
        process = spawn.python("-m", "mx_exporter", *args, env=env, stdout=file, stderr=file)
    exporter = serving.Exporter(process, "127.0.0.1", int(env["MX_METRICS_PORT"]))
    support.wait_until(exporter.page)
    live = exporter.derived()
    assert b'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""} 5.0' in live
    if example == "archive":
        support.wait_until(lambda: len(list(archive.glob("*.gz"))) == 2)
    process.send_signal(signal.SIGTERM)
    assert process.result() == 0, shown.read_text()
    for file in log.iterdir():  # the pod and its emptyDir are gone
        file.unlink()
    for source in [shown, archive] if example == "archive" else [shown]:
        with open(shown, "rb") as stream:
            done = subprocess.run(
                [sys.executable, "-m", "mx_exporter", "replay", "-" if source == shown else source],
                stdin=stream,
                env=support.clean_environment(),
                capture_output=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        assert derived(done.stdout) == live
