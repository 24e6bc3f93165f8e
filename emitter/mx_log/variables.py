"""The names of all variables, and what in an environment looks like one and is none.

The emitter and the exporter read their settings by it. A mistake in a name is no error anywhere,
so it can only be said (`doubts`): the value goes nowhere, and nothing else would tell why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping

from .values import FALSE, TRUE

#: What turns metrics on.
ENABLED = "MX_METRICS_ENABLED"

#: Where the log lies.
DIRECTORY = "MX_METRICS_DIR"

#: Who the pod is, by Kubernetes' downward API.
POD = ("POD_NAME", "POD_UID", "POD_NAMESPACE", "NODE_NAME")

#: Who logs: fields of a header, and the variables of engines, images and launchers that state them.
IDENTITY = {
    "worker_id": ("WORKER_ID", "LWS_WORKER_INDEX", "JOB_COMPLETION_INDEX"),
    "engine_version": ("ENGINE_VERSION", "VLLM_VERSION", "SGLANG_VERSION", "TRT_LLM_VERSION"),
    "tensor_parallel_size": ("TENSOR_PARALLEL_SIZE", "TP_SIZE"),
    "gpu_type": ("GPU_TYPE",),
}

#: What the emitter reads.
OF_EMITTER = frozenset(
    {
        *(ENABLED, DIRECTORY, "MX_METRICS_SCHEME", "MX_METRICS_SEGMENT_BYTES"),
        *("MX_METRICS_MAX_BYTES", "MX_METRICS_CAPTURE_LOGS", *POD),
        *(name for names in IDENTITY.values() for name in names),
    }
)

#: What anybody reads: the emitter, the exporter, or the published client, whose names are among
#: these.
NAMES = OF_EMITTER | {
    *("MX_METRICS_PORT", "MX_METRICS_SOURCE_ID_LABEL", "MX_METRICS_MAX_SERIES"),
    *("MX_METRICS_RETAIN_BYTES", "MX_METRICS_RETAIN_SECONDS", "MX_METRICS_BIND_RETRY_SECS"),
    *("MX_METRICS_PUSHGATEWAY", "MX_METRICS_REMOTE_WRITE", "MX_METRICS_OTLP"),
    *("MX_METRICS_BEARER_TOKEN_FILE", "MX_METRICS_TEE", "MX_METRICS_ARCHIVE_DIR"),
    "MX_METRICS_CATALOG",
    "PROMETHEUS_DISABLE_CREATED_SERIES",
}

_PREFIX = "MX_METRICS_"

#: What Kubernetes names beside ``<SERVICE>_PORT``, for each Service of a namespace, in every pod.
_LINK = r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_[A-Z]+(_(PROTO|PORT|ADDR))?)"

#: Most doubts that are said of one environment, and most characters of a value.
_MOST, _SHOWN = 10, 80


def given(environ: Mapping[str, str], name: str) -> str:
    """The value of ``name``, trimmed; empty where it is unset, blank or a service link."""
    return "" if is_service_link(environ, name) else environ.get(name, "").strip()


def is_service_link(environ: Mapping[str, str], name: str) -> bool:
    """Whether Kubernetes set ``name`` for a Service, which may well be called as our prefix is."""
    if name.endswith("_PORT") and "://" in environ.get(name, ""):
        return True
    return re.fullmatch(_LINK, name, re.ASCII) is not None


def no_switch(environ: Mapping[str, str]) -> str | None:
    """A sentence about a value of `ENABLED` that is neither on nor off, or None."""
    value = environ.get(ENABLED, "").strip()
    if not value or value.lower() in TRUE or value.lower() in FALSE:
        return None
    return f"{ENABLED}={_shown(value)} is none of 1, true, yes, on; metrics stay off"


def doubts(environ: Mapping[str, str], names: Collection[str] = NAMES) -> list[str]:
    """A sentence for each variable that can hardly be meant as it is; most often there is none.

    :param names: what the caller reads. Values of others are not looked at, their names are.
    """
    found: list[str] = []
    for name in environ:
        if len(found) == _MOST:
            break
        if name in NAMES:
            found += _of_value(environ, name) if name in names else ()
        elif _like_ours(name) and not is_service_link(environ, name):
            found += _of_name(name)
    return found


def _of_value(environ: Mapping[str, str], name: str) -> Iterator[str]:
    value = environ[name].strip()
    if is_service_link(environ, name):
        service = name.removesuffix("_PORT").lower().replace("_", "-")
        yield (
            f"{name}={_shown(value)} is what Kubernetes sets for a Service named {service}; it"
            " counts as not set"
        )
    elif name == ENABLED:
        yield from filter(None, [no_switch(environ)])
    elif len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        yield f"{name}={_shown(value)} is in quotes, which are a part of it; write it without them"
    elif name == DIRECTORY and value and not os.path.isabs(value):
        yield (
            f"{name}={_shown(value)} is not absolute: each process looks for it below its own"
            " working directory; write it from / on"
        )


def _like_ours(name: str) -> bool:
    """Whether a name begins nearly as ours do: at most one of nine letters is another."""
    if name[:2].upper() != "MX":  # most names of an environment
        return False
    head = [letter for letter in name.upper() if letter.isalpha()][:10]
    missing = 0
    for letter in "MXMETRICS":
        if letter in head:
            head.remove(letter)
        else:
            missing += 1
    return missing <= 1


def _of_name(name: str) -> Iterator[str]:
    from difflib import get_close_matches  # costs a rank's import, and is rarely needed

    spelt = re.sub(r"\W", "_", name.upper(), flags=re.ASCII)
    rest = re.sub(r"^MX_?METRICS?_?", "", spelt)
    ours = sorted(known for known in NAMES if known.startswith(_PREFIX))
    meant: list[str] = []
    if rest == spelt:  # the beginning itself is misspelt, or it is another's
        meant = get_close_matches(spelt, ours, 1, 0.85)
        if not meant:
            return
    elif len(rest) > 2:
        ends = {known.removeprefix(_PREFIX): known for known in ours}
        close = [end for end in ends if end.startswith(rest) or rest.startswith(end)]
        close += [end for end in ends if end.endswith(rest)]
        close += get_close_matches(rest, ends, 1, 0.65)
        meant = [ends[end] for end in close]
    plain = name if name.isascii() and name.isidentifier() else _shown(name)
    yield f"{plain} is no setting" + (f"; {meant[0]}?" if meant else "")


def _shown(text: str) -> str:
    return repr(text[:_SHOWN])
