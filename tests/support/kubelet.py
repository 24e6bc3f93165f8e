"""A pod as the kubelet reads it: what each container has in its environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

#: A pod's facts by the path that the downward API has for them.
POD = {
    "metadata.name": "engine-0",
    "metadata.uid": "0b7c8a3e-0000-4000-8000-000000000000",
    "metadata.namespace": "models",
    "spec.nodeName": "node-7",
}


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod specs of a manifest."""
    spec = document.get("spec", {})
    if document["kind"] == "Pod":
        yield spec
    if "template" in spec:
        yield spec["template"]["spec"]
    for template in ("leaderTemplate", "workerTemplate"):
        if template in spec.get("leaderWorkerTemplate", {}):
            yield spec["leaderWorkerTemplate"][template]["spec"]


def environment(
    pod: dict[str, Any],
    container: dict[str, Any],
    services: Iterable[tuple[str, int]] = (),
    links: bool | None = None,
) -> dict[str, str]:
    """The variables of a container: those of the namespace's services (name and port), then its
    own. ``links`` takes the place of the pod's ``enableServiceLinks``."""
    found: dict[str, str] = {}
    if pod.get("enableServiceLinks", True) if links is None else links:
        for service, port in services:
            found.update(_links(service, port))
    for one in container.get("env", []):
        if "valueFrom" in one:
            found[one["name"]] = POD[one["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            found[one["name"]] = re.sub(
                r"\$\((\w+)\)", lambda m: found.get(m[1], m[0]), one.get("value", "")
            )
    return found


def _links(service: str, port: int) -> dict[str, str]:
    name, address = service.upper().replace("-", "_"), "10.0.0.1"
    url = f"tcp://{address}:{port}"
    return {
        f"{name}_SERVICE_HOST": address,
        f"{name}_SERVICE_PORT": str(port),
        f"{name}_PORT": url,
        f"{name}_PORT_{port}_TCP": url,
        f"{name}_PORT_{port}_TCP_PROTO": "tcp",
        f"{name}_PORT_{port}_TCP_PORT": str(port),
        f"{name}_PORT_{port}_TCP_ADDR": address,
    }
