"""The recorders that an engine calls: the published client's names and arguments.

Each says what its event holds and does nothing else. Labels are logged as text, ``str(value)``, as
the client labels them, numbers as they were given: what is a good label or a good observation is
judged when a metric is derived, not here. All take further keyword fields, which are logged too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeAlias

from . import trouble
from .encode import Plain, number, plain, plain_fields, text
from .sink import sink
from .timers import LoadTimer, Span, Timer

_Given = ParamSpec("_Given")
_Fields: TypeAlias = dict[str, Any]

#: More candidates than a line could hold are not looked at.
_MAX_CANDIDATES = 10_000

_CALLED = b'"recorder_called"'
_UNKNOWN_SPAN = Span(None, _CALLED)


def _parameters(method: Callable[..., Any]) -> frozenset[str]:
    code = method.__code__
    return frozenset(code.co_varnames[1 : code.co_argcount])


def _records(
    event: str,
) -> Callable[
    [Callable[Concatenate[Recorders, _Given], _Fields | None]],
    Callable[Concatenate[Recorders, _Given], None],
]:
    """Make a recorder of a method that returns its event's fields (None: nothing to log)."""
    name = b'"%b"' % event.encode()

    def decorate(
        fields_of: Callable[Concatenate[Recorders, _Given], _Fields | None],
    ) -> Callable[Concatenate[Recorders, _Given], None]:
        parameters = _parameters(fields_of)

        def record(self: Recorders, /, *args: _Given.args, **kwargs: _Given.kwargs) -> None:
            if sink.off:
                return
            try:
                event = name
                try:
                    fields = fields_of(self, *args, **kwargs)
                    if kwargs and fields is not None:
                        _add(fields, kwargs, parameters)
                except Exception:  # arguments that we have no place for: a newer client's
                    event, fields = _CALLED, _call(fields_of.__name__, args, kwargs)
                if fields is not None:
                    sink.emit(event, fields)
            except Exception:
                trouble.uncounted += ("unencodable",)

        functools.update_wrapper(record, fields_of)
        return record

    return decorate


def _times(
    started: str, finished: str, good: str | None = None, bad: str | None = None
) -> Callable[
    [Callable[Concatenate[Recorders, _Given], _Fields]],
    Callable[Concatenate[Recorders, _Given], Timer],
]:
    """Make a timer of a method that returns the fields of the start event."""
    span = Span(b'"%b"' % started.encode(), b'"%b"' % finished.encode(), good, bad)
    kind = LoadTimer if started == "load_started" else Timer

    def decorate(
        fields_of: Callable[Concatenate[Recorders, _Given], _Fields],
    ) -> Callable[Concatenate[Recorders, _Given], Timer]:
        parameters = _parameters(fields_of)

        def timer(self: Recorders, /, *args: _Given.args, **kwargs: _Given.kwargs) -> Timer:
            if sink.off:
                return kind(span, {})
            try:
                fields = fields_of(self, *args, **kwargs)
                if kwargs:
                    _add(fields, kwargs, parameters)
                return kind(span, fields)
            except Exception:
                return self._call_timer(fields_of.__name__, args, kwargs)

        functools.update_wrapper(timer, fields_of)
        return timer

    return decorate


