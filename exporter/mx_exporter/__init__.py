"""The exporter: follows a directory of segments, folds events into families, serves them.

For notebooks and scripts, logs after the fact:

    import mx_exporter
    state = mx_exporter.replay("/var/run/mx-metrics")
    for family in mx_exporter.samples(state):
        print(family.name, len(family.series))
    for load in mx_exporter.timeline("/var/run/mx-metrics"):
        print(load.began, load.process.pod, load.rank, load.outcome, load.seconds)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_log.schema import VERSION as __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .core.catalog import Catalog
    from .core.state import State
    from .exposition.samples import FamilySamples
    from .loads.model import Load
    from .offline.read_loads import LoadReader

__all__ = ["Catalog", "Load", "State", "__version__", "replay", "samples", "timeline"]


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


def timeline(*logs: str, jobs: int | None = None) -> Iterator[Load]:
    """The loads that logs tell of, each as soon as it is complete, in no order.

    Those that never ended come last. Loads of which only a snapshot is left cannot be told. What
    cannot be read is passed over; ``mx-metrics check`` says what that is.

    :param logs: directories, files, patterns; none is the directory of the environment.
    :param jobs: processes at most; None: as many as there are cores.
    :raises UsageError: a path names nothing.
    :raises MxError: an exporter compacted one of the directories meanwhile.
    """
    from .core.builtin import CATALOG
    from .directory.generations import retry_overtaken
    from .offline.read_loads import LoadReader

    return _loads(retry_overtaken(lambda: LoadReader(CATALOG, logs, jobs=jobs)))


def _loads(reader: LoadReader) -> Iterator[Load]:
    from .directory.generations import StartOver
    from .errors import MxError

    try:
        yield from reader
    except StartOver as overtaken:
        raise MxError(f"{overtaken}: was compacted while it was read; begin again") from None


def _catalog(given: Catalog | None) -> Catalog:
    from .core.builtin import CATALOG

    return CATALOG if given is None else given


def __getattr__(name: str) -> Any:
    if name == "Catalog":
        from .core.catalog import Catalog as found
    elif name == "State":
        from .core.state import State as found  # type: ignore[assignment]
    elif name == "Load":
        from .loads.model import Load as found  # type: ignore[assignment]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
