"""What an exporter does for its directory besides reading it: it owns the directory, ships its log
out of the pod, and compacts it.
"""

from __future__ import annotations

import logging
import sys
import time

from mx_log.volume import limit_on

from ..config import Settings
from ..core.catalog import Catalog
from ..errors import UsageError
from .compaction import Compactor
from .follower import Follower
from .ownership import STATES, Ownership
from .segments import Segment
from .shipper import Shipper

_log = logging.getLogger(__name__)

#: Seconds after which the positions of the tee are saved again.
SAVE_SECONDS = 30.0


class Maintenance:
    """Maintains one directory. Used by one thread at a time, but for `finish_shipping`.

    :raises UsageError: a tee is wanted and standard output is closed.
    """

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        path = settings.directory.path
        self.ownership = Ownership(path)
        self._settings = settings
        self.compactor = Compactor(
            settings.retain_bytes, settings.max_bytes, min_age=settings.retain_seconds
        )
        self.shipper: Shipper | None = None
        if settings.tee or settings.archive_dir:
            tee = _standard_output() if settings.tee else None
            self.shipper = Shipper(path, catalog.decoder, tee=tee, archive=settings.archive_dir)
        #: Whether segments were last offered for shipping, and the follower's changes at that time.
        self._offered: tuple[bool, int] | None = None
        self._saved_at = time.monotonic()
        #: Bytes that our files may take: writers with the same `MX_METRICS_MAX_BYTES` drop events
        #: past it.
        self.limit_bytes = settings.max_bytes
        self._logged = ("waiting", "")

    @property
    def role(self) -> str:
        """What this exporter is to the directory, for people: ``owner (compacts)``."""
        state, reason = self.ownership.state, self.ownership.reason
        if self._settings.directory.objection() is not None:
            return "none: the directory is not used"
        if state == "owner":
            return f"owner ({', '.join(self._tasks())})"
        return f"{state}: {STATES[state]}" + (f" ({reason})" if reason else "")

    @property
    def saves(self) -> bool:
        """Whether `close` has positions of the tee to save."""
        return self.shipper is not None and self.shipper.tees and self.ownership.state == "owner"

    def claim(self) -> None:
        """Before a drain: own the directory, if nobody else does.

        Before, since the last owner may have compacted the directory: only what was read since
        the directory is ours may be compacted by us.
        """
        if self._settings.directory.objection() is not None:
            return
        self._look_at_volume()
        self.ownership.claim()
        found = (self.ownership.state, self.ownership.reason)
        if found != self._logged:
            self._logged = found
            self._log_role()

    def ship_and_compact(self, follower: Follower) -> None:
        """After a drain: do what is due. Never raises for what the disks do."""
        if follower.identity is None:
            return
        owner = self.ownership.owns(follower.identity)
        if owner:
            self.compactor.compact(follower, self._released, self._positions)
        if self.shipper is None:
            return
        # Where another exporter owns the directory, that one ships.
        ships = owner or self.ownership.state == "reader"
        if self._offered != (ships, follower.changes):
            self._offered = (ships, follower.changes)
            saved = follower.shipped if owner else {}
            self.shipper.offer(follower.segments if ships else [], saved)
        if owner and time.monotonic() >= self._saved_at + SAVE_SECONDS:
            self._save_positions(follower)

    def finish_shipping(self, seconds: float) -> None:
        """Have the shipping end within so many seconds. Any thread may call this."""
        if self.shipper is not None:
            self.shipper.finish(seconds)

    def close(self, follower: Follower) -> None:
        """After `finish_shipping`: wait for its end, save the positions, release the directory."""
        if self.shipper is not None:
            self.shipper.join()
            if self.ownership.owns(follower.identity):
                self._save_positions(follower)
        self.ownership.release()

    def _look_at_volume(self) -> None:
        path, wanted = self.ownership.directory, self._settings.max_bytes
        limit = limit_on(path, wanted)
        if limit != self.limit_bytes and limit < wanted:
            _log.warning(
                "the volume of %s is small for MX_METRICS_MAX_BYTES, %d: our files take half of "
                "the volume at most, %d bytes; make it larger, or set a lower limit for engine and "
                "exporter",
                path,
                wanted,
                limit,
            )
        self.limit_bytes = limit

    def _released(self, segment: Segment) -> bool:
        return self.shipper is None or self.shipper.released(segment)

    def _positions(self) -> dict[str, int] | None:
        return None if self.shipper is None else self.shipper.positions()

    def _save_positions(self, follower: Follower) -> None:
        positions = self._positions()
        self._saved_at = time.monotonic()
        if (
            positions is not None
            and positions != follower.shipped
            and self.compactor.save_positions(follower, positions)
        ):
            follower.mark_shipped(positions)

    def _tasks(self) -> list[str]:
        """What an owner does."""
        tasks = ["compacts"]
        if self._settings.tee:
            tasks.append("tees")
        if self._settings.archive_dir:
            tasks.append(f"archives in {self._settings.archive_dir}")
        return tasks

    def _log_role(self) -> None:
        path, state, reason = self.ownership.directory, self.ownership.state, self.ownership.reason
        if state == "owner":
            _log.info("this exporter owns %s and compacts it", path)
        elif state == "reader":
            _log.warning("%s is served without owning it, and not compacted: %s", path, reason)
        elif state == "standby":
            _log.warning("%s is served without owning it: it is owned by %s", path, reason)


def _standard_output() -> int:
    if sys.stdout is None:
        raise UsageError("--tee: standard output is closed")
    return sys.stdout.fileno()
