"""Which release of the ModelExpress client is installed."""

from __future__ import annotations

import functools
import os
import sys

_NAME = "modelexpress-"
_KINDS = (".dist-info", ".egg-info")


@functools.cache
def client_version() -> str:
    """The installed release of ``modelexpress``, or ``unknown``. Never raises an Exception.

    Found by the names of the installed packages' metadata directories. ``importlib.metadata``
    does the same and costs half of our import; and it must not be imported when it is needed:
    whoever forks while another thread imports leaves the child an import lock that nobody will
    ever release.
    """
    try:
        for place in sys.path:
            try:
                names = os.listdir(place or ".")
            except OSError:  # not there, or an archive
                continue
            for name in names:
                if name.lower().startswith(_NAME) and name.endswith(_KINDS):
                    release = name[len(_NAME) :].rpartition(".")[0]
                    return release.partition("-py")[0]
    except Exception:
        return "unknown"
    return "unknown"
