"""``mx-metrics push``: the metrics derived from a directory, to whatever keeps metrics.

There is one push for each pod, of a state that is folded from the log. It needs no living process,
so it comes after the end of every rank, however they ended, and replaces what the pod pushed
before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator

from ..config import DESTINATIONS, OPTIONS, SOURCE_ID_WARNING, Settings
from ..core.catalog import Catalog
from ..core.state import State
from ..directory.generations import retry_overtaken
from ..errors import MxError, UsageError
from ..exposition.fold_metrics import state_families
from ..exposition.samples import FamilySamples, derived_families
from ..offline.fold_logs import fold_logs
from ..offline.fold_sources import Outcome
from ..push.post import target
from ..tables.read import catalog_of

logger = logging.getLogger(__name__)


def run(settings: Settings, *, warnings: Iterable[str] = ()) -> int:
    """Push once; return 0, or 1 when a file could not be read to its end, so that what was pushed
    is short of it.

    :param warnings: warnings about the settings, for the log.
    :raises UsageError: there is nowhere to push to.
    :raises MxError: nothing was pushed, and why.
    """
    for warning in warnings:
        logger.warning("%s", warning)
    if settings.destination is None:
        flags = [str(OPTIONS[name].flag) for name in DESTINATIONS]
        raise UsageError(
            f"there is nowhere to push to; set {', '.join(flags[:-1])} or {flags[-1]}, or the "
            "variable MX_METRICS_PUSHGATEWAY, MX_METRICS_REMOTE_WRITE or MX_METRICS_OTLP"
        )
    if (endpoint := settings.asked_endpoint) is not None:
        raise MxError(
            f"nothing was pushed: both a port ({endpoint}) and "
            f"{DESTINATIONS[settings.destination]} are set, and what is served is not pushed as "
            "well; unset MX_METRICS_PORT to push"
        )
    return int(push(settings).read.short)


def push(settings: Settings) -> Outcome:
    """Fold the directory and push the metrics derived from it, with further tries.

    Files that could not be read to their end are logged, and are in what is returned.

    :raises MxError: nothing was pushed; the message says why.
    """
    path = settings.directory.path
    if (objection := settings.directory.objection()) is not None:
        raise MxError(f"nothing was pushed: {path} {objection}")
    catalog = catalog_of(settings.catalog)
    found, snapshots, outcome = retry_overtaken(
        # Absolute, since "-" is standard input.
        lambda: fold_logs(catalog, (os.path.abspath(path),), max_series=settings.max_series, jobs=1)
    )
    if not found.sources and not snapshots:
        raise MxError(f"nothing was pushed: there is no segment in {path}")
    for source, error in outcome.read.problems:
        logger.log(logging.ERROR if error.ours else logging.WARNING, "%s: %s", source.shown, error)
    if settings.source_id_label:
        logger.warning(SOURCE_ID_WARNING)
    shown = _send(list(_families(catalog, outcome.state, settings)), settings)
    logger.info("pushed to %s, as pod %s, from %s", shown, settings.pod, path)
    return outcome


def _send(families: list[FamilySamples], settings: Settings) -> str:
    """Send families to where the settings say; returns the address as it may be shown."""
    job, pod, token = settings.job, settings.pod, settings.bearer_token_file
    if settings.otlp is not None:
        try:
            from ..push import otlp
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("opentelemetry", "google"):
                raise
            raise MxError(
                "nothing was pushed: the package opentelemetry-proto is missing; install it with: "
                "pip install 'mx-metrics[exporter,otlp]'"
            ) from None
        to = target(otlp.metrics_address(settings.otlp), token)
        otlp.send_families(families, _resource(settings), to)
        return to.shown
    if settings.remote_write is not None:
        from ..push.remote_write import RemoteWriter, send_families

        to = target(settings.remote_write, token)
        send_families(families, [("job", job), ("pod", pod)], RemoteWriter(to))
        return to.shown
    from ..push.pushgateway import push_families

    assert settings.pushgateway is not None
    return push_families(families, settings.pushgateway, job=job, pod=pod)


def _resource(settings: Settings) -> dict[str, str]:
    """What OpenTelemetry's conventions call the pod, and where it is."""
    said = {
        "service.name": settings.job,
        "service.instance.id": settings.pod,
        "k8s.pod.uid": settings.pod_uid,
        "k8s.pod.name": settings.pod_name,
        "k8s.namespace.name": settings.pod_namespace,
        "k8s.node.name": settings.node_name,
    }
    return {name: value for name, value in said.items() if value}


def _families(catalog: Catalog, state: State, settings: Settings) -> Iterator[FamilySamples]:
    yield from derived_families(
        catalog,
        state,
        source_id_label=settings.source_id_label,
        max_series=settings.max_series,
    )
    yield from state_families(state)
