"""What the environment says, read once and frozen. Nothing else here reads ``os.environ`` for it.

A bad value is its default and one warning: an engine may not fail for its metrics.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mx_log.files import DEFAULT_DIRECTORY, DEFAULT_MAX_BYTES
from mx_log.values import FALSE, TRUE, well_formed, whole_number
from mx_log.variables import DIRECTORY, ENABLED, IDENTITY, POD, given, no_switch

#: Most characters of a further field of a header.
IDENTITY_CHARACTERS = 100

#: Default of ``MX_METRICS_SEGMENT_BYTES``.
DEFAULT_SEGMENT_BYTES = 1024 * 1024

#: A segment is never larger than this part of ``MX_METRICS_MAX_BYTES``.
SEGMENTS_PER_LIMIT = 8

#: Levels of ``MX_METRICS_CAPTURE_LOGS``.
CAPTURED = {"warning": logging.WARNING, "info": logging.INFO}


class Pod(NamedTuple):
    """Who the pod is, by Kubernetes' downward API; None where the variable is unset."""

    name: str | None = None
    uid: str | None = None
    namespace: str | None = None
    node: str | None = None


class Settings(NamedTuple):
    """The emitter's settings.

    ``directory`` is absolute; ``named`` says that ``MX_METRICS_DIR`` named it. Sizes are bytes.
    ``identity`` holds further fields of each header. ``capture_logs`` is the least level of the
    client's log records to be logged as events, None for none. ``problems`` holds a sentence for
    each variable whose value was not understood.
    """

    enabled: bool = False
    directory: str = DEFAULT_DIRECTORY
    named: bool = False
    scheme: str = ""
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    max_bytes: int = DEFAULT_MAX_BYTES
    pod: Pod = Pod()
    identity: Mapping[str, str] = MappingProxyType({})
    capture_logs: int | None = None
    problems: tuple[str, ...] = ()


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from ``environ`` (default: the process's). Raises nothing."""
    if environ is None:
        environ = os.environ
    problems: list[str] = []

    def size(name: str, default: int) -> int:
        text = given(environ, name)
        if not text:
            return default
        try:
            value = whole_number(text)
        except ValueError:
            value = 0
        if value > 0:
            return value
        problems.append(f"{name}={text[:80]!r} is not a positive number of bytes; using {default}")
        return default

    def optional(name: str) -> str | None:
        value = environ.get(name)
        return well_formed(value) if value else None

    problems += filter(None, [no_switch(environ)])
    capture = given(environ, "MX_METRICS_CAPTURE_LOGS").lower()
    if capture and capture not in CAPTURED and capture not in FALSE:
        problems.append(
            f"MX_METRICS_CAPTURE_LOGS={capture[:80]!r} is neither WARNING nor INFO; no log records"
            " are captured"
        )
    named = given(environ, DIRECTORY)
    max_bytes = size("MX_METRICS_MAX_BYTES", DEFAULT_MAX_BYTES)
    segment_bytes = size("MX_METRICS_SEGMENT_BYTES", DEFAULT_SEGMENT_BYTES)
    return Settings(
        enabled=given(environ, ENABLED).lower() in TRUE,
        directory=_absolute(named or DEFAULT_DIRECTORY),
        named=bool(named),
        scheme=well_formed(environ.get("MX_METRICS_SCHEME", "")),
        segment_bytes=max(1, min(segment_bytes, max_bytes // SEGMENTS_PER_LIMIT)),
        max_bytes=max_bytes,
        pod=Pod(*map(optional, POD)),
        identity=_identity(environ),
        capture_logs=CAPTURED.get(capture),
        problems=tuple(problems),
    )


def _identity(environ: Mapping[str, str]) -> dict[str, str]:
    """What engines, images and launchers state of who logs: of each field the first one set."""
    found = {}
    for field, names in IDENTITY.items():
        stated = [value for name in names if (value := given(environ, name))]
        if stated:
            found[field] = well_formed(stated[0][:IDENTITY_CHARACTERS])
    return found


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)  # a later chdir of the engine must not move the log
    except OSError:  # the working directory is gone
        return path
