"""What a line of the log says: events, their fields, and the keys that every line carries.

The emitter writes by this table and the exporter reads by it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Version of the distribution, of which the emitter and the exporter are two halves.
VERSION = "0.1.0"

#: Version of the line format, written in each segment's header.
FORMAT = 1

#: Longest line, in bytes, its newline included. The emitter drops a longer one, readers skip it.
MAX_LINE_BYTES = 1024 * 1024

#: Keys that every line carries (``load_id`` while a load is running). A caller's field of the
#: same name is logged as ``field_<name>``.
RESERVED_KEYS = frozenset(
    {"event", "timestamp", "level", "proc", "seq", "rank", "scheme", "load_id"}
)

#: ``timestamp``: RFC 3339 in UTC, always six digits, so that text order is time order.
TIMESTAMP = re.compile(
    r"(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z",
    re.ASCII,
)

#: How a field is typed. ``number`` is a promise of the emitter only: what a value may be is
#: judged when a metric is derived from it, so that a refused observation is told from a broken
#: line. All other kinds are checked when a line is read.
TEXT = "text"
OPTIONAL_TEXT = "text or null"
INTEGER = "integer"
NUMBER = "number"
LOADS = "list of candidates"
ANY = "any"


class Field(NamedTuple):
    """One field of an event. A line without a field that is not ``required`` is still good."""

    name: str
    kind: str
    doc: str
    required: bool = True


class Event(NamedTuple):
    """One event: its name, what it says, and the fields it adds to the reserved keys."""

    name: str
    doc: str
    fields: tuple[Field, ...]


_POLICY = Field("policy", TEXT, "source selection policy")
_RESULT = Field("result", TEXT, "how it ended")
_SECONDS = Field("seconds", NUMBER, "duration in seconds", required=False)
_TIMED = Field(
    "timed",
    ANY,
    "false when it was not a timer that logged it: it ends no load or phase that runs",
    required=False,
)
_ENGINE = Field("engine", TEXT, "engine that hosts the loader")
_MODEL = Field("model", OPTIONAL_TEXT, "model id; null when the engine named none", required=False)
_ROLE = Field("model_role", TEXT, "`main`, `draft` or other")
_LOAD_PHASE = Field("phase", TEXT, "phase of the load")
_ATTEMPT_PHASE = Field("phase", TEXT, "phase of the source attempt")
_ARTIFACT = (
    Field("artifact", TEXT, "kind of compile cache"),
    Field("archive", TEXT, "name of the cache root"),
)
_STEP = Field("step", TEXT, "step of the install")
_ERROR = (
    Field("error_type", TEXT, "type of the exception, when the body raised", required=False),
    Field("error", TEXT, "its text, at most 500 characters, URLs stripped", required=False),
)
_HEADER = (
    Field("segment", INTEGER, "number of the segment, from 0", required=False),
    Field("format", INTEGER, "version of the line format", required=False),
    Field("component", TEXT, "what logs: `client`"),
    Field("version", TEXT, "installed `modelexpress` release, or `unknown`"),
    Field("emitter_version", TEXT, "version of this emitter", required=False),
    Field("locked", ANY, "false where the file system has no flock", required=False),
    Field("pid", INTEGER, "process id, in its own container's counting", required=False),
    Field("hostname", OPTIONAL_TEXT, "host name", required=False),
    Field("pod_name", OPTIONAL_TEXT, "`POD_NAME`", required=False),
    Field("pod_uid", OPTIONAL_TEXT, "`POD_UID`", required=False),
    Field("pod_namespace", OPTIONAL_TEXT, "`POD_NAMESPACE`", required=False),
    Field("node_name", OPTIONAL_TEXT, "`NODE_NAME`", required=False),
    # Of any kind: no header is rejected for what an engine says of itself.
    Field("worker_id", ANY, "which worker of the engine it is", required=False),
    Field("engine_version", ANY, "release of the engine", required=False),
    Field("tensor_parallel_size", ANY, "ranks that share a model's tensors", required=False),
    Field("gpu_type", ANY, "kind of GPU", required=False),
)

#: What an engine calls; a call of another one is a ``recorder_called``.
RECORDERS = frozenset(
    {
        "observe_artifact_install_step_seconds",
        "observe_candidate_loads",
        "observe_candidates",
        "observe_load_phase_seconds",
        "observe_load_seconds",
        "observe_selection_seconds",
        "observe_source_attempt_phase_seconds",
        "observe_transfer_seconds",
        "record_artifact_install_bytes",
        "record_attempt",
        "record_list_sources",
        "record_metadata_failure",
        "record_nixl_error",
        "record_nixl_receive",
        "record_selection",
        "time_artifact_install_step",
        "time_load",
        "time_load_phase",
        "time_source_attempt_phase",
    }
)

#: Events that open a segment.
HEADERS = frozenset({"process_started", "segment_continued"})

#: Why the emitter could not log an event (``reason`` of ``events_dropped``).
DROP_REASONS = {
    "limit": "the directory holds `MX_METRICS_MAX_BYTES` of our files, or half of its volume",
    "no_space": "the file system is full, or a quota is used up",
    "unavailable": "no segment could be opened: directory read-only or not ours, no descriptor",
    "io_error": "a write failed for another reason",
    "too_long": "the line would pass 1 MiB",
    "unencodable": "the event could not be turned into a line at all",
}

EVENTS: dict[str, Event] = {
    event.name: event
    for event in (
        Event("process_started", "First line of a process's first segment.", _HEADER),
        Event("segment_continued", "First line of each further segment.", _HEADER),
        Event(
            "source_selected",
            "A source was chosen for a transfer.",
            (
                _POLICY,
                Field(
                    "source_worker_id", OPTIONAL_TEXT, "the chosen peer, or null", required=False
                ),
            ),
        ),
        Event("source_attempted", "An attempt at a source ended.", (_POLICY, _RESULT)),
        Event("metadata_lookup_failed", "A source's metadata could not be had.", (_POLICY,)),
        Event("sources_listed", "The sources were listed, or could not be.", (_POLICY, _RESULT)),
        Event("nixl_failed", "The data plane failed.", (Field("kind", TEXT, "class of failure"),)),
        Event("nixl_received", "A receive ended.", (_RESULT,)),
        Event(
            "candidates_counted",
            "How many candidates were left at a stage of the selection.",
            (
                _POLICY,
                Field("stage", TEXT, "stage of the funnel"),
                Field("count", NUMBER, "candidates left", required=False),
            ),
        ),
        Event("sources_ordered", "The candidates were put in order.", (_POLICY, _SECONDS)),
        Event(
            "candidate_loads_seen",
            "The loads that the candidates published, best candidate first.",
            (
                Field(
                    "loads",
                    LOADS,
                    "one `{source_worker_id, load}` a candidate; `load` null when it had none",
                ),
            ),
        ),
        Event(
            "transfer_finished",
            "A transfer from a source ended.",
            (_POLICY, Field("outcome", TEXT, "how it ended"), _SECONDS),
        ),
        Event(
            "source_attempt_phase_started",
            "A phase of a source attempt began.",
            (_POLICY, _ATTEMPT_PHASE),
        ),
        Event(
            "source_attempt_phase_finished",
            "A phase of a source attempt ended.",
            (_POLICY, _ATTEMPT_PHASE, Field("outcome", TEXT, "`ok` or `error`"), _SECONDS, *_ERROR),
        ),
        Event("load_started", "A model load began.", (_ENGINE, _MODEL, _ROLE)),
        Event(
            "load_finished",
            "A model load ended.",
            (
                _ENGINE,
                _MODEL,
                _ROLE,
                Field("outcome", TEXT, "`success` or `error`"),
                _SECONDS,
                _TIMED,
                *_ERROR,
            ),
        ),
        Event("load_phase_started", "A phase of a load began.", (_ENGINE, _MODEL, _LOAD_PHASE)),
        Event(
            "load_phase_finished",
            "A phase of a load ended.",
            (_ENGINE, _MODEL, _LOAD_PHASE, _SECONDS, _TIMED, *_ERROR),
        ),
        Event(
            "artifact_install_step_started",
            "A step of installing an archive began.",
            (*_ARTIFACT, _STEP),
        ),
        Event(
            "artifact_install_step_finished",
            "A step of installing an archive ended.",
            (*_ARTIFACT, _STEP, _SECONDS, *_ERROR),
        ),
        Event(
            "artifact_extracted",
            "An archive was extracted.",
            (*_ARTIFACT, Field("bytes", NUMBER, "size in bytes", required=False)),
        ),
        Event(
            "recorder_called",
            "A recorder of a newer client was called, which this emitter does not know.",
            (
                Field("recorder", TEXT, "its name"),
                Field("args", ANY, "its arguments as given", required=False),
                Field("kwargs", ANY, "its keyword arguments as given", required=False),
            ),
        ),
        Event(
            "log_recorded",
            "The client logged a record of its own (`MX_METRICS_CAPTURE_LOGS`); its level is the"
            " line's.",
            (
                Field("logger", TEXT, "name of the logger", required=False),
                Field("message", TEXT, "at most 2,000 characters, URLs stripped", required=False),
                Field(
                    "error_type", TEXT, "type of the exception it was logged with", required=False
                ),
                Field("error", TEXT, "its text, at most 500 characters", required=False),
            ),
        ),
        Event(
            "events_dropped",
            "The emitter dropped events earlier and has room again; one line a reason.",
            (
                Field("reason", TEXT, "why, see the table of reasons"),
                Field("count", NUMBER, "how many since the last such line", required=False),
            ),
        ),
    )
}
