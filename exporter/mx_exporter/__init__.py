"""The exporter: follows a directory of segments, folds events into families, serves them."""

from mx_log.schema import VERSION as __version__

__all__ = ["__version__"]
