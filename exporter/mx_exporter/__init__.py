"""The exporter: follows a directory of segments, folds events into families, serves them.

For notebooks and scripts, logs after the fact:

    import mx_exporter
    state = mx_exporter.replay("/var/run/mx-metrics")
    for family in mx_exporter.samples(state):
        print(family.name, len(family.series))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_log.schema import VERSION as __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .core.catalog import Catalog
    from .core.state import State
    from .exposition.samples import FamilySamples

__all__ = ["Catalog", "State", "__version__", "replay", "samples"]


def replay(*logs: str, catalog: Catalog | None = None, jobs: int | None = None) -> State:
    """Fold logs into one state, as ``mx-metrics replay`` does. Nothing is changed.

    :param logs: directories, files, patterns; none is the directory of the environment.
    :param catalog: the families to derive; None: the built-in ones.
    :param jobs: processes at most; None: as many as there are cores.
    :raises UsageError: a path names nothing.
    :raises MxError: a snapshot cannot be used, or two of them know the same process.
    """
    from .directory.generations import retry_overtaken
    from .offline.fold_logs import fold_logs

    chosen = _catalog(catalog)
    return retry_overtaken(lambda: fold_logs(chosen, logs, jobs=jobs)).outcome.state


def samples(
    state: State, *, catalog: Catalog | None = None, source_id_label: bool = False
) -> Iterator[FamilySamples]:
    """The families of a state, in the order of a page; those without a series are left out.

    :param catalog: the one that the state was derived with; None: the built-in one.
    :param source_id_label: show the opt-in label ``source_worker_id``.
    """
    from .exposition.samples import derived_families

    return derived_families(_catalog(catalog), state, source_id_label=source_id_label)


def _catalog(given: Catalog | None) -> Catalog:
    from .core.builtin import CATALOG

    return CATALOG if given is None else given


def __getattr__(name: str) -> Any:
    if name == "Catalog":
        from .core.catalog import Catalog as found
    elif name == "State":
        from .core.state import State as found  # type: ignore[assignment]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
