"""What inotify reports of a directory, and systems that report nothing."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import support
from tests.support import serving

MODIFY, MOVED_FROM, MOVED_TO, CREATE, OVERFLOW = 0x2, 0x40, 0x80, 0x100, 0x4000

_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def listening(directory: Path) -> Iterator[int]:
    """An inotify queue of our own on a directory: a descriptor that never blocks."""
    fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        support.leave_out(f"no inotify here: {os.strerror(ctypes.get_errno())}")
    try:
        mask = MODIFY | MOVED_FROM | MOVED_TO | CREATE
        assert _libc.inotify_add_watch(fd, os.fsencode(directory), mask) >= 0
        yield fd
    finally:
        os.close(fd)


def heard(fd: int) -> list[int]:
    """The masks of all that lies in the queue."""
    masks = []
    while True:
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return masks
        at = 0
        while at < len(data):
            _, mask, _, length = _HEAD.unpack_from(data, at)
            masks.append(mask)
            at += _HEAD.size + length


def start_in(
    spawn: support.Spawner, namespaces: list[str], script: str, directory: Path
) -> serving.Exporter:
    """An exporter that starts after a shell script, in namespaces of its own."""
    port = support.free_port()
    process = spawn(
        *namespaces,
        *("sh", "-ec", f'{script}\nexec "$@"', "sh"),
        *(sys.executable, "-W", "error", "-m", "mx_exporter", "serve"),
        *("--dir", directory, "--listen", f"127.0.0.1:{port}"),
    )
    exporter = serving.Exporter(process, "127.0.0.1", port)
    support.wait_until(exporter.ready)
    return exporter
