"""The recorders that an engine calls: the published client's names and arguments.

Each logs its event and does nothing else. Labels are logged as text, ``str(value)``, as the client
labels them, numbers as they were given: what is a good label or a good observation is judged when
a metric is derived, not here. All take further keyword fields, which are logged too.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any

from .guards import log_call, recorder, timer, unknown
from .log.encode import number, text
from .logger import EventLogger, log
from .timers import ATTEMPT_PHASE, INSTALL_STEP, LOAD, LOAD_PHASE, LoadTimer, Timer

#: More candidates than a line could hold are not looked at.
_MAX_CANDIDATES = 10_000


class _Patchable(type):
    """What is set on the class later is what `metrics` calls, see `Recorders.__init__`."""

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        vars(metrics).pop(name, None)

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        vars(metrics).pop(name, None)


class Recorders(metaclass=_Patchable):
    """Records what happens during loads. No method raises, whatever it is given.

    ``seconds`` are durations in seconds, ``nbytes`` a size in bytes. A recorder that we do not
    know, of a newer client, is logged with its arguments as they were given.
    """

    def __init__(self, log: EventLogger = log) -> None:
        self._log = log
        # Before 3.12 a class that has ``__getattr__`` is slow, and what the instance has is found
        # at once; from then on it is the other way round.
        if sys.version_info < (3, 12):
            for name in vars(Recorders):
                if not name.startswith("_"):
                    setattr(self, name, getattr(self, name))

    # -- choosing a source ---------------------------------------------------------------

    @recorder("source_selected")
    def record_selection(
        self, /, policy: object, source_worker_id: object = None, **_more: object
    ) -> None:
        """A source was chosen."""
        self._log.info("source_selected", policy=policy, source_worker_id=source_worker_id)

    @recorder("source_attempted")
    def record_attempt(self, /, policy: object, result: object, **_more: object) -> None:
        """An attempt at a source ended with ``result``."""
        self._log.info("source_attempted", policy=policy, result=result)

    @recorder("metadata_lookup_failed")
    def record_metadata_failure(self, /, policy: object, **_more: object) -> None:
        """A source's metadata could not be had."""
        self._log.info("metadata_lookup_failed", policy=policy)

    @recorder("sources_listed")
    def record_list_sources(self, /, policy: object, result: object, **_more: object) -> None:
        """The sources were listed, or could not be."""
        self._log.info("sources_listed", policy=policy, result=result)

    @recorder("candidates_counted")
    def observe_candidates(
        self, /, policy: object, stage: object, count: object, **_more: object
    ) -> None:
        """``count`` candidates are left at ``stage`` of the selection."""
        self._log.info("candidates_counted", policy=policy, stage=stage, count=count)

    @recorder("sources_ordered")
    def observe_selection_seconds(
        self, /, policy: object, seconds: object, **_more: object
    ) -> None:
        """The candidates were put in order."""
        self._log.info("sources_ordered", policy=policy, seconds=seconds)

    @recorder("candidate_loads_seen")
    def observe_candidate_loads(self, /, ordered: Any, **_more: object) -> None:
        """The loads that candidates published, best candidate first.

        An element has ``worker_id``, ``source_load`` and a protobuf message's ``HasField``.
        """
        try:
            loads = _loads(ordered)
        except Exception:  # no sequence
            return log_call("observe_candidate_loads", ordered)
        if loads:
            self._log.info("candidate_loads_seen", loads=loads)

    # -- the transfer --------------------------------------------------------------------

    @recorder("nixl_failed")
    def record_nixl_error(self, /, kind: object, **_more: object) -> None:
        """The data plane failed."""
        self._log.info("nixl_failed", kind=kind)

    @recorder("nixl_received")
    def record_nixl_receive(self, /, result: object, **_more: object) -> None:
        """A receive ended with ``result``."""
        self._log.info("nixl_received", result=result)

    @recorder("transfer_finished")
    def observe_transfer_seconds(
        self, /, policy: object, outcome: object, seconds: object, **_more: object
    ) -> None:
        """A transfer ended with ``outcome``."""
        self._log.info("transfer_finished", policy=policy, outcome=outcome, seconds=seconds)

    @recorder("source_attempt_phase_finished")
    def observe_source_attempt_phase_seconds(
        self, /, policy: object, phase: object, outcome: object, seconds: object, **_more: object
    ) -> None:
        """A phase of a source attempt ended."""
        self._log.info(
            "source_attempt_phase_finished",
            policy=policy,
            phase=phase,
            outcome=outcome,
            seconds=seconds,
        )

    @timer(ATTEMPT_PHASE)
    def time_source_attempt_phase(self, /, policy: object, phase: object, **_more: object) -> Timer:
        """Times a phase of a source attempt; yields a span with ``seconds``."""
        return Timer(ATTEMPT_PHASE, {"policy": policy, "phase": phase})

    # -- the load ------------------------------------------------------------------------

    @recorder("load_finished")
    def observe_load_seconds(
        self,
        /,
        engine: object,
        model: object,
        model_role: object,
        outcome: object,
        seconds: object,
        **_more: object,
    ) -> None:
        """A load ended with ``outcome``, beside those that are timed: it ends none of them."""
        self._log.info(
            "load_finished",
            engine=engine,
            model=model,
            model_role=model_role,
            outcome=outcome,
            seconds=seconds,
            timed=False,
        )

    @timer(LOAD)
    def time_load(
        self, /, engine: object, model: object, model_role: object, **_more: object
    ) -> Timer:
        """Times a load. Events of its body carry its ``load_id``."""
        return LoadTimer(LOAD, {"engine": engine, "model": model, "model_role": model_role})

    @recorder("load_phase_finished")
    def observe_load_phase_seconds(
        self, /, engine: object, model: object, phase: object, seconds: object, **_more: object
    ) -> None:
        """A phase of a load ended, beside those that are timed: it ends none of them."""
        self._log.info(
            "load_phase_finished",
            engine=engine,
            model=model,
            phase=phase,
            seconds=seconds,
            timed=False,
        )

    @timer(LOAD_PHASE)
    def time_load_phase(
        self, /, engine: object, model: object, phase: object, **_more: object
    ) -> Timer:
        """Times a phase of a load."""
        return Timer(LOAD_PHASE, {"engine": engine, "model": model, "phase": phase})

    # -- installing compile caches -------------------------------------------------------

    @recorder("artifact_install_step_finished")
    def observe_artifact_install_step_seconds(
        self, /, artifact: object, archive: object, step: object, seconds: object, **_more: object
    ) -> None:
        """A step of installing an archive ended."""
        self._log.info(
            "artifact_install_step_finished",
            artifact=artifact,
            archive=archive,
            step=step,
            seconds=seconds,
        )

    @timer(INSTALL_STEP)
    def time_artifact_install_step(
        self, /, artifact: object, archive: object, step: object, **_more: object
    ) -> Timer:
        """Times a step of installing an archive."""
        return Timer(INSTALL_STEP, {"artifact": artifact, "archive": archive, "step": step})

    @recorder("artifact_extracted")
    def record_artifact_install_bytes(
        self, /, artifact: object, archive: object, nbytes: object, **_more: object
    ) -> None:
        """An archive of ``nbytes`` bytes was extracted."""
        self._log.info("artifact_extracted", artifact=artifact, archive=archive, bytes=nbytes)

    # -- recorders of newer clients ------------------------------------------------------

    if not TYPE_CHECKING:  # where a misspelt recorder is to be found

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return unknown(name)

    def _with_fields(self, fields: dict[str, Any], /) -> Recorders:
        """Recorders whose events carry ``fields``, too."""
        return Recorders(self._log.bind(**fields))

    def __reduce__(self) -> str:
        # An engine that copies or pickles an object which refers to us gets its process's own.
        return "metrics"


def _loads(ordered: Any) -> list[dict[str, Any]]:
    if not ordered:
        return []
    if type(ordered) not in (list, tuple) or len(ordered) > _MAX_CANDIDATES:
        # An iterator is the caller's to use up; the client reads slices of a sequence.
        if iter(ordered) is ordered:
            return []
        ordered = itertools.islice(ordered, _MAX_CANDIDATES)
    return [_candidate(each) for each in ordered]


def _candidate(candidate: Any) -> dict[str, Any]:
    """A candidate's id and load; None when it published none: that is never read as 0."""
    try:
        worker_id = candidate.worker_id
    except Exception:
        worker_id = None
    load: Any = None
    try:
        if candidate.HasField("source_load"):
            load = candidate.source_load
            if type(load) is not float:
                load = float(load)
            if not isfinite(load):
                load = number(load)
    except Exception:
        load = None
    if type(worker_id) is not str:
        worker_id = text(worker_id)
    return {"source_worker_id": worker_id, "load": load}


#: The recorders of this process.
metrics = Recorders()
