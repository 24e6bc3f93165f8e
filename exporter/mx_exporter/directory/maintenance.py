"""What an exporter does for its directory besides reading it: owning it, keeping it within
bounds, and seeing its log leave the pod.
"""

from __future__ import annotations

import logging
import sys
import time

from ..config import Settings
from ..core.catalog import Catalog
from ..errors import UsageError
from .compaction import Compactor
from .follower import Follower
from .ownership import STATES, Ownership
from .segments import Segment
from .shipper import Shipper

_log = logging.getLogger(__name__)

#: Seconds between two writings of the positions of the tee.
KEEP_SECONDS = 30.0


class Maintenance:
    """Keeps one directory. Used by one thread at a time, but for `finish`.

    :raises UsageError: a tee is wanted and standard output is closed.
    """

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        path = settings.directory.path
        self.ownership = Ownership(path)
        self._settings = settings
        self.retention = Compactor(
            settings.retain_bytes, settings.max_bytes, min_age=settings.retain_seconds
        )
        self.shipper: Shipper | None = None
        if settings.tee or settings.archive_dir:
            tee = _standard_output() if settings.tee else None
            self.shipper = Shipper(path, catalog.decoder, tee=tee, archive=settings.archive_dir)
        #: Whether we shipped, and the follower's changes, when segments were last offered.
        self._offered: tuple[bool, int] | None = None
        self._kept_at = time.monotonic()
        self._told = ("waiting", "")

    @property
    def text(self) -> str:
        """What this exporter is to the directory, and why, for people."""
        state, reason = self.ownership.state, self.ownership.reason
        if self._settings.directory.objection() is not None:
            return "none: the directory is not used"
        if state == "owner":
            return f"{state}: {STATES[state]}{self._ships_text()}"
        return f"{state}: {STATES[state]}" + (f" ({reason})" if reason else "")

    def claim(self) -> None:
        """Before a drain: own the directory, if nobody else does.

        Before, since the directory may have been compacted by the one who owned it last: only
        what was read since it is ours may be compacted by us.
        """
        if self._settings.directory.objection() is not None:
            return
        self.ownership.claim()
        said = (self.ownership.state, self.ownership.reason)
        if said != self._told:
            self._told = said
            self._say()

    def after_drain(self, follower: Follower) -> None:
        """After a drain: ship and compact what is due. Never raises for what the disks do."""
        if follower.identity is None:
            return
        owner = self.ownership.owns(follower.identity)
        if owner:
            self.retention.compact_due(follower, self._released, self._positions)
        if self.shipper is None:
            return
        # Beside another who owns the directory: what is to be shipped is shipped by that one.
        ships = owner or self.ownership.state == "reader"
        if self._offered != (ships, follower.changes):
            self._offered = (ships, follower.changes)
            kept = follower.shipped if owner else {}
            self.shipper.offer(follower.segments if ships else [], kept)
        if owner and time.monotonic() >= self._kept_at + KEEP_SECONDS:
            self._keep(follower)

    def finish(self, seconds: float) -> None:
        """Have the shipping end within so many seconds. Any thread may call this."""
        if self.shipper is not None:
            self.shipper.finish(seconds)

    def close(self, follower: Follower) -> None:
        """After `finish`: wait for its end, keep the positions, let go of the directory."""
        if self.shipper is not None:
            self.shipper.join()
            if self.ownership.owns(follower.identity):
                self._keep(follower)
        self.ownership.release()

    def _released(self, segment: Segment) -> bool:
        return self.shipper is None or self.shipper.released(segment)

    def _positions(self) -> dict[str, int] | None:
        return None if self.shipper is None else self.shipper.positions()

    def _keep(self, follower: Follower) -> None:
        positions = self._positions()
        self._kept_at = time.monotonic()
        if (
            positions is not None
            and positions != follower.shipped
            and self.retention.keep(follower, positions)
        ):
            follower.mark_shipped(positions)

    def _ships_text(self) -> str:
        archive = self._settings.archive_dir
        tees = ", tees it" if self._settings.tee else ""
        return tees + (f", archives it in {archive}" if archive else "")

    def _say(self) -> None:
        path, state, reason = self.ownership.directory, self.ownership.state, self.ownership.reason
        if state == "owner":
            _log.info("%s is ours: it is compacted by this exporter", path)
        elif state == "reader":
            _log.warning("%s is served without owning it, and not compacted: %s", path, reason)
        elif state == "standby":
            _log.warning("%s is served without owning it: it is owned by %s", path, reason)


def _standard_output() -> int:
    if sys.stdout is None:
        raise UsageError("--tee: standard output is closed")
    return sys.stdout.fileno()
