"""The watcher: it wakes the scheduler when the directory changes.

Notifications only shorten the next scrape's drain; they get lost (a full kernel queue, file
systems that have none), so nothing depends on them: the directory is listed every few seconds
too. Where inotify is refused or out of watches, that listing alone is the polling, done more
often. watchdog's own polling observer is not used: it would stat every segment every second,
those included that were read long ago.

A notification costs 0.1 ms, whatever is done with it, and reading the directory little more. So
where many come, they are done without for a while, and the directory is listed instead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from watchdog.events import (
    DirDeletedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

logger = logging.getLogger(__name__)

#: Seconds between listings while we are notified, and while we are not.
NOTIFIED_PERIOD = 5.0
POLLING_PERIOD = 1.0

#: More notifications than this between two calls of `watch`, some 0.1 s apart when they come often,
#: are too many; the seconds for which the directory is not watched then; and the seconds between
#: listings meanwhile.
MANY = 50
REST_SECONDS = 2.0
RESTING_PERIOD = 0.1

_NEVER = -float("inf")

#: Seconds after which to ask again for notifications that were refused; doubled each time, since
#: watchdog 6 loses three descriptors with each refusal.
RETRY_SECONDS = 60.0

#: Without this filter our own reading of segments (opened, closed) would wake us, for ever.
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirDeletedEvent,
]

# The thread that is stopped in the middle of a notification calls that an error.
logging.getLogger("watchdog.observers.inotify").addFilter(
    lambda record: "called when the thread is inactive" not in record.getMessage()
)


class Watcher:
    """Calls ``wake`` from a thread of its own when something changes in a directory.

    :param directory: its path; it need not exist yet.
    :param wake: called with nothing, from any thread; must not raise.
    """

    def __init__(self, directory: str, wake: Callable[[], None]) -> None:
        self._directory = directory
        self._handler = _Handler(wake)
        self._rest_until = _NEVER
        self._observer: BaseObserver | None = None
        self._watched: tuple[int, int] | None = None
        self._refusals = 0
        self._retry = 0.0

    @property
    def watching(self) -> bool:
        """Whether we are notified of changes."""
        return self._observer is not None

    def period(self) -> float:
        """Seconds until the directory should be listed though nothing woke us."""
        # Also when the rest has just ended: only the next call of `watch` watches again.
        if time.monotonic() < self._rest_until + POLLING_PERIOD:
            return RESTING_PERIOD
        return NOTIFIED_PERIOD if self.watching else POLLING_PERIOD

    def watch(self) -> None:
        """Watch the directory that stands there now; called before each listing. Never raises.

        A directory that was removed and made again leaves an observer that lives and reports
        nothing, so it is known by its device and inode, and by the end of the thread that watched
        it (an inode number may be given again at once).
        """
        if self._handler.take_count() > MANY:
            self.stop()
            self._watched = None
            self._rest_until = time.monotonic() + REST_SECONDS
        if time.monotonic() < self._rest_until:
            return
        self._rest_until = _NEVER
        try:
            found = os.stat(self._directory)
            standing = (found.st_dev, found.st_ino)
        except OSError:
            standing = None
        if standing != self._watched or not self._alive():
            self.stop()
            self._watched = standing
            if standing is not None:
                self._start()

    def stop(self) -> None:
        """Stop watching."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join(timeout=1)

    def _alive(self) -> bool:
        observer = self._observer
        if observer is None:
            return self._watched is None or time.monotonic() < self._retry
        # An emitter ends when its directory is removed.
        return observer.is_alive() and all(e.is_alive() for e in observer.emitters)

    def _start(self) -> None:
        # The path is resolved since watchdog 7 watches a symbolic link instead of its target.
        path = os.path.realpath(self._directory)
        observer = None
        try:
            from watchdog.observers.inotify import InotifyObserver

            observer = InotifyObserver()
            observer.schedule(self._handler, path, event_filter=_EVENTS)
            observer.start()
        except Exception as error:  # noqa: BLE001 - the listing goes on without, whatever it was
            if observer is not None:
                with contextlib.suppress(Exception):
                    observer.stop()
            if not self._refusals:
                logger.warning(
                    "not notified of changes in %s (%s): listing it every %g s instead",
                    self._directory,
                    error,
                    POLLING_PERIOD,
                )
            self._retry = time.monotonic() + RETRY_SECONDS * 2**self._refusals
            self._refusals += 1
            return
        self._observer, self._refusals = observer, 0


class _Handler(FileSystemEventHandler):
    """Runs in watchdog's thread, which an exception would end without a word."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._count = 0

    def dispatch(self, event: FileSystemEvent) -> None:  # noqa: ARG002
        self._count += 1
        self._wake()

    def take_count(self) -> int:
        """Events since the last call, give or take one."""
        count, self._count = self._count, 0
        return count
