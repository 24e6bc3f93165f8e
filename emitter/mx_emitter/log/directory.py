"""The shared directory: made when missing, checked for its owner, weighed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from mx_log.files import is_ours

from ..settings import Settings


class NotOurs(OSError):
    """The default directory is not a real directory of our own user."""


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[int]:
    """A descriptor of the directory, which is made when missing.

    Raises OSError when it cannot be made; else as `existing`.
    """
    _make(settings)
    with existing(settings) as folder:
        yield folder


@contextlib.contextmanager
def existing(settings: Settings) -> Iterator[int]:
    """A descriptor of the directory.

    All that follows goes through it, so that what was checked is what is used.
    Raises OSError when the directory is missing, cannot be opened, or is not ours to use.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if not settings.named:
        flags |= os.O_NOFOLLOW
    folder = os.open(settings.directory, flags)
    try:
        if not settings.named:
            _check_owner(settings.directory, os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


def _make(settings: Settings) -> None:
    if os.path.lexists(settings.directory):
        return
    missing = [settings.directory]
    while not os.path.lexists(parent := os.path.dirname(missing[-1])):
        missing.append(parent)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another rank was faster
            mode = 0o755 if settings.named else 0o700
            os.mkdir(path, mode)
            os.chmod(path, mode)  # a narrow umask would shut the exporter out, also on the way


def _check_owner(path: str, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise NotOurs(
            f"{path} belongs to uid {status.st_uid} and we are uid {os.geteuid()}:"
            " the default directory is used only while it is our own; name one by MX_METRICS_DIR"
        )


def weigh(folder: int | str) -> int:
    """Sum of the sizes of our files in the directory, in bytes. Raises OSError."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_ours(entry.name):
                with contextlib.suppress(FileNotFoundError):  # an exporter removed it just now
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        total += status.st_size
    return total
