"""Have workers of Dask wait in the middle of a task: ``dask worker --preload`` runs this in each.

The first file that each worker is to read waits until ``HOLD/go`` is there, and says so before by a
file that bears the process's number.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from mx_exporter.offline import read_sources


def dask_setup(_: Any) -> None:
    """Called by Dask as the worker starts."""
    hold, real = Path(os.environ["HOLD"]), read_sources.files

    def files(*given: Any) -> Any:
        (hold / str(os.getpid())).touch()
        while not (hold / "go").exists():
            time.sleep(0.01)
        return real(*given)

    read_sources.files = files
