"""The manifests are valid, add what they promise and nothing else, and match the code."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from mx_exporter.cli.main import cli
from mx_exporter.config import DEFAULT_PORT
from mx_log.files import DEFAULT_MAX_BYTES
from tests import support
from tests.support.kubelet import pods

KUBERNETES = support.ROOT / "deploy" / "kubernetes"
EXAMPLES = sorted(path.parent for path in KUBERNETES.glob("examples/*/kustomization.yaml"))
MEBIBYTE = 1024 * 1024

Pod = dict[str, Any]

#: What comes with components, beside the engine.
OURS = ("Secret", "PersistentVolumeClaim")


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def built(example: str) -> dict[str, Any]:
    """The engine of an example, with what its components add."""
    found = documents(KUBERNETES / "examples" / example / "built.yaml")
    (engine,) = (document for document in found if document["kind"] not in OURS)
    return engine


# --------------------------------------------------------------------------------------
# Validity

#: Values that kubernetes-validate takes any text for.
ENUMS = {
    "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "medium": {"", "Memory"},
    "protocol": {"TCP", "UDP"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "drop": {"ALL"},
    "accessModes": {"ReadWriteOnce", "ReadWriteMany"},
}
QUANTITY = re.compile(r"\d+(m|Mi|Gi)?")

_OBJECT = {"type": "object"}
_LABELS = {
    "type": "object",
    "required": ["matchLabels"],
    "additionalProperties": False,
    "properties": {"matchLabels": {"type": "object", "minProperties": 1}},
}
_DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


_KEY = _closed(["name", "key"], name={"type": "string"}, key={"type": "string"})
_TEMPLATE = _closed(["spec"], metadata=_OBJECT, spec=_OBJECT)
_RULE = {
    "oneOf": [
        _closed(["record", "expr"], record={"type": "string"}, expr={"type": "string"}),
        _closed(
            ["alert", "expr", "labels", "annotations"],
            alert={"type": "string"},
            expr={"type": "string"},
            labels=_OBJECT,
            annotations=_OBJECT,
            **{"for": _DURATION},
        ),
    ]
}

#: Custom resources, as far as the manifests use them; anything else is taken for a mistake.
CUSTOM = {
    "monitoring.coreos.com/v1 PodMonitor": _closed(
        ["selector", "podMetricsEndpoints"],
        selector=_LABELS,
        podMetricsEndpoints={
            "type": "array",
            "minItems": 1,
            "items": _closed(
                ["port"],
                port={"type": "string", "maxLength": 15},
                path={"type": "string", "pattern": "^/"},
                scheme={"enum": ["http", "https"]},
                tlsConfig=_closed(
                    ["serverName", "ca", "cert", "keySecret"],
                    serverName={"type": "string", "pattern": r"^[a-z0-9.-]+$"},
                    ca=_closed(["secret"], secret=_KEY),
                    cert=_closed(["secret"], secret=_KEY),
                    keySecret=_KEY,
                ),
                interval=_DURATION,
                scrapeTimeout=_DURATION,
                relabelings={
                    "type": "array",
                    "items": _closed(
                        ["sourceLabels", "targetLabel"],
                        sourceLabels={"type": "array", "items": {"type": "string"}},
                        targetLabel={"type": "string", "pattern": r"^[a-z_]+$"},
                    ),
                },
            ),
        },
    ),
    "monitoring.coreos.com/v1 PrometheusRule": _closed(
        ["groups"],
        groups={
            "type": "array",
            "items": _closed(
                ["name", "rules"],
                name={"type": "string"},
                interval=_DURATION,
                rules={"type": "array", "items": _RULE},
            ),
        },
    ),
    "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": _closed(
        ["leaderWorkerTemplate"],
        replicas={"type": "integer"},
        leaderWorkerTemplate=_closed(
            ["workerTemplate"],
            size={"type": "integer", "minimum": 1},
            leaderTemplate=_TEMPLATE,
            workerTemplate=_TEMPLATE,
        ),
    ),
}


def check_values(key: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if key in ("requests", "limits"):
                assert QUANTITY.fullmatch(str(inner)), f"{name}: {inner}"
            check_values(name, inner)
    elif isinstance(value, list):
        for inner in value:
            check_values(key, inner)
    elif key in ENUMS:
        assert value in ENUMS[key], f"{key}: {value}"
    elif key == "sizeLimit":
        assert QUANTITY.fullmatch(value), value


def check_pod(pod: Pod) -> None:
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | {"models"}
    everyone = [*pod.get("initContainers", []), *pod["containers"]]
    names = [container["name"] for container in everyone]
    assert len(names) == len(set(names))
    ports = [port["name"] for container in everyone for port in container.get("ports", [])]
    assert len(ports) == len(set(ports))
    for container in everyone:
        assert container["image"]
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        variables = [variable["name"] for variable in container.get("env", [])]
        assert len(variables) == len(set(variables))
        how = container.get("livenessProbe", {})
        probes = [how[name] for name in ("httpGet", "tcpSocket") if name in how]
        assert len(probes) <= 1
        for probe in probes:
            assert probe["port"] in [port["name"] for port in container["ports"]]


def check(document: dict[str, Any], version: str) -> None:
    kind = f"{document['apiVersion']} {document['kind']}"
    if kind in CUSTOM:
        assert document["metadata"]["name"]
        jsonschema.validate(document["spec"], CUSTOM[kind])
        for pod in pods(document):
            plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}
            kubernetes_validate.validate(plain, version, strict=True)
    else:
        kubernetes_validate.validate(document, version, strict=True)
    check_values("", document)
    for pod in pods(document):
        check_pod(pod)


MANIFESTS = sorted(
    path
    for path in KUBERNETES.rglob("*.yaml")
    if path.name not in ("kustomization.yaml", "values.yaml")
)


@pytest.mark.parametrize("version", ["1.29", "1.34"])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_manifests_are_valid(path: Path, version: str) -> None:
    found = documents(path)
    assert found
    for document in found:
        check(document, version)


def _set(document: Any, path: str, value: Any) -> None:
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in parents:
        document = document[key]
    document[last] = value


@pytest.mark.parametrize(
    ("example", "path", "value"),
    [
        ("deployment", "initContainers/1/restartPolicy", "Alwayz"),
        ("deployment", "initContainers/1/livenessProbe/httpGet/port", "metrics"),
        ("deployment", "initContainers/1/resources/limits/memory", "128Megs"),
        ("deployment", "initContainers/1/volumeMounts/0/name", "mx-metric"),
        ("deployment", "initContainers/1/securityContext/readOnlyRootFileSystem", True),
        ("deployment", "securityContext/fsGroupChangePolicy", "Never"),
        ("leaderworkerset", "containers/0/env/0/valu", "1"),
        ("job", "containers/0/volumeMounts/0/name", "mx-metric"),
        ("run", "containers/0/ports/1/name", "http"),
        ("tls", "initContainers/1/livenessProbe/tcpSocket/port", "metrics"),
        ("tls", "initContainers/1/livenessProbe/httpGet", {"port": "mx-metrics"}),
        ("tls", "volumes/2/projected/sources/0/secrt", {"name": "mx-metrics-web"}),
    ],
)
def test_mistakes_in_manifests_are_found(example: str, path: str, value: Any) -> None:
    document = built(example)
    check(document, "1.34")
    _set(next(pods(document)), path, value)
    with pytest.raises(
        (AssertionError, jsonschema.ValidationError, kubernetes_validate.ValidationError)
    ):
        check(document, "1.34")


# --------------------------------------------------------------------------------------
# What the components add

ADDED = {"mx-metrics", "mx-emitter"}
IDENTITY = {"POD_NAME", "POD_UID", "POD_NAMESPACE", "NODE_NAME"}
VARIABLES = {"MX_METRICS_ENABLED", "MX_METRICS_DIR", *IDENTITY}
WITH_EMITTER = "/var/run/mx-emitter/with-emitter"


def without(pod: Pod, group: int) -> Pod:
    """A pod without what the components add, and without the lists that this leaves empty."""
    pod = copy.deepcopy(pod)
    for name in ("volumes", "initContainers"):
        pod[name] = [part for part in pod.get(name, []) if part["name"] not in ADDED]
    engine = pod["containers"][0]
    engine["volumeMounts"] = [
        mount for mount in engine.get("volumeMounts", []) if mount["name"] not in ADDED
    ]
    engine["env"] = [one for one in engine.get("env", []) if one["name"] not in VARIABLES]
    if engine["command"][0] == WITH_EMITTER:
        del engine["command"][0]
    context = pod.setdefault("securityContext", {})
    context.pop("fsGroupChangePolicy", None)
    if context.get("fsGroup") == group:
        del context["fsGroup"]
    for part in (pod, engine):
        for name in [name for name, value in part.items() if value in ([], {})]:
            del part[name]
    return pod


@pytest.mark.parametrize("example", ["deployment", "leaderworkerset", "statefulset"])
def test_an_engine_gets_the_parts_and_nothing_else(
    example: str, parts: dict[str, dict[str, Any]]
) -> None:
    (before,) = documents(KUBERNETES / "examples" / example / "engine.yaml")
    after = built(example)
    wanted = parts["mx-metrics-parts"]["spec"]
    for old, new in zip(pods(before), pods(after), strict=True):
        assert without(new, wanted["securityContext"]["fsGroup"]) == old
        engine, pattern = new["containers"][0], wanted["containers"][0]
        assert wanted["volumes"][0] in new["volumes"]
        (sidecar,) = (one for one in new["initContainers"] if one["name"] == "mx-metrics")
        image = sidecar["image"].rpartition("/")[2]
        expected = wanted["initContainers"][0]
        assert sidecar == {**expected, "image": sidecar["image"]}
        assert image == expected["image"].rpartition("/")[2]
        for name in ("env", "volumeMounts"):
            assert [one for one in engine[name] if one in pattern[name]] == pattern[name]
        assert engine["image"] != pattern["image"]
    # And beside the pods nothing changes.
    for document in (before, after):
        for pod in pods(document):
            pod.clear()
    assert after == before


def test_pods_keep_a_group_of_their_own_when_told() -> None:
    (pod,) = pods(built("statefulset"))
    assert pod["securityContext"]["fsGroup"] == 1000


def test_the_emitter_comes_before_the_engine(parts: dict[str, dict[str, Any]]) -> None:
    both = list(pods(built("leaderworkerset")))
    assert len(both) == 2
    for pod in both:
        engine = pod["containers"][0]
        assert engine["command"][0] == WITH_EMITTER
        (copies,) = (one for one in pod["initContainers"] if one["name"] == "mx-emitter")
        assert copies == parts["mx-emitter-parts"]["spec"]["initContainers"][0]
        # No manifest sets the variable over an image's own.
        mine = [one["value"] for one in engine.get("env", []) if one["name"] == "PYTHONPATH"]
        assert mine in ([], ["/opt/plugins"])


def kustomized(
    kubectl: str, home: Path, engine: dict[str, Any], *components: str
) -> subprocess.CompletedProcess[str]:
    """What kustomize makes of an engine and components."""
    shutil.copytree(KUBERNETES / "components", home / "components")
    (home / "mine").mkdir()
    (home / "mine" / "engine.yaml").write_text(yaml.safe_dump(engine))
    listed = [f"../components/{name}" for name in components]
    (home / "mine" / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["engine.yaml"], "components": listed})
    )
    return subprocess.run(
        [kubectl, "kustomize", home / "mine"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("component", ["emitter", "run"])
def test_an_engine_without_a_command_is_refused(
    component: str, kubectl: str, tmp_path: Path
) -> None:
    """In front of an image's own entrypoint nothing can be put: better no manifest than a pod
    that runs something else."""
    (engine,) = documents(KUBERNETES / "examples" / "deployment" / "engine.yaml")
    del engine["spec"]["template"]["spec"]["containers"][0]["command"]
    done = kustomized(kubectl, tmp_path, engine, component)
    assert done.returncode != 0
    assert "command" in done.stderr


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_every_kind_gets_the_same(kind: str, kubectl: str, tmp_path: Path) -> None:
    """What a Deployment gets; the sidecar of a Job ends with it, being a native one."""
    (engine,) = documents(KUBERNETES / "examples" / "deployment" / "engine.yaml")
    got = {}
    for one in ("Deployment", kind):
        engine["kind"] = one
        components = ("sidecar", "emitter", "archive", "tls")
        done = kustomized(kubectl, tmp_path / one, engine, *components)
        assert done.returncode == 0, done.stderr
        (got[one],) = (
            document for document in yaml.safe_load_all(done.stdout) if document["kind"] not in OURS
        )
    ours = list(pods(got[kind]))
    assert ours == list(pods(got["Deployment"]))
    assert len(ours[0]["initContainers"]) == 3


def test_an_engine_under_run_gets_a_port_or_a_gateway(parts: dict[str, dict[str, Any]]) -> None:
    pattern = parts["mx-metrics-run-parts"]["spec"]
    wanted, job = pattern["containers"]
    for example, pushes in (("run", False), ("job", True)):
        (before,) = documents(KUBERNETES / "examples" / example / "engine.yaml")
        after = built(example)
        ((old,), (new,)) = (pods(document) for document in (before, after))
        assert new.pop("volumes") == pattern["volumes"]
        ((engine,), (plain,)) = (pod["containers"] for pod in (new, old))
        assert engine.pop("command") == [*wanted["command"], *plain.pop("command")]
        assert engine.pop("volumeMounts") == wanted["volumeMounts"]
        ports = [] if pushes else wanted["ports"]
        assert engine.pop("ports", []) == [*plain.pop("ports", []), *ports]
        got = {one["name"]: one for one in engine.pop("env")}
        expected = {one["name"]: one for one in wanted["env"]}
        if pushes:
            expected |= {one["name"]: one for one in job["env"]}
            # The example has another address.
            gateway = expected.pop("MX_METRICS_PUSHGATEWAY")
            assert got.pop("MX_METRICS_PUSHGATEWAY").keys() == gateway.keys()
        assert got == expected
        # And nothing else.
        assert after == before


def test_tls_changes_the_sidecar_alone(parts: dict[str, dict[str, Any]]) -> None:
    pattern = parts["mx-metrics-tls-parts"]["spec"]
    (wanted,) = pattern["initContainers"]
    before, after = built("deployment"), built("tls")
    ((plain,), (secured,)) = (pods(document) for document in (before, after))
    assert secured["volumes"].pop() == pattern["volumes"][0]
    sidecar = secured["initContainers"][1]
    assert sidecar["volumeMounts"].pop() == wanted["volumeMounts"][0]
    for name in ("args", "livenessProbe"):
        assert sidecar.pop(name) == wanted[name]
        del plain["initContainers"][1][name]
    assert after == before


def test_the_archive_changes_the_sidecar_alone(parts: dict[str, dict[str, Any]]) -> None:
    pattern = parts["mx-metrics-archive-parts"]["spec"]
    (wanted,), (volume,) = pattern["initContainers"], pattern["volumes"]
    before, after = built("deployment"), built("archive")
    (pod,) = pods(after)
    assert pod["volumes"].pop() == volume
    sidecar = pod["initContainers"][1]
    (mount,), (variable,) = wanted["volumeMounts"], wanted["env"]
    assert sidecar["volumeMounts"].pop() == mount
    assert sidecar["env"].pop() == variable
    assert after == before
    assert variable["value"] == mount["mountPath"]
    assert mount["name"] == volume["name"]
    (claim,) = documents(KUBERNETES / "components" / "archive" / "claim.yaml")
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_archive_and_tls_do_not_undo_each_other(kubectl: str, tmp_path: Path) -> None:
    """In either order; and in each template of a LeaderWorkerSet."""
    (engine,) = documents(KUBERNETES / "examples" / "leaderworkerset" / "engine.yaml")
    got = []
    for order in (("archive", "tls"), ("tls", "archive")):
        both = [one for name in ("sidecar", *order) for one in (name, f"{name}-leader")]
        done = kustomized(kubectl, tmp_path / order[0], engine, *both)
        assert done.returncode == 0, done.stderr
        (built,) = (one for one in yaml.safe_load_all(done.stdout) if one["kind"] not in OURS)
        found = [one for pod in pods(built) for one in pod["initContainers"]]
        assert len(found) == 2
        for sidecar in found:
            env = {one["name"]: one["value"] for one in sidecar["env"]}
            assert env["MX_METRICS_TEE"] == "1"
            assert "MX_METRICS_ARCHIVE_DIR" in env
            assert "--web.config.file=/etc/mx-metrics/web.yml" in sidecar["args"]
            assert len(sidecar["volumeMounts"]) == 3
        got.append([sorted(map(str, one["volumeMounts"])) for one in found])
    assert got[0] == got[1]


def test_no_secret_keeps_the_engine_from_starting(parts: dict[str, dict[str, Any]]) -> None:
    (volume,) = parts["mx-metrics-tls-parts"]["spec"]["volumes"]
    assert all(source["secret"]["optional"] for source in volume["projected"]["sources"])


def test_a_password_leaves_the_probe_a_request() -> None:
    plain, secured = (
        container["livenessProbe"]
        for name in ("deployment", "passwords")
        for pod in pods(built(name))
        for container in pod["initContainers"]
        if container["name"] == "mx-metrics"
    )
    assert secured["httpGet"].pop("scheme") == "HTTPS"
    assert secured == plain


# --------------------------------------------------------------------------------------
# True to the code


def test_the_sidecar_runs_a_command_that_exists(parts: dict[str, dict[str, Any]]) -> None:
    pod = parts["mx-metrics-parts"]["spec"]
    (sidecar,), (engine,) = pod["initContainers"], pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    for args in (
        sidecar["args"],
        parts["mx-metrics-tls-parts"]["spec"]["initContainers"][0]["args"],
    ):
        command, *rest = args
        flags = {flag for parameter in cli.commands[command].params for flag in parameter.opts}
        assert {flag.partition("=")[0] for flag in rest} <= flags
    assert sidecar["ports"][0]["containerPort"] == DEFAULT_PORT

    # Both look at the same place, which is the volume.
    (volume,) = pod["volumes"]
    for container in (sidecar, engine):
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        (mount,) = container["volumeMounts"]
        assert env["MX_METRICS_DIR"] == mount["mountPath"]
        assert mount["name"] == volume["name"]


def test_the_volume_has_room_for_the_log(parts: dict[str, dict[str, Any]]) -> None:
    (volume,) = parts["mx-metrics-parts"]["spec"]["volumes"]
    size = re.fullmatch(r"(\d+)Mi", volume["emptyDir"]["sizeLimit"])
    assert size
    writers, segment = 16, MEBIBYTE
    assert int(size[1]) * MEBIBYTE > DEFAULT_MAX_BYTES + writers * segment


def test_pods_keep_their_class_of_service(added: list[dict[str, Any]]) -> None:
    for container in added:
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert set(resources["limits"]) == {"cpu", "memory"}


def test_nothing_delays_the_engine_or_takes_its_pod_out_of_service(
    parts: dict[str, dict[str, Any]],
) -> None:
    (sidecar,) = parts["mx-metrics-parts"]["spec"]["initContainers"]
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert not {"startupProbe", "readinessProbe", "lifecycle"} & set(sidecar)


def test_no_container_of_ours_may_do_more_than_it_needs(added: list[dict[str, Any]]) -> None:
    for container in added:
        context = container["securityContext"]
        assert context["runAsNonRoot"]
        assert context["runAsUser"]
        assert context["readOnlyRootFilesystem"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("name", "example"),
    [("podmonitor", "deployment"), ("podmonitor", "run"), ("podmonitor-tls", "tls")],
)
def test_the_monitor_scrapes_both_ports_of_an_engine(name: str, example: str) -> None:
    (monitor,) = documents(KUBERNETES / "monitoring" / f"{name}.yaml")
    wanted = [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    document = built(example)
    (pod,) = pods(document)
    everyone = [*pod["containers"], *pod.get("initContainers", [])]
    assert wanted == [port["name"] for one in everyone for port in one.get("ports", [])]
    labels = document["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_rules_are_those_of_prometheus() -> None:
    (rule,) = documents(KUBERNETES / "monitoring" / "prometheusrule.yaml")
    plain = [
        group
        for path in sorted((support.ROOT / "deploy" / "prometheus").glob("*.rules.yaml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == plain
