"""What manifests say, run: a Job's command with a real Pushgateway, and the monitor's TLS with a
real Prometheus."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests import support
from tests.support import DEPLOY, serving

KUBERNETES = DEPLOY / "kubernetes"


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / path).read_text()))


# --------------------------------------------------------------------------------------
# Jobs

#: In the place of evaluate.py.
BATCH = """
from mx_emitter import enable_metrics, metrics
enable_metrics()
for _ in range(7):
    metrics.record_nixl_receive("complete")
raise SystemExit(3)
"""


def test_a_job_pushes_as_its_manifest_says(
    spawn: support.Spawner, pushgateway: str, tmp_path: Path
) -> None:
    gateway = support.Pushgateway(spawn, pushgateway)
    (job,) = documents("examples/job/built.yaml")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    python, *words = container["command"]
    assert python == "python3"
    program = tmp_path / words.pop()
    program.write_text(BATCH)
    env = {one["name"]: one.get("value", f"the-{one['name']}") for one in container["env"]}
    # What is of the cluster: the volume and the gateway's address.
    env["MX_METRICS_DIR"] = str(tmp_path / "log")
    env["MX_METRICS_PUSHGATEWAY"] = f"http://{gateway.address}"
    # The engine is started by its name: it has to be the Python that has the emitter.
    env["PATH"] = str(Path(sys.executable).parent)
    run = spawn(sys.executable, *words, program, *container["args"], env=env)
    assert run.result() == 3, run.error_output
    assert "ERROR" not in run.error_output
    pushed = [
        line for line in gateway.page().splitlines() if line.startswith("mx_nixl_receive_total{")
    ]
    assert (
        'mx_nixl_receive_total{instance="",job="modelexpress",pod="the-POD_UID",'
        'result="complete",scheme=""} 7'
    ) in pushed


# --------------------------------------------------------------------------------------
# TLS


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Two folders as the kubelet and the operator make them: ``server``, which the sidecar mounts,
    and ``client``, which is Prometheus's Secret."""
    authority = trustme.CA()
    (monitor,) = documents("monitoring/podmonitor-tls.yaml")
    name = monitor["spec"]["podMetricsEndpoints"][1]["tlsConfig"]["serverName"]
    for side, identity in (("server", name), ("client", "prometheus")):
        folder = tmp_path / side
        folder.mkdir()
        certificate = authority.issue_cert(identity)
        (folder / "tls.crt").write_bytes(
            b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        )
        (folder / "tls.key").write_bytes(certificate.private_key_pem.bytes())
        (folder / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return tmp_path


def web(example: str) -> str:
    """The web configuration of an example."""
    found = documents(f"examples/{example}/built.yaml")
    (secret,) = (one for one in found if one["kind"] == "Secret")
    text: str = secret["stringData"]["web.yml"]
    return text


@pytest.mark.parametrize("example", ["tls", "passwords"])
def test_promtool_takes_the_web_configuration(example: str, promtool: str, secrets: Path) -> None:
    file = secrets / "server" / "web.yml"
    file.write_text(web(example))
    done = subprocess.run(
        [promtool, "check", "web-config", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_monitor_with_certificates_scrapes_a_sidecar_that_asks_for_them(
    parts: dict[str, dict[str, Any]],
    spawn: support.Spawner,
    prometheus: str,
    secrets: Path,
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    serving.attempts(log, 3)
    (secrets / "server" / "web.yml").write_text(web("tls"))
    (sidecar,) = parts["mx-metrics-tls-parts"]["spec"]["initContainers"]
    (mount,) = sidecar["volumeMounts"]
    args = [one.replace(mount["mountPath"], str(secrets / "server")) for one in sidecar["args"]]
    port = support.free_port()
    exporter = spawn.python(
        *("-m", "mx_exporter", *args, "--dir", log, "--listen", f"127.0.0.1:{port}")
    )

    # The probe: a connection, and nothing else.
    def probe() -> bool:
        assert exporter.poll() is None, exporter.error_output
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    assert sidecar["livenessProbe"].keys() >= {"tcpSocket"}
    support.wait_until(probe)

    (monitor,) = documents("monitoring/podmonitor-tls.yaml")
    endpoint = monitor["spec"]["podMetricsEndpoints"][1]
    given = endpoint["tlsConfig"]
    client = secrets / "client"
    tls = {
        "server_name": given["serverName"],
        "ca_file": str(client / given["ca"]["secret"]["key"]),
        "cert_file": str(client / given["cert"]["secret"]["key"]),
        "key_file": str(client / given["keySecret"]["key"]),
    }
    without_name = {name: value for name, value in tls.items() if name != "server_name"}
    nobody = {name: value for name, value in tls.items() if name in ("server_name", "ca_file")}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": name,
                "scheme": endpoint["scheme"],
                "metrics_path": endpoint["path"],
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                "tls_config": config,
            }
            for name, config in (("monitor", tls), ("address", without_name), ("nobody", nobody))
        ],
    }
    server = support.Prometheus(spawn, prometheus, tmp_path / "prometheus", yaml.safe_dump(config))

    def up() -> dict[str, str]:
        return {one["metric"]["job"]: one["value"][1] for one in server.query("up")}

    support.wait_until(lambda: len(up()) == 3 and up()["monitor"] == "1", 60)
    # By its address it is nobody's certificate; and who has none is nobody.
    assert up() == {"monitor": "1", "address": "0", "nobody": "0"}
    (series,) = server.query('mx_p2p_source_attempts_total{result="success"}')
    assert series["value"][1] == "3"
    assert probe()


def test_the_example_with_a_password_is_probed_without_one(
    spawn: support.Spawner, secrets: Path, tmp_path: Path
) -> None:
    file = secrets / "server" / "web.yml"
    file.write_text(web("passwords"))
    log = tmp_path / "log"
    log.mkdir()
    port = support.free_port()
    exporter = spawn.python(
        *("-m", "mx_exporter", "serve", f"--web.config.file={file}", "--dir", log),
        *("--listen", f"127.0.0.1:{port}"),
    )
    # As the kubelet asks: without a look at the certificate.
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE

    def status(path: str, **headers: str) -> int:
        assert exporter.poll() is None, exporter.error_output
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=unchecked)
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    support.wait_until(lambda: status("/healthz") == 200)
    assert status("/metrics") == 401
    token = base64.b64encode(b"prometheus:example").decode()
    support.wait_until(lambda: status("/metrics", Authorization=f"Basic {token}") == 200)
