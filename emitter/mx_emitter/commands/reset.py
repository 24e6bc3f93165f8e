"""``python -m mx_emitter reset``: removes what earlier runs left, for an entrypoint.

Segments and snapshots go; the lock stays, since a second file of that name would be a second
lock. Nothing is removed while a rank or an exporter uses the directory: both hold locks for as
long as they live. A file in the making is left alone for a minute: its writer is about to lock
it, and would find our probe's lock there instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from mx_log import locks
from mx_log.files import BAD_SNAPSHOT_NAME, LOCK_NAME, SegmentName, is_ours, parse_segment_name
from mx_log.words import counted

from ..log.directory import existing
from ..settings import Settings

#: Seconds after which a file in the making has no maker any more, unless it is locked.
MAKING_SECONDS = 60.0

#: Processes that a refusal names at most.
_NAMED = 16


class InUse(Exception):
    """Somebody uses the directory, or it cannot be told. ``str()`` says who, or why not."""


class Outcome(NamedTuple):
    """What a reset did: names that it removed, their bytes, and for those that stay why."""

    removed: list[str]
    size: int
    left: dict[str, str]
    #: Nothing was removed, only looked for.
    dry: bool = False

    def text(self, path: str) -> str:
        """One line for people about the directory ``path``."""
        if not self.removed:
            return f"{path}: nothing to remove\n"
        segments = sum(_segment(name) is not None for name in self.removed)
        what = [name for name in self.removed if _segment(name) is None]
        if segments:
            what.insert(0, counted(segments, "segment"))
        done = "would remove" if self.dry else "removed"
        return f"{path}: {done} {', '.join(what)}; {counted(self.size, 'byte')}\n"


def reset(settings: Settings, *, force: bool = False, dry: bool = False) -> Outcome:
    """Remove our files from the directory, all but the lock; what appears meanwhile stays.

    ``force`` skips the check for living ranks, ``dry`` changes nothing. Raises `InUse`,
    having removed nothing; FileNotFoundError when there is no directory; OSError when it cannot be
    used.
    """
    with existing(settings) as folder:
        lock, objections = _take_lock(folder, dry)
        try:
            survey = _Survey(folder)
            objections += survey.objections()
            if objections and not force:
                raise InUse("; ".join(objections))
            return _remove(folder, survey.names(force), force, dry)
        finally:
            if lock >= 0:
                os.close(lock)


# --------------------------------------------------------------------------------------
# The exporter


def _take_lock(folder: int, dry: bool) -> tuple[int, list[str]]:
    """The exporter's lock, held (-1: not had), and what is to be said against a reset."""
    if dry and LOCK_NAME not in os.listdir(folder):
        return -1, []
    try:
        # It is signed: an exporter that comes meanwhile says who is in its way.
        return locks.take_directory(folder, sign=not dry), []
    except locks.Owned as owned:
        return -1, [f"it is owned by an exporter, {owned}"]
    except locks.NoLocks as error:
        return -1, [f"the file system has no locks, so who uses it is unknown: {error.strerror}"]
    except OSError as error:
        return -1, [f"{LOCK_NAME} cannot be opened: {error.strerror}"]


# --------------------------------------------------------------------------------------
# The ranks


class _Survey:
    """The files of ours in a directory, and who writes them.

    A writer holds its next segment before it lets go of the last. So the directory is listed
    until that brings nothing new: whoever lived all the while was met with a lock.
    """

    def __init__(self, folder: int) -> None:
        self._free: list[str] = []
        self._others: list[str] = []
        self._held: dict[str, str] = {}  # proc -> who
        self._untold: dict[str, str] = {}  # name -> why it cannot be told whether it is held
        seen: set[str] = set()
        while news := [name for name in _ours(folder) if name not in seen]:
            seen.update(news)
            for name in sorted(news):
                self._look(folder, name)

    def objections(self) -> list[str]:
        found = []
        if self._held:
            who = list(self._held.values())
            if len(who) > _NAMED:
                who[_NAMED:] = [f"and {len(who) - _NAMED} more"]
            found.append(f"it is written by {', '.join(who)}")
        if self._untold:
            name, why = next(iter(self._untold.items()))
            more = len(self._untold) - 1
            others = f", and of {more} more" if more else ""
            found.append(f"whether the writer of {name} lives is unknown: {why}{others}")
        return found

    def names(self, force: bool) -> list[str]:
        """What is to be removed."""
        return [*self._free, *self._others] if force else self._free

    def _look(self, folder: int, name: str) -> None:
        segment = _segment(name)
        if segment is None:
            self._free.append(name)
            return
        try:
            with _opened(folder, name) as fd:
                if name == segment.temporary and _is_young(fd):
                    self._others.append(name)
                    return
                held = not locks.share(fd)
                header = locks.read_head(fd)
        except FileNotFoundError:
            return
        except OSError as error:
            held, header = False, {}
            self._untold[name] = error.strerror or str(error)
        if held:
            self._held.setdefault(segment.proc, locks.process_named(header))
        elif header.get("locked") is False:
            self._untold[name] = "its file system had no locks"
        (self._others if held or name in self._untold else self._free).append(name)


def _ours(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [
            entry.name
            for entry in entries
            if (is_ours(entry.name) or entry.name == BAD_SNAPSHOT_NAME)
            and entry.name != LOCK_NAME
            and entry.is_file(follow_symlinks=False)
        ]


def _segment(name: str) -> SegmentName | None:
    return parse_segment_name(name.removeprefix("."))


def _is_young(fd: int) -> bool:
    return os.fstat(fd).st_mtime > time.time() - MAKING_SECONDS


@contextlib.contextmanager
def _opened(folder: int, name: str) -> Iterator[int]:
    fd = locks.open_regular(name, folder)
    try:
        yield fd
    finally:
        os.close(fd)


# --------------------------------------------------------------------------------------


def _remove(folder: int, names: list[str], force: bool, dry: bool) -> Outcome:
    removed = []
    total = 0
    left = {}
    for name in names:
        try:
            size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
            if dry:
                pass
            elif force or _segment(name) is None:
                os.unlink(name, dir_fd=folder)
            else:
                _unlink_unless_held(folder, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            left[name] = error.strerror or str(error)
        else:
            removed.append(name)
            total += size
    return Outcome(removed, total, left, dry)


def _unlink_unless_held(folder: int, name: str) -> None:
    """The lock is looked at once more with the file at hand, and held until its name is gone."""
    with _opened(folder, name) as fd:
        if not locks.share(fd):
            raise OSError(errno.EBUSY, "its writer lives", name)
        os.unlink(name, dir_fd=folder)
