"""Metrics of weight loading, as a log: what happens is written as one line of JSON and is done.

    from mx_emitter import enable_metrics, get_logger, metrics

Nothing happens unless ``MX_METRICS_ENABLED`` is 1. Names are imported on first use, so that
``mx_log.schema``, the schema, can be had without structlog and orjson.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_log.schema import VERSION as __version__

if TYPE_CHECKING:
    from .api import copy_to_log, enable_metrics, get_logger, metrics

__all__ = ["__version__", "copy_to_log", "enable_metrics", "get_logger", "metrics"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import api

    value = globals()[name] = getattr(api, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
