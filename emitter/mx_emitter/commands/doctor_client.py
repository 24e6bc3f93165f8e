"""What the doctor says about the published client: would its recorders be routed to the log?"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import NamedTuple

import mx_activate

from ..modelexpress.routing import unknown_release

#: Our name among vLLM's plug-ins, as the distribution's metadata has it.
PLUGIN = "mx_metrics"

_RAY = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_NODE_ID")


class Route(NamedTuple):
    """How the client gets to us, with what stands in the way and what is worth knowing."""

    by: str | None
    obstacles: list[str]
    remarks: list[str]


def examine_route(client: str | None, enabled: bool, environ: Mapping[str, str]) -> Route:
    """Examine how release ``client`` (None: not installed) would be routed. Imports no engine."""
    route = Route(_found_by(environ), [], [])
    if not enabled:
        if any(name in environ for name in _RAY):
            route.remarks.append(
                "this is a process of Ray's, whose workers have their node's environment, not their"
                " driver's: set the variables on each node, or by runtime_env"
            )
        return route
    if client is None:
        return route
    port = _port(environ)
    then = f", and it binds port {port}" if port else ""
    if unknown_release(client):
        route.remarks.append(
            f"release {client} of modelexpress is unknown: its metrics stay as they are{then}"
        )
    elif route.by is None and "VLLM_PLUGINS" in environ:
        route.obstacles.append(
            f"VLLM_PLUGINS={environ['VLLM_PLUGINS']!r} leaves us out{then}: add {PLUGIN} to it, or"
            " start the engine by `python -m mx_emitter run -- COMMAND...`"
        )
    elif route.by is None:
        route.remarks.append(
            f"nothing here routes the client's metrics to the log{then}: start the engine by"
            " `python -m mx_emitter run -- COMMAND...`, unless it calls mx_emitter itself"
        )
    return route


def _found_by(environ: Mapping[str, str]) -> str | None:
    if mx_activate.active():
        return "sitecustomize"
    plugins = environ.get("VLLM_PLUGINS")
    named = plugins is None or PLUGIN in [name.strip() for name in plugins.split(",")]
    return "vLLM's plug-ins" if named and _is_there("vllm") else None


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # something that was put in its place
        return False


def _port(environ: Mapping[str, str]) -> int | None:
    try:
        port = int(environ.get("MX_METRICS_PORT", ""))
    except ValueError:
        return None
    return port if port > 0 else None
