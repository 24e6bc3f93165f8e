"""The published client's recorders, routed to ours, in place.

Whoever uses them has the one object ``modelexpress.metrics.metrics``, imported by name, and what
is set on that object reaches everyone. All that the client does with metrics goes through it:
``enable_metrics`` ends in its ``_ensure``; the endpoint, its later tries and the push ask it for
``_exposition_registry``.
"""

from __future__ import annotations

import atexit
import importlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mx_activate

from ..context.client_release import client_version
from ..guards import parameters_of, unknown
from ..log import warn_once
from ..log.encode import text
from ..log.sink import sink
from ..recorders import Recorders, metrics
from ..settings import read_settings
from . import log_capture

_logger = logging.getLogger("mx_emitter")

#: Releases whose metrics were looked at. Later ones are routed while they have the same shape.
KNOWN = ("0.6.0", "0.7.0")

#: The first release with metrics, and the first that may break what it promised.
_SINCE, _BEFORE = (0, 6), (1, 0)

#: What every release that we know has, beside the recorders of the oldest.
_INNER = ("_ensure", "_start_exposition", "_try_bind", "_start_bind_retry", "_exposition_registry")
_RECORDERS = (
    "record_selection",
    "record_attempt",
    "record_metadata_failure",
    "record_list_sources",
    "record_nixl_error",
    "record_nixl_receive",
    "observe_candidates",
    "observe_selection_seconds",
    "observe_transfer_seconds",
)


def install() -> bool:
    """Route the recorders of the installed client to ours, now or as soon as it is imported.

    From then on the client binds no port, writes no ``.db`` file and pushes nothing. A port that
    it bound before stays bound; that is said. A client of an unknown release or shape is left as
    it is, with one warning. With metrics off nothing is touched. Idempotent, never raises.
    Returns whether the client is routed, or will be once it is imported.
    """
    try:
        if not read_settings().enabled:
            return False
        mx_activate.watch(route)
        if "modelexpress" not in sys.modules:
            return True
        # Waits for a thread that is importing it, perhaps since before we watched.
        return route(importlib.import_module(mx_activate.CLIENT))
    except Exception as error:
        warn_once.say("client", f"the client's metrics stay as they are: {text(error)}")
        return False


def route(module: ModuleType) -> bool:
    """Route ``module``, which is ``modelexpress.metrics``; whether that was done. Never raises."""
    try:
        client = getattr(module, "metrics", None)
        if client is not None and vars(client).get("_ensure") is _enable:
            return True
        objection = _objection(module)
        if objection is not None:
            warn_once.say("client", f"the client's metrics stay as they are: {objection}")
            return False
        bound = vars(client).get("_bind_owner") is True
        replaced: dict[str, Callable[..., Any]] = {
            name: _ours(name, given)
            for name, given in _methods(type(client)).items()
            if not name.startswith("_")
        }
        replaced.update(dict.fromkeys(_INNER, _nothing))
        replaced["_ensure"] = _enable
        replaced["_exposition_registry"] = _refuse
        # At once: another thread sees the client as it was, or routed.
        vars(client).update(replaced)
        atexit.unregister(module.push_metrics_if_enabled)
        log_capture.attach()
    except Exception as error:
        warn_once.say("client", f"the client's metrics stay as they are: {text(error)}")
        return False
    if bound:
        warn_once.say(
            "bound",
            f"the client has bound its port {os.environ.get('MX_METRICS_PORT', '')} already: that"
            " stays bound, and serves what was counted until now",
        )
    if client_version() not in KNOWN:
        _logger.info("modelexpress %s has the shape of %s: routed", client_version(), KNOWN[-1])
    return True


def unknown_release(version: str) -> bool:
    """Whether a release of the client is none that may be routed."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or not _SINCE <= (int(numbers[1]), int(numbers[2])) < _BEFORE


def _objection(module: ModuleType) -> str | None:
    """Why the client must be left as it is."""
    version = client_version()
    if unknown_release(version):
        return f"release {version} of modelexpress is unknown to mx-metrics"
    client = getattr(module, "metrics", None)
    methods = _methods(type(client))
    missing = [name for name in (*_INNER, *_RECORDERS) if name not in methods]
    missing += [
        name
        for name in ("enable_metrics", "push_metrics_if_enabled")
        if not callable(getattr(module, name, None))
    ]
    if missing or not hasattr(client, "__dict__"):
        return f"modelexpress {version} has another shape ({', '.join(missing) or 'metrics'})"
    return None


def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for each in reversed(kind.__mro__):
        found.update((name, value) for name, value in vars(each).items() if callable(value))
    return found


def _ours(name: str, given: Callable[..., Any]) -> Callable[..., Any]:
    """Our recorder of that name, or what keeps the calls of one that we do not know.

    One whose parameters changed we do not know either: its arguments must not be mistaken.
    """
    known = getattr(Recorders, name, None)
    same = known is None or all(
        ours == theirs
        for ours, theirs in zip(
            parameters_of(inspect.unwrap(known)), parameters_of(inspect.unwrap(given)), strict=False
        )
    )
    recorder: Callable[..., Any] = getattr(metrics, name) if same else unknown(name)
    return recorder


# --------------------------------------------------------------------------------------
# What stands on the client's object


def _enable() -> bool:
    log_capture.attach()  # the client has set up its loggers before it enables metrics
    return sink.enable()


def _nothing(*_args: object, **_kwargs: object) -> None:
    pass


def _refuse() -> None:
    # No OSError: a thread that waits for the port would try for ever.
    raise RuntimeError("metrics are logged by mx-metrics, whose exporter serves and pushes them")
