"""How much of its volume the log may take."""

from __future__ import annotations

import os


def limit_on(volume: int | str, max_bytes: int) -> int:
    """Bytes that our files may take, all processes together: ``max_bytes``, or half of the volume.

    Writers and exporter keep to the same. The other half has the room for what comes on top: a
    segment more of each writer, and the snapshot, which is written whole before anything is
    removed. ``volume`` is the directory, or a descriptor of it; ``max_bytes`` alone holds where
    nothing says how large its volume is.
    """
    try:
        found = os.statvfs(volume)
    except OSError:
        return max_bytes
    half = found.f_blocks * found.f_frsize // 2
    return min(max_bytes, half) if half > 0 else max_bytes
