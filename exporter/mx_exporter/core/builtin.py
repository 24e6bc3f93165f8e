"""The built-in catalogue: the only place where a metric's name stands.

Names, labels, buckets and label domains are those of the ModelExpress client, releases 0.6.0
and 0.7.0 (``since``); rows marked ``ours`` are additions. Adding a family is adding a row: the
documentation's tables and the dashboard's test read it too.
"""

from __future__ import annotations

from mx_log.schema import DROP_REASONS, EVENTS

from .catalog import (
    ABANDONED,
    COUNT,
    DROP,
    HISTOGRAM,
    IN_PROGRESS,
    LATEST,
    PRESENCE,
    SUM,
    WITH_HEADER,
    WITH_POLICY,
    Catalog,
    Family,
    Label,
)

#: Longest model id kept in a label.
MODEL_MAX = 96

_SCHEME = Label("scheme")
_POLICY = Label("policy")
_SOURCE = Label("source_worker_id", null="unknown", opt_in=True)
_ENGINE = Label("engine", ("vllm", "sglang", "trtllm", "other"), "other")
_MODEL = Label("model", null="unknown", max_length=MODEL_MAX)
_LOAD_PHASES = ("artifact_install", "model_init", "chain", "publish")
_LOAD_PHASE = Label("phase", _LOAD_PHASES, DROP)
_PHASE_OR_NONE = Label("phase", ("", *_LOAD_PHASES), DROP)
_ARTIFACT = Label(
    "artifact",
    (
        "torch_compile_cache",
        "triton_cache",
        "tvm_ffi_cache",
        "deep_gemm_cache",
        "tilelang_cache",
        "cute_dsl_cache",
        "flashinfer_cache",
        "other",
    ),
    "other",
)
_ARCHIVE = Label("archive")

CANDIDATE_COUNTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
ORDERING_SECONDS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TRANSFER_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ATTEMPT_PHASE_SECONDS = (
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
LOAD_SECONDS = (
    0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
)  # fmt: skip
INSTALL_STEP_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0)

_LOAD_EVENTS = ("load_started", "load_finished", "load_phase_started", "load_phase_finished")

