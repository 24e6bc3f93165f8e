"""What an engine uses, bound to the one sink of this process."""

from __future__ import annotations

from .log.sink import sink
from .logger import copy_to_log, get_logger
from .modelexpress import log_capture
from .recorders import metrics

__all__ = ["copy_to_log", "enable_metrics", "get_logger", "metrics"]


def enable_metrics(rank: object = None, **identity: object) -> bool:
    """Open the log of this process, when ``MX_METRICS_ENABLED`` says so. Idempotent, never raises.

    Each engine's loader calls it unconditionally: the header that it logs shows that metrics are
    on, even where nothing else happens. ``rank`` is the rank that the engine knows itself to be;
    without it ``torch.distributed`` and the environment are asked. ``identity`` is what else it
    knows of itself (``worker_id``, ``engine_version``, ``tensor_parallel_size``, ``gpu_type``, or
    any other name): fields of the headers, as text. While metrics are off the environment is read
    again at each call. Returns whether metrics are on.
    """
    try:
        on = sink.enable(rank, identity)
        if on:
            log_capture.attach()
    except Exception:  # close to the recursion limit
        on = sink.stream is not None and not sink.off
    return on
