"""What the doctor says about the published client: would its recorders be routed to the log?"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import NamedTuple

import mx_activate

from ..modelexpress.routing import unknown_release

#: Our name among vLLM's plug-ins, as the distribution's metadata has it.
PLUGIN = "mx_metrics"

#: The group of entry points that vLLM loads its plug-ins from.
_GROUP = "vllm.general_plugins"

_BY_PLUGINS = "vLLM's plug-ins"

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
    plugins = environ.get("VLLM_PLUGINS")
    if unknown_release(client):
        route.obstacles.append(
            f"release {client} of modelexpress is unknown: its metrics stay as they are{then}"
        )
    elif route.by is None and not _names_us(plugins):
        route.obstacles.append(
            f"VLLM_PLUGINS={plugins!r} leaves us out{then}: add {PLUGIN} to it, or start the engine"
            " by `python -m mx_emitter run -- COMMAND...`"
        )
    elif route.by is None:
        route.obstacles.append(
            f"nothing here routes the client's metrics to the log{then}: start the engine by"
            " `python -m mx_emitter run -- COMMAND...`, unless it calls mx_emitter itself"
        )
    elif route.by == _BY_PLUGINS and not _is_there("vllm"):
        route.remarks.append(
            f"VLLM_PLUGINS names {PLUGIN}, and this Python has no vllm: ask the engine's own Python"
        )
    return route


def _found_by(environ: Mapping[str, str]) -> str | None:
    """What would route the client here. Naming our plug-in says that the engine is vLLM."""
    if mx_activate.active():
        return "sitecustomize"
    plugins = environ.get("VLLM_PLUGINS")
    vllm = plugins is not None or _is_there("vllm")
    there = any(each.name == PLUGIN for each in entry_points(group=_GROUP))
    return _BY_PLUGINS if vllm and there and _names_us(plugins) else None


def _names_us(plugins: str | None) -> bool:
    """Whether a value of ``VLLM_PLUGINS`` lets us be loaded; where it is unset, all are."""
    return plugins is None or PLUGIN in [name.strip() for name in plugins.split(",")]


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