FAMILIES: tuple[Family, ...] = (
    Family(
        "mx_build_info",
        PRESENCE,
        "What logs in this pod: component and release; always 1.",
        (Label("component"), Label("version"), _SCHEME),
        ("process_started", "segment_continued"),
        "0.6.0",
    ),
    Family(
        "mx_p2p_source_selections_total",
        COUNT,
        "Sources chosen for a transfer.",
        (_POLICY, _SCHEME, _SOURCE),
        ("source_selected",),
        "0.6.0",
        zeros=WITH_POLICY,
    ),
    Family(
        "mx_p2p_source_attempts_total",
        COUNT,
        "Attempts at a source, by how they ended.",
        (
            _POLICY,
            _SCHEME,
            Label("result", ("success", "metadata_miss", "transfer_retry", "transfer_fallback")),
        ),
        ("source_attempted",),
        "0.6.0",
        zeros=WITH_POLICY,
    ),
    Family(
        "mx_p2p_metadata_lookup_failures_total",
        COUNT,
        "Lookups of a source's metadata that failed.",
        (_POLICY, _SCHEME),
        ("metadata_lookup_failed",),
        "0.6.0",
        zeros=WITH_POLICY,
    ),
    Family(
        "mx_p2p_list_sources_total",
        COUNT,
        "Listings of sources: ok, empty (nobody published yet) or error (the backend failed).",
        (_POLICY, _SCHEME, Label("result", ("ok", "empty", "error"), "error")),
        ("sources_listed",),
        "0.6.0",
        zeros=WITH_POLICY,
    ),
    Family(
        "mx_nixl_data_plane_errors_total",
        COUNT,
        "Failures of the data plane, by kind.",
        (_SCHEME, Label("kind", ("timeout", "status_error"), "status_error")),
        ("nixl_failed",),
        "0.6.0",
        zeros=WITH_HEADER,
    ),
    Family(
        "mx_nixl_receive_total",
        COUNT,
        "Receives by what arrived; partial and empty ones return without an error.",
        (_SCHEME, Label("result", ("complete", "partial", "empty", "rejected"), "empty")),
        ("nixl_received",),
        "0.6.0",
        zeros=WITH_HEADER,
    ),
    Family(
        "mx_p2p_candidates",
        HISTOGRAM,
        "Candidates left at a stage of the selection.",
        (_POLICY, _SCHEME, Label("stage", ("listed", "rank_matched", "accelerator_matched"))),
        ("candidates_counted",),
        "0.6.0",
        field="count",
        buckets=CANDIDATE_COUNTS,
    ),
    Family(
        "mx_p2p_source_selection_seconds",
        HISTOGRAM,
        "Time to put the candidates in order.",
        (_POLICY, _SCHEME),
        ("sources_ordered",),
        "0.6.0",
        field="seconds",
        buckets=ORDERING_SECONDS,
    ),
    Family(
        "mx_p2p_transfer_seconds",
        HISTOGRAM,
        "Time of a transfer from a source, its metadata lookup left out.",
        (_POLICY, _SCHEME, Label("outcome", ("success", "retry", "fallback"))),
        ("transfer_finished",),
        "0.6.0",
        field="seconds",
        buckets=TRANSFER_SECONDS,
    ),
    Family(
        "mx_p2p_source_load",
        LATEST,
        "Load that the chosen source published, 0 to 1, at the latest selection.",
        (_SCHEME, _SOURCE),
        ("candidate_loads_seen",),
        "0.7.0",
        field="loads",
    ),
    Family(
        "mx_p2p_source_attempt_phase_seconds",
        HISTOGRAM,
        "Time of one phase of a source attempt.",
        (
            _POLICY,
            Label(
                "phase",
                ("metadata", "prepare", "register", "handshake", "receive", "finalize", "release"),
                DROP,
            ),
            Label("outcome", ("ok", "error"), "error"),
            _SCHEME,
        ),
        ("source_attempt_phase_finished",),
        "0.7.0",
        field="seconds",
        buckets=ATTEMPT_PHASE_SECONDS,
    ),
    Family(
        "mx_load_seconds",
        HISTOGRAM,
        "Time of a model load, as its caller waited for it.",
        (
            _ENGINE,
            _MODEL,
            Label("model_role", ("main", "draft", "other"), "other"),
            _SCHEME,
            Label("outcome", ("success", "error"), "error"),
        ),
        ("load_finished",),
        "0.7.0",
        field="seconds",
        buckets=LOAD_SECONDS,
    ),
    Family(
        "mx_load_phase_seconds",
        HISTOGRAM,
        "Time of one phase of a model load.",
        (_ENGINE, _MODEL, _LOAD_PHASE, _SCHEME),
        ("load_phase_finished",),
        "0.7.0",
        field="seconds",
        buckets=LOAD_SECONDS,
    ),
    Family(
        "mx_artifact_install_step_seconds",
        HISTOGRAM,
        "Time of one step of installing a compile cache's archive.",
        (_ARTIFACT, _ARCHIVE, Label("step", ("validate", "extract"), DROP), _SCHEME),
        ("artifact_install_step_finished",),
        "0.7.0",
        field="seconds",
        buckets=INSTALL_STEP_SECONDS,
    ),
    Family(
        "mx_artifact_install_bytes_total",
        SUM,
        "Bytes of compile cache archives that were extracted.",
        (_ARTIFACT, _ARCHIVE, _SCHEME),
        ("artifact_extracted",),
        "0.7.0",
        field="bytes",
    ),
    Family(
        "mx_loads_in_progress",
        IN_PROGRESS,
        "Loads that run, by their phase (empty between phases), of ranks that live.",
        (_ENGINE, _MODEL, _PHASE_OR_NONE, _SCHEME),
        _LOAD_EVENTS,
        "ours",
    ),
    Family(
        "mx_loads_abandoned_total",
        ABANDONED,
        "Loads that never ended, by the phase they were in, of ranks that are gone.",
        (_ENGINE, _MODEL, _PHASE_OR_NONE, _SCHEME),
        _LOAD_EVENTS,
        "ours",
    ),
    Family(
        "mx_emitter_events_dropped_total",
        SUM,
        "Events that a rank could not log, by reason, as it said once it could log again.",
        (Label("reason", tuple(DROP_REASONS)), _SCHEME),
        ("events_dropped",),
        "ours",
        field="count",
        zeros=WITH_HEADER,
    ),
)

CATALOG = Catalog(EVENTS.values(), FAMILIES)

BY_NAME = CATALOG.by_name