class Recorders:
    """Records what happens during loads. No method raises, whatever it is given.

    ``seconds`` are durations in seconds, ``nbytes`` a size in bytes. A recorder that we do not
    know, of a newer client, is logged with its arguments as they were given.
    """

    # -- choosing a source ---------------------------------------------------------------

    @_records("source_selected")
    def record_selection(
        self, /, policy: object, source_worker_id: object = None, **_more: object
    ) -> _Fields:
        """A source was chosen."""
        return {
            "policy": text(policy),
            "source_worker_id": _text_or_none(source_worker_id),
        }

    @_records("source_attempted")
    def record_attempt(self, /, policy: object, result: object, **_more: object) -> _Fields:
        """An attempt at a source ended with ``result``."""
        return {"policy": text(policy), "result": text(result)}

    @_records("metadata_lookup_failed")
    def record_metadata_failure(self, /, policy: object, **_more: object) -> _Fields:
        """A source's metadata could not be had."""
        return {"policy": text(policy)}

    @_records("sources_listed")
    def record_list_sources(self, /, policy: object, result: object, **_more: object) -> _Fields:
        """The sources were listed, or could not be."""
        return {"policy": text(policy), "result": text(result)}

    @_records("candidates_counted")
    def observe_candidates(
        self, /, policy: object, stage: object, count: object, **_more: object
    ) -> _Fields:
        """``count`` candidates are left at ``stage`` of the selection."""
        return {"policy": text(policy), "stage": text(stage), "count": number(count)}

    @_records("sources_ordered")
    def observe_selection_seconds(
        self, /, policy: object, seconds: object, **_more: object
    ) -> _Fields:
        """The candidates were put in order."""
        return {"policy": text(policy), "seconds": number(seconds)}

    @_records("candidate_loads_seen")
    def observe_candidate_loads(self, /, ordered: Any, **_more: object) -> _Fields | None:
        """The loads that candidates published, best candidate first.

        An element has ``worker_id``, ``source_load`` and a protobuf message's ``HasField``.
        """
        # An iterator is the caller's to use up; the client reads slices of a sequence.
        if not ordered or iter(ordered) is ordered:
            return None
        loads = [_candidate(each) for each in itertools.islice(ordered, _MAX_CANDIDATES)]
        return {"loads": loads}

    # -- the transfer --------------------------------------------------------------------

    @_records("nixl_failed")
    def record_nixl_error(self, /, kind: object, **_more: object) -> _Fields:
        """The data plane failed."""
        return {"kind": text(kind)}

    @_records("nixl_received")
    def record_nixl_receive(self, /, result: object, **_more: object) -> _Fields:
        """A receive ended with ``result``."""
        return {"result": text(result)}

    @_records("transfer_finished")
    def observe_transfer_seconds(
        self, /, policy: object, outcome: object, seconds: object, **_more: object
    ) -> _Fields:
        """A transfer ended with ``outcome``."""
        return {
            "policy": text(policy),
            "outcome": text(outcome),
            "seconds": number(seconds),
        }

    @_records("source_attempt_phase_finished")
    def observe_source_attempt_phase_seconds(
        self, /, policy: object, phase: object, outcome: object, seconds: object, **_more: object
    ) -> _Fields:
        """A phase of a source attempt ended."""
        return {
            "policy": text(policy),
            "phase": text(phase),
            "outcome": text(outcome),
            "seconds": number(seconds),
        }

    @_times("source_attempt_phase_started", "source_attempt_phase_finished", "ok", "error")
    def time_source_attempt_phase(
        self, /, policy: object, phase: object, **_more: object
    ) -> _Fields:
        """Times a phase of a source attempt; yields a span with ``seconds``."""
        return {"policy": text(policy), "phase": text(phase)}

    # -- the load ------------------------------------------------------------------------

    @_records("load_finished")
    def observe_load_seconds(
        self,
        /,
        engine: object,
        model: object,
        model_role: object,
        outcome: object,
        seconds: object,
        **_more: object,
    ) -> _Fields:
        """A load ended with ``outcome``, beside those that are timed: it ends none of them."""
        return {
            "engine": text(engine),
            "model": _text_or_none(model),
            "model_role": text(model_role),
            "outcome": text(outcome),
            "seconds": number(seconds),
            "timed": False,
        }

    @_times("load_started", "load_finished", "success", "error")
    def time_load(
        self, /, engine: object, model: object, model_role: object, **_more: object
    ) -> _Fields:
        """Times a load. Events of its body carry its ``load_id``."""
        return {
            "engine": text(engine),
            "model": _text_or_none(model),
            "model_role": text(model_role),
        }

    @_records("load_phase_finished")
    def observe_load_phase_seconds(
        self, /, engine: object, model: object, phase: object, seconds: object, **_more: object
    ) -> _Fields:
        """A phase of a load ended, beside those that are timed: it ends none of them."""
        return {
            "engine": text(engine),
            "model": _text_or_none(model),
            "phase": text(phase),
            "seconds": number(seconds),
            "timed": False,
        }

    @_times("load_phase_started", "load_phase_finished")
    def time_load_phase(
        self, /, engine: object, model: object, phase: object, **_more: object
    ) -> _Fields:
        """Times a phase of a load."""
        return {
            "engine": text(engine),
            "model": _text_or_none(model),
            "phase": text(phase),
        }

    # -- installing compile caches -------------------------------------------------------

    @_records("artifact_install_step_finished")
    def observe_artifact_install_step_seconds(
        self, /, artifact: object, archive: object, step: object, seconds: object, **_more: object
    ) -> _Fields:
        """A step of installing an archive ended."""
        return {
            "artifact": text(artifact),
            "archive": text(archive),
            "step": text(step),
            "seconds": number(seconds),
        }

    @_times("artifact_install_step_started", "artifact_install_step_finished")
    def time_artifact_install_step(
        self, /, artifact: object, archive: object, step: object, **_more: object
    ) -> _Fields:
        """Times a step of installing an archive."""
        return {
            "artifact": text(artifact),
            "archive": text(archive),
            "step": text(step),
        }

    @_records("artifact_extracted")
    def record_artifact_install_bytes(
        self, /, artifact: object, archive: object, nbytes: object, **_more: object
    ) -> _Fields:
        """An archive of ``nbytes`` bytes was extracted."""
        return {
            "artifact": text(artifact),
            "archive": text(archive),
            "bytes": number(nbytes),
        }

    # -- recorders of newer clients ------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith(("record_", "observe_")):
            return functools.partial(self._log_call, name)
        if name.startswith("time_"):
            return lambda *args, **kwargs: self._call_timer(name, args, kwargs)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _log_call(self, name: str, /, *args: object, **kwargs: object) -> None:
        if not sink.off:
            try:
                sink.emit(_CALLED, _call(name, args, kwargs))
            except Exception:
                trouble.uncounted += ("unencodable",)

    def _call_timer(self, name: str, args: tuple[object, ...], kwargs: _Fields) -> Timer:
        try:
            fields = {} if sink.off else _call(name, args, kwargs)
        except Exception:
            fields = {"recorder": name}
        return Timer(_UNKNOWN_SPAN, fields)

    def __reduce__(self) -> str:
        # An engine that copies or pickles an object which refers to us gets its process's own.
        return "metrics"


