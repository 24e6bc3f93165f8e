"""Options that say who reads the logs: processes of this machine, or a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .extras import require_packages

if TYPE_CHECKING:
    from ..offline.engines.engine import Engine

#: The value of ``--engine`` that means a cluster; no engine of loads is called so.
DASK = "dask"


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options, and the engine that they mean in place of its argument ``jobs``.

    One that chooses loads by ``--engine`` has that option already.
    """

    @wraps(command)
    def with_cluster(
        *args: Any,
        engines: tuple[str, ...],
        scheduler: str | None,
        jobs: int | None = None,
        **given: Any,
    ) -> Any:
        others = tuple(name for name in engines if name != DASK)
        if chooses:
            given["engines"] = others
        elif others:
            raise UsageError(f"--engine: bad value {others[0]!r}: expected {DASK}")
        with _workers(DASK in engines, scheduler, jobs) as engine:
            return command(*args, jobs=engine, **given)

    known = {param.name for param in getattr(command, "__click_params__", ())}
    chooses = "engines" in known
    wrapped = with_cluster
    if not chooses:
        wrapped = click.option(
            "--engine",
            "engines",
            multiple=True,
            metavar=DASK,
            help="Have a cluster of Dask read LOGS.",
        )(wrapped)
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="With --engine dask, which has a cluster of Dask read LOGS: where its scheduler is, "
        "tcp://HOST:8786 say. [default: a cluster of this machine's own]",
    )(wrapped)


@contextlib.contextmanager
def _workers(
    cluster: bool, scheduler: str | None, jobs: int | None
) -> Iterator[int | Engine | None]:
    """Who reads the logs.

    :param cluster: a cluster of Dask does, not processes of this command.
    :param scheduler: its address; None: a cluster of this machine's own, of ``jobs`` workers.
    :raises UsageError: options that do not go together.
    :raises MxError: there is no such scheduler, or its workers have another release.
    """
    if not cluster:
        if scheduler is not None:
            raise UsageError("--scheduler goes with --engine dask")
        yield jobs
        return
    if scheduler is not None and jobs is not None:
        raise UsageError("--scheduler and --jobs exclude each other: the cluster has its workers")
    require_packages(DASK)
    from ..offline.engines.dask_cluster import DaskCluster

    with DaskCluster(scheduler, jobs) as engine:
        yield engine
