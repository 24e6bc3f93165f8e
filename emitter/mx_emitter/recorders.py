"""The recorders that an engine calls: the published client's names and arguments.

Each logs its event and does nothing else. Labels are logged as text, ``str(value)``, as the client
labels them, numbers as they were given: what is a good label or a good observation is judged when
a metric is derived, not here. All take further keyword fields, which are logged too.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from mx_log.schema import EVENTS

from .log import warn_once
from .log.encode import number, text
from .log.sink import sink
from .logger import log
from .processors import rename
from .timers import (
    AttemptPhaseTimer,
    CallTimer,
    InstallStepTimer,
    LoadPhaseTimer,
    LoadTimer,
    NoTimer,
    Timer,
)

_Self = TypeVar("_Self")
_Given = ParamSpec("_Given")

#: More candidates than a line could hold are not looked at.
_MAX_CANDIDATES = 10_000

_NOT_GIVEN: Any = object()
_NO_TIMER = NoTimer()


def recorder(
    event: str,
) -> Callable[
    [Callable[Concatenate[_Self, _Given], None]], Callable[Concatenate[_Self, _Given], None]
]:
    """Make a recorder of a method that logs ``event``: it never raises.

    It does nothing while metrics are off. A call that does not fit the method is logged as one of
    a recorder that we do not know. A further field that is named as one of the event's own gets
    another name.
    """
    own = _field_names(event)

    def decorate(
        method: Callable[Concatenate[_Self, _Given], None],
    ) -> Callable[Concatenate[_Self, _Given], None]:
        name = method.__name__
        call: Callable[..., None] = method
        parameters = parameters_of(method)
        count = len(parameters)
        assert count <= 5

        # No signature that Python checks: what it refuses would be raised into the caller. And
        # five names instead of ``*args``, which takes half as long again while metrics are off.
        @functools.wraps(method)
        def record(
            self: object,
            a: object = _NOT_GIVEN,
            b: object = _NOT_GIVEN,
            c: object = _NOT_GIVEN,
            d: object = _NOT_GIVEN,
            e: object = _NOT_GIVEN,
            /,
            *rest: object,
            **named: object,
        ) -> None:
            if sink.off:
                return
            given: tuple[object, ...] = (a, b, c, d, e, _NOT_GIVEN)
            try:
                fits = given[count - 1] is not _NOT_GIVEN and given[count] is _NOT_GIVEN
                if fits and not rest and not named:
                    call(self, *given[:count])
                else:
                    given = (*(each for each in given if each is not _NOT_GIVEN), *rest)
                    call(self, *given, **_renamed(named, parameters, own))
                return
            except Exception:  # of the call: what logs the event raises nothing
                pass
            try:
                log_call(name, *(each for each in given if each is not _NOT_GIVEN), **named)
            except Exception:  # close to the recursion limit
                warn_once.uncounted += ("unencodable",)

        return cast("Callable[Concatenate[_Self, _Given], None]", record)

    return decorate


def timer(
    kind: type[Timer],
) -> Callable[
    [Callable[Concatenate[_Self, _Given], Timer]], Callable[Concatenate[_Self, _Given], Timer]
]:
    """Make a method that returns a timer of a ``kind`` never raise, as `recorder` does."""
    own = _field_names(kind.finished) | (_field_names(kind.started) if kind.started else set())

    def decorate(
        method: Callable[Concatenate[_Self, _Given], Timer],
    ) -> Callable[Concatenate[_Self, _Given], Timer]:
        name = method.__name__
        parameters = parameters_of(method)
        call: Callable[..., Timer] = method

        @functools.wraps(method)
        def time(self: object, /, *args: object, **named: object) -> Timer:
            try:
                return call(self, *args, **(named and _renamed(named, parameters, own)))
            except Exception:
                pass
            try:
                return time_call(name, *args, **named)
            except Exception:  # close to the recursion limit
                warn_once.uncounted += ("unencodable",)
                return _NO_TIMER

        return cast("Callable[Concatenate[_Self, _Given], Timer]", time)

    return decorate


def log_call(name: str, /, *args: object, **kwargs: object) -> None:
    """Log the call of a recorder that we do not know."""
    try:
        if not sink.off:
            log.info("recorder_called", recorder=name, args=args, kwargs=kwargs)
    except Exception:  # close to the recursion limit
        warn_once.uncounted += ("unencodable",)


def time_call(name: str, /, *args: object, **kwargs: object) -> Timer:
    """A timer that logs the call of one that we do not know."""
    return CallTimer(recorder=name, args=args, kwargs=kwargs)


def parameters_of(method: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that may be given by position, but the first."""
    code = method.__code__
    return code.co_varnames[1 : code.co_argcount]


