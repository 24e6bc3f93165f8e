"""``mx-metrics push``: the metrics derived from a directory, to a Pushgateway.

There is one push for each pod, of a state that is folded from the log. It needs no living process,
so it comes after the end of every rank, however they ended, and replaces what the pod pushed
before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator

from ..config import SOURCE_ID_WARNING, Settings
from ..core.catalog import Catalog
from ..core.state import State
from ..directory.generations import retry_overtaken
from ..errors import MxError, UsageError
from ..exposition.fold_metrics import state_families
from ..exposition.samples import FamilySamples, derived_families
from ..offline.fold_logs import fold_logs
from ..offline.fold_sources import Outcome
from ..push.pushgateway import push_families
from ..push.remote_write import RemoteWriter, Target, send_families
from ..tables.read import catalog_of

logger = logging.getLogger(__name__)


def run(settings: Settings, *, remote: Target | None = None, warnings: Iterable[str] = ()) -> int:
    """Push once; return 0, or 1 when a file could not be read to its end, so that what was pushed
    is short of it.

    :param remote: where to push by remote write, in place of the gateway.
    :param warnings: warnings about the settings, for the log.
    :raises UsageError: there is no gateway to push to.
    :raises MxError: nothing was pushed, and why.
    """
    for warning in warnings:
        logger.warning("%s", warning)
    if remote is not None:
        return int(push(settings, remote).read.short)
    if settings.pushgateway is None:
        raise UsageError(
            "there is no gateway to push to; set --pushgateway or MX_METRICS_PUSHGATEWAY"
        )
    if (endpoint := settings.asked_endpoint) is not None:
        raise MxError(
            f"nothing was pushed: both a port ({endpoint}) and a Pushgateway are set, and what is "
            "served is not pushed as well; unset MX_METRICS_PORT to push"
        )
    return int(push(settings).read.short)


def push(settings: Settings, remote: Target | None = None) -> Outcome:
    """Fold the directory and push the metrics derived from it, with a second try.

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
    families = list(_families(catalog, outcome.state, settings))
    if remote is not None:
        writer = RemoteWriter(remote)
        send_families(families, [("job", settings.job), ("pod", settings.pod)], writer)
        gateway = remote.shown
    else:
        assert settings.pushgateway is not None
        gateway = push_families(families, settings.pushgateway, job=settings.job, pod=settings.pod)
    logger.info("pushed to %s, as pod %s, from %s", gateway, settings.pod, path)
    return outcome


def _families(catalog: Catalog, state: State, settings: Settings) -> Iterator[FamilySamples]:
    yield from derived_families(
        catalog,
        state,
        source_id_label=settings.source_id_label,
        max_series=settings.max_series,
    )
    yield from state_families(state)
