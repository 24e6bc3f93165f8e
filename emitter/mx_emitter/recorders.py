"""The recorders that an engine calls: the published client's names and arguments.

Each says what its event holds and does nothing else. Labels are logged as text, ``str(value)``, as
the client labels them, numbers as they were given: what is a good label or a good observation is
judged when a metric is derived, not here. All take further keyword fields, which are logged too.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from math import isfinite
from typing import Any

from .log.encode import Plain, number, text
from .making import Fields, Label, Number, OptionalLabel, call_timer, log_call, logs, records, times

#: More candidates than a line could hold are not looked at.
_MAX_CANDIDATES = 10_000


class Recorders:
    """Records what happens during loads. No method raises, whatever it is given.

    ``seconds`` are durations in seconds, ``nbytes`` a size in bytes. A recorder that we do not
    know, of a newer client, is logged with its arguments as they were given.
    """

    def __init__(self) -> None:
        # Before 3.12 a class that has ``__getattr__`` is slow, and what the instance has is found
        # at once; from then on it is the other way round.
        if sys.version_info >= (3, 12):
            return
        for name in vars(Recorders):
            if not name.startswith("_"):
                setattr(self, name, getattr(self, name))

    # -- choosing a source ---------------------------------------------------------------

    @records("source_selected")
    def record_selection(
        self, /, policy: Label, source_worker_id: OptionalLabel = None, **_more: object
    ) -> None:
        """A source was chosen."""

    @records("source_attempted")
    def record_attempt(self, /, policy: Label, result: Label, **_more: object) -> None:
        """An attempt at a source ended with ``result``."""

    @records("metadata_lookup_failed")
    def record_metadata_failure(self, /, policy: Label, **_more: object) -> None:
        """A source's metadata could not be had."""

    @records("sources_listed")
    def record_list_sources(self, /, policy: Label, result: Label, **_more: object) -> None:
        """The sources were listed, or could not be."""

    @records("candidates_counted")
    def observe_candidates(
        self, /, policy: Label, stage: Label, count: Number, **_more: object
    ) -> None:
        """``count`` candidates are left at ``stage`` of the selection."""

    @records("sources_ordered")
    def observe_selection_seconds(self, /, policy: Label, seconds: Number, **_more: object) -> None:
        """The candidates were put in order."""

    @logs("candidate_loads_seen")
    def observe_candidate_loads(self, /, ordered: Any, **_more: object) -> Fields | None:
        """The loads that candidates published, best candidate first.

        An element has ``worker_id``, ``source_load`` and a protobuf message's ``HasField``.
        """
        if not ordered:
            return None
        if type(ordered) not in (list, tuple) or len(ordered) > _MAX_CANDIDATES:
            # An iterator is the caller's to use up; the client reads slices of a sequence.
            if iter(ordered) is ordered:
                return None
            ordered = itertools.islice(ordered, _MAX_CANDIDATES)
        return {"loads": [_candidate(each) for each in ordered]}

    # -- the transfer --------------------------------------------------------------------

    @records("nixl_failed")
    def record_nixl_error(self, /, kind: Label, **_more: object) -> None:
        """The data plane failed."""

    @records("nixl_received")
    def record_nixl_receive(self, /, result: Label, **_more: object) -> None:
        """A receive ended with ``result``."""

    @records("transfer_finished")
    def observe_transfer_seconds(
        self, /, policy: Label, outcome: Label, seconds: Number, **_more: object
    ) -> None:
        """A transfer ended with ``outcome``."""

    @records("source_attempt_phase_finished")
    def observe_source_attempt_phase_seconds(
        self, /, policy: Label, phase: Label, outcome: Label, seconds: Number, **_more: object
    ) -> None:
        """A phase of a source attempt ended."""

    @times("source_attempt_phase_started", "source_attempt_phase_finished", "ok", "error")
    def time_source_attempt_phase(self, /, policy: Label, phase: Label, **_more: object) -> None:
        """Times a phase of a source attempt; yields a span with ``seconds``."""

    # -- the load ------------------------------------------------------------------------

    @records("load_finished", timed=False)
    def observe_load_seconds(
        self,
        /,
        engine: Label,
        model: OptionalLabel,
        model_role: Label,
        outcome: Label,
        seconds: Number,
        **_more: object,
    ) -> None:
        """A load ended with ``outcome``, beside those that are timed: it ends none of them."""

    @times("load_started", "load_finished", "success", "error")
    def time_load(
        self, /, engine: Label, model: OptionalLabel, model_role: Label, **_more: object
    ) -> None:
        """Times a load. Events of its body carry its ``load_id``."""

    @records("load_phase_finished", timed=False)
    def observe_load_phase_seconds(
        self, /, engine: Label, model: OptionalLabel, phase: Label, seconds: Number, **_more: object
    ) -> None:
        """A phase of a load ended, beside those that are timed: it ends none of them."""

    @times("load_phase_started", "load_phase_finished")
    def time_load_phase(
        self, /, engine: Label, model: OptionalLabel, phase: Label, **_more: object
    ) -> None:
        """Times a phase of a load."""

    # -- installing compile caches -------------------------------------------------------

    @records("artifact_install_step_finished")
    def observe_artifact_install_step_seconds(
        self, /, artifact: Label, archive: Label, step: Label, seconds: Number, **_more: object
    ) -> None:
        """A step of installing an archive ended."""

    @times("artifact_install_step_started", "artifact_install_step_finished")
    def time_artifact_install_step(
        self, /, artifact: Label, archive: Label, step: Label, **_more: object
    ) -> None:
        """Times a step of installing an archive."""

    @records("artifact_extracted")
    def record_artifact_install_bytes(
        self, /, artifact: Label, archive: Label, nbytes: Number, **_more: object
    ) -> None:
        """An archive of ``nbytes`` bytes was extracted."""

    # -- recorders of newer clients ------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith(("record_", "observe_")):
            return functools.partial(log_call, name)
        if name.startswith("time_"):
            return lambda *args, **kwargs: call_timer(name, args, kwargs)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> str:
        # An engine that copies or pickles an object which refers to us gets its process's own.
        return "metrics"


def _candidate(candidate: Any) -> dict[str, Plain]:
    """A candidate's id and load; None when it published none: that is never read as 0."""
    try:
        worker_id = candidate.worker_id
    except Exception:
        worker_id = None
    load: Plain = None
    try:
        if candidate.HasField("source_load"):
            load = float(candidate.source_load)
            if not isfinite(load):
                load = number(load)
    except Exception:
        load = None
    if type(worker_id) is not str:
        worker_id = text(worker_id)
    return {"source_worker_id": worker_id, "load": load}


#: The recorders of this process.
metrics = Recorders()