def _field_names(event: str) -> frozenset[str]:
    return frozenset(field.name for field in EVENTS[event].fields)


def _renamed(
    named: dict[str, Any], parameters: tuple[str, ...], own: frozenset[str]
) -> dict[str, Any]:
    """Keyword arguments, of which none but the parameters is named as a field of the event."""
    for name in [name for name in named if name in own and name not in parameters]:
        rename(named, name)
    return named


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

    def __init__(self) -> None:
        # Before 3.12 a class that has ``__getattr__`` is slow, and what the instance has is found
        # at once; from then on it is the other way round.
        if sys.version_info < (3, 12):
            for name in vars(Recorders):
                if not name.startswith("_"):
                    vars(self)[name] = getattr(self, name)

    # -- choosing a source ---------------------------------------------------------------

    @recorder("source_selected")
    def record_selection(
        self, /, policy: object, source_worker_id: object = None, **more: object
    ) -> None:
        """A source was chosen."""
        log.info("source_selected", policy=policy, source_worker_id=source_worker_id, **more)

    @recorder("source_attempted")
    def record_attempt(self, /, policy: object, result: object, **more: object) -> None:
        """An attempt at a source ended with ``result``."""
        log.info("source_attempted", policy=policy, result=result, **more)

    @recorder("metadata_lookup_failed")
    def record_metadata_failure(self, /, policy: object, **more: object) -> None:
        """A source's metadata could not be had."""
        log.info("metadata_lookup_failed", policy=policy, **more)

    @recorder("sources_listed")
    def record_list_sources(self, /, policy: object, result: object, **more: object) -> None:
        """The sources were listed, or could not be."""
        log.info("sources_listed", policy=policy, result=result, **more)

    @recorder("candidates_counted")
    def observe_candidates(
        self, /, policy: object, stage: object, count: object, **more: object
    ) -> None:
        """``count`` candidates are left at ``stage`` of the selection."""
        log.info("candidates_counted", policy=policy, stage=stage, count=count, **more)

    @recorder("sources_ordered")
    def observe_selection_seconds(self, /, policy: object, seconds: object, **more: object) -> None:
        """The candidates were put in order."""
        log.info("sources_ordered", policy=policy, seconds=seconds, **more)

    @recorder("candidate_loads_seen")
    def observe_candidate_loads(self, /, ordered: Any, **more: object) -> None:
        """The loads that candidates published, best candidate first.

        An element has ``worker_id``, ``source_load`` and a protobuf message's ``HasField``.
        """
        if not ordered:
            return
        if type(ordered) not in (list, tuple) or len(ordered) > _MAX_CANDIDATES:
            # An iterator is the caller's to use up; the client reads slices of a sequence.
            if iter(ordered) is ordered:
                return
            ordered = itertools.islice(ordered, _MAX_CANDIDATES)
        log.info("candidate_loads_seen", loads=[_candidate(each) for each in ordered], **more)

    # -- the transfer --------------------------------------------------------------------

    @recorder("nixl_failed")
    def record_nixl_error(self, /, kind: object, **more: object) -> None:
        """The data plane failed."""
        log.info("nixl_failed", kind=kind, **more)

    @recorder("nixl_received")
    def record_nixl_receive(self, /, result: object, **more: object) -> None:
        """A receive ended with ``result``."""
        log.info("nixl_received", result=result, **more)

    @recorder("transfer_finished")
    def observe_transfer_seconds(
        self, /, policy: object, outcome: object, seconds: object, **more: object
    ) -> None:
        """A transfer ended with ``outcome``."""
        log.info("transfer_finished", policy=policy, outcome=outcome, seconds=seconds, **more)

    @recorder("source_attempt_phase_finished")
    def observe_source_attempt_phase_seconds(
        self, /, policy: object, phase: object, outcome: object, seconds: object, **more: object
    ) -> None:
        """A phase of a source attempt ended."""
        log.info(
            "source_attempt_phase_finished",
            policy=policy,
            phase=phase,
            outcome=outcome,
            seconds=seconds,
            **more,
        )

    @timer(AttemptPhaseTimer)
    def time_source_attempt_phase(self, /, policy: object, phase: object, **more: object) -> Timer:
        """Times a phase of a source attempt; yields a span with ``seconds``."""
        return AttemptPhaseTimer(policy=policy, phase=phase, **more)

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
        **more: object,
    ) -> None:
        """A load ended with ``outcome``, beside those that are timed: it ends none of them."""
        log.info(
            "load_finished",
            engine=engine,
            model=model,
            model_role=model_role,
            outcome=outcome,
            seconds=seconds,
            timed=False,
            **more,
        )

    @timer(LoadTimer)
    def time_load(
        self, /, engine: object, model: object, model_role: object, **more: object
    ) -> Timer:
        """Times a load. Events of its body carry its ``load_id``."""
        return LoadTimer(engine=engine, model=model, model_role=model_role, **more)

    @recorder("load_phase_finished")
    def observe_load_phase_seconds(
        self, /, engine: object, model: object, phase: object, seconds: object, **more: object
    ) -> None:
        """A phase of a load ended, beside those that are timed: it ends none of them."""
        log.info(
            "load_phase_finished",
            engine=engine,
            model=model,
            phase=phase,
            seconds=seconds,
            timed=False,
            **more,
        )

    @timer(LoadPhaseTimer)
    def time_load_phase(
        self, /, engine: object, model: object, phase: object, **more: object
    ) -> Timer:
        """Times a phase of a load."""
        return LoadPhaseTimer(engine=engine, model=model, phase=phase, **more)

    # -- installing compile caches -------------------------------------------------------

    @recorder("artifact_install_step_finished")
    def observe_artifact_install_step_seconds(
        self, /, artifact: object, archive: object, step: object, seconds: object, **more: object
    ) -> None:
        """A step of installing an archive ended."""
        log.info(
            "artifact_install_step_finished",
            artifact=artifact,
            archive=archive,
            step=step,
            seconds=seconds,
            **more,
        )

    @timer(InstallStepTimer)
    def time_artifact_install_step(
        self, /, artifact: object, archive: object, step: object, **more: object
    ) -> Timer:
        """Times a step of installing an archive."""
        return InstallStepTimer(artifact=artifact, archive=archive, step=step, **more)

    @recorder("artifact_extracted")
    def record_artifact_install_bytes(
        self, /, artifact: object, archive: object, nbytes: object, **more: object
    ) -> None:
        """An archive of ``nbytes`` bytes was extracted."""
        log.info("artifact_extracted", artifact=artifact, archive=archive, bytes=nbytes, **more)

    # -- recorders of newer clients ------------------------------------------------------

    if not TYPE_CHECKING:  # where a misspelt recorder is to be found

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return unknown(name)

    def __reduce__(self) -> str:
        # An engine that copies or pickles an object which refers to us gets its process's own.
        return "metrics"


def unknown(name: str) -> Callable[..., Any]:
    """What is called for a recorder, or a timer, that we do not know."""
    return functools.partial(time_call if name.startswith("time_") else log_call, name)


def _candidate(candidate: Any) -> dict[str, Any]:
    """A candidate's id and load; None when it published none: that is never read as 0."""
    try:
        worker_id = candidate.worker_id
    except Exception:
        worker_id = None
    load: object = None
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