def _call(name: str, args: tuple[object, ...], kwargs: _Fields) -> _Fields:
    return {"recorder": name, "args": plain(args), "kwargs": plain(kwargs)}


def _add(fields: _Fields, kwargs: Mapping[str, object], parameters: frozenset[str]) -> None:
    """Add the keyword arguments that are no parameters; an event's own fields stay as they are."""
    more = {key: value for key, value in kwargs.items() if key not in parameters}
    for key, value in plain_fields(more).items():
        # What ``timed`` says of an event is for us to say: see `Recorders.observe_load_seconds`.
        fields.setdefault("field_timed" if key == "timed" else key, value)


def _text_or_none(value: object) -> str | None:
    """None when ``value`` is falsy; one whose truth cannot be told is not falsy."""
    try:
        falsy = not value
    except Exception:
        falsy = False
    return None if falsy else text(value)


def _candidate(candidate: Any) -> dict[str, Plain]:
    return {
        "source_worker_id": text(_attribute(candidate, "worker_id")),
        "load": _published_load(candidate),
    }


def _attribute(candidate: Any, name: str) -> object:
    try:
        return getattr(candidate, name, None)
    except Exception:
        return None


def _published_load(candidate: Any) -> Plain:
    """The load as a float, None when none was published: that is never read as 0."""
    try:
        if not candidate.HasField("source_load"):
            return None
        return number(float(candidate.source_load))
    except Exception:
        return None


#: The recorders of this process.
metrics = Recorders()
