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
    Value,
)

#: Longest model id kept in a label.
MODEL_MAX = 96


def _values(**meanings: str) -> tuple[Value, ...]:
    """Known values of a label, each with its meaning."""
    return tuple(Value(name, doc) for name, doc in meanings.items())


_SCHEME = Label("scheme", "a tag of the deployment under test, from `MX_METRICS_SCHEME`")
_POLICY = Label(
    "policy",
    "how the candidates are put in order before one is tried",
    _values(
        random="in random order; the client's default",
        rendezvous_hash="by a hash of candidate and target, so that a target keeps its source",
        load_aware="by the load that each candidate published",
        topology_aware="by how near a candidate is to the target",
    ),
)
_SOURCE = Label(
    "source_worker_id",
    "the peer; its id is drawn afresh by every process",
    null="unknown",
    opt_in=True,
)
_ENGINE = Label(
    "engine",
    "the inference engine that hosts the loader",
    _values(vllm="vLLM", sglang="SGLang", trtllm="TensorRT-LLM", other="any other engine"),
    "other",
)
_MODEL = Label("model", "the model's id", null="unknown", max_length=MODEL_MAX)
_PHASES_OF_A_LOAD = _values(
    artifact_install="compile caches are fetched from a peer and unpacked, before the model exists",
    model_init="the engine builds the model, with weights that mean nothing yet",
    chain="the weights are filled in: from a peer, or by the next way of loading where that fails",
    publish="the rank offers what it has to others; the upload itself goes on in the background",
)
_LOAD_PHASE = Label("phase", "the phase of the load", _PHASES_OF_A_LOAD, DROP)
_PHASE_OR_NONE = Label(
    "phase",
    "the phase that the load is in",
    (Value("", "between two phases, or before the first"), *_PHASES_OF_A_LOAD),
    DROP,
)
_ARTIFACT = Label(
    "artifact",
    "the kind of compile cache",
    _values(
        torch_compile_cache="what torch.compile generated",
        triton_cache="kernels that Triton compiled",
        tvm_ffi_cache="kernels that were compiled for TVM's foreign function interface",
        deep_gemm_cache="kernels that DeepGEMM compiled",
        tilelang_cache="kernels that TileLang compiled",
        cute_dsl_cache="kernels that the CuTe DSL compiled",
        flashinfer_cache="kernels that FlashInfer compiled",
        other="any other cache",
    ),
    "other",
)
_ARCHIVE = Label("archive", "name of the cache root that the archive is unpacked to")

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
        (
            Label("component", "what logs: `client`"),
            Label("version", "installed release of `modelexpress`, or `unknown`"),
            _SCHEME,
        ),
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
            Label(
                "result",
                "how the attempt ended",
                _values(
                    success="the weights came from this source",
                    metadata_miss="the source's metadata could not be had, or there was none",
                    transfer_retry="the transfer failed, and the next candidate is tried",
                    transfer_fallback="the transfer failed, and no candidate is left: the load"
                    " goes on in another way",
                ),
            ),
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
        (
            _POLICY,
            _SCHEME,
            Label(
                "result",
                "what the listing gave",
                _values(
                    ok="sources that are ready",
                    empty="no source: nobody has published yet",
                    error="nothing: the metadata backend failed",
                ),
                "error",
            ),
        ),
        ("sources_listed",),
        "0.6.0",
        zeros=WITH_POLICY,
    ),
    Family(
        "mx_nixl_data_plane_errors_total",
        COUNT,
        "Failures of the data plane, by kind.",
        (
            _SCHEME,
            Label(
                "kind",
                "class of the failure",
                _values(
                    timeout="a transfer did not end in its time",
                    status_error="NIXL reported that a transfer failed",
                ),
                "status_error",
            ),
        ),
        ("nixl_failed",),
        "0.6.0",
        zeros=WITH_HEADER,
    ),
    Family(
        "mx_nixl_receive_total",
        COUNT,
        "Receives by what arrived; partial and empty ones return without an error.",
        (
            _SCHEME,
            Label(
                "result",
                "what arrived",
                _values(
                    complete="every tensor that was wanted",
                    partial="only some tensors: the others keep values that mean nothing, although"
                    " the receive reports success",
                    empty="no tensor: none had a counterpart at the source",
                    rejected="nothing: the tensors of both sides do not match as they must",
                ),
                "empty",
            ),
        ),
        ("nixl_received",),
        "0.6.0",
        zeros=WITH_HEADER,
    ),
    Family(
        "mx_p2p_candidates",
        HISTOGRAM,
        "Candidates left at a stage of the selection.",
        (
            _POLICY,
            _SCHEME,
            Label(
                "stage",
                "stage of the selection",
                _values(
                    listed="all that the metadata backend lists as ready",
                    rank_matched="those of the target's own rank",
                    accelerator_matched="those whose accelerator is compatible as well",
                ),
            ),
        ),
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
        (
            _POLICY,
            _SCHEME,
            Label(
                "outcome",
                "how the transfer ended",
                _values(
                    success="the weights arrived",
                    retry="it failed, and the next candidate is tried",
                    fallback="it failed, and no candidate is left",
                ),
            ),
        ),
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
                "the phase of the attempt, in this order",
                _values(
                    metadata="the source's metadata and its list of tensors are fetched",
                    prepare="the target model is made ready to receive",
                    register="the target's memory is registered with NIXL",
                    handshake="the source's NIXL metadata is loaded",
                    receive="tensors are matched by name and read over RDMA",
                    finalize="the engine finishes the weights that arrived",
                    release="the source is let go of",
                ),
                DROP,
            ),
            Label(
                "outcome",
                "how the phase ended",
                _values(ok="it returned", error="it raised"),
                "error",
            ),
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
            Label(
                "model_role",
                "what the model is for",
                _values(
                    main="the model that was asked for",
                    draft="the draft model of speculative decoding",
                    other="anything else",
                ),
                "other",
            ),
            _SCHEME,
            Label(
                "outcome",
                "how the load ended",
                _values(success="it returned a model", error="it raised"),
                "error",
            ),
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
        (
            _ARTIFACT,
            _ARCHIVE,
            Label(
                "step",
                "the step of the install, in this order",
                _values(
                    validate="each member of the archive is checked for an unsafe path",
                    extract="the archive is unpacked into the engine's cache",
                ),
                DROP,
            ),
            _SCHEME,
        ),
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
        (Label("reason", "why the rank could not log", _values(**DROP_REASONS)), _SCHEME),
        ("events_dropped",),
        "ours",
        field="count",
        zeros=WITH_HEADER,
    ),
)

CATALOG = Catalog(EVENTS.values(), FAMILIES)

BY_NAME = CATALOG.by_name
