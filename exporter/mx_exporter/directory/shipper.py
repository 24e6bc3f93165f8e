"""How the log leaves the pod: each event line to standard output (the tee), each finished
segment to an archive directory.

A thread of its own does both, with read positions of its own: neither a reader of our output who
stopped nor a slow disk ever holds up a drain or a scrape. A segment that was not shipped is not
compacted (`Shipper.released`), except where the writers would run out of room (`compaction`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from ..core.decode import Decoder
from .archive import Archive
from .segments import Segment
from .shipment import Shipment
from .tee import STUCK_SECONDS, Tee

_log = logging.getLogger(__name__)

#: What ships, and what its trouble means (``to`` of ``mx_exporter_shipping_failures_total``).
WAYS = {"tee": "standard output could not be written", "archive": "a segment was not archived"}

#: Seconds before what failed is tried again.
RETRY_SECONDS = 5.0

#: Seconds for the write in hand when the time for shipping is over.
LAST_WRITE_SECONDS = 3.0


class Shipper:
    """Ships the segments of one directory.

    :param directory: where they lie.
    :param decoder: tells the lines that are events, which alone are teed.
    :param tee: descriptor of standard output, or None.
    :param archive: directory of the archive, or None.
    """

    def __init__(
        self,
        directory: str,
        decoder: Decoder,
        *,
        tee: int | None = None,
        archive: str | None = None,
    ) -> None:
        self._tee = None if tee is None else Tee(directory, tee, decoder)
        self._archive = None if archive is None else Archive(directory, archive)
        self._shipments: dict[str, Shipment] = {}
        self._changed = threading.Condition()
        self._news = False
        self._deadline = float("inf")
        self._retry = dict.fromkeys(WAYS, 0.0)
        self._logged = dict.fromkeys(WAYS, "")
        #: Tries that failed, by way.
        self.failures: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="mx-ship", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------------------
    # Called by the thread that drains

    def offer(self, segments: Iterable[Segment], saved: Mapping[str, int]) -> None:
        """Take the list of segments after a drain; those that are not in it are forgotten.

        ``saved`` says where to begin with a segment that was not known before.
        """
        with self._changed:
            shipments = {}
            for segment in segments:
                name = str(segment.name)
                shipment = self._shipments.get(name)
                if shipment is None:
                    shipment = Shipment(segment, saved.get(name, 0))
                elif shipment.inode != segment.inode:
                    shipment = Shipment(segment, 0)
                shipment.size, shipment.done = segment.size, segment.done
                shipments[name] = shipment
            self._shipments = shipments
            self._news = True
            self._changed.notify()

    def released(self, segment: Segment) -> bool:
        """Whether a finished segment was shipped whole."""
        shipment = self._shipments.get(str(segment.name))
        return shipment is not None and self._is_shipped(shipment)

    def positions(self) -> dict[str, int] | None:
        """How far each segment was teed, to be saved; None when there is no tee."""
        if self._tee is None:
            return None
        return {
            name: shipment.position
            for name, shipment in self._shipments.items()
            if shipment.position
        }

    @property
    def tees(self) -> bool:
        """Whether lines go to standard output."""
        return self._tee is not None

    @property
    def archives(self) -> bool:
        """Whether segments go to an archive."""
        return self._archive is not None

    @property
    def lines(self) -> int:
        """Lines written to standard output."""
        return 0 if self._tee is None else self._tee.count

    @property
    def archived(self) -> int:
        """Segments put in the archive."""
        return 0 if self._archive is None else self._archive.count

    @property
    def pending(self) -> int:
        """Finished segments that were not shipped whole yet."""
        return sum(p.done and not self._is_shipped(p) for p in self._shipments.values())

    def finish(self, seconds: float) -> None:
        """End within so many seconds, having shipped what can be."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify()

    def join(self) -> None:
        """Wait for the end that `finish` asked for."""
        # The thread ends a moment after its deadline. Positions that are read before that would
        # lack a line.
        self._thread.join(max(0.0, self._deadline - time.monotonic()) + LAST_WRITE_SECONDS)

    # ----------------------------------------------------------------------------------
    # The thread

    def _run(self) -> None:
        ending = False
        while not ending:
            with self._changed:
                self._changed.wait_for(self._is_called, self._pause())
                self._news = False
                ending = self._deadline != float("inf")
                shipments = list(self._shipments.values())
            # The archive first: it must not wait for a reader of our output who has stopped.
            for way, to in (("archive", self._archive), ("tee", self._tee)):
                if to is None or time.monotonic() < self._retry[way]:
                    continue
                try:
                    to.ship(shipments, self._is_over)
                except Exception as error:  # noqa: BLE001 - the thread must go on whatever it was
                    self._report(way, error)
                else:
                    self._logged[way], self._retry[way] = "", 0.0

    def _is_called(self) -> bool:
        return self._news or self._deadline != float("inf")

    def _pause(self) -> float | None:
        """Seconds until there is something to do though no news came; None: never."""
        now = time.monotonic()
        pauses = [max(0.0, r - now) for r in self._retry.values() if 0 < r < float("inf")]
        if self._tee is not None and self._tee.stuck:
            pauses.append(STUCK_SECONDS)
        return min(pauses, default=None)

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def _is_shipped(self, shipment: Shipment) -> bool:
        teed = self._tee is None or shipment.teed
        return teed and (self._archive is None or shipment.archived)

    def _report(self, way: str, error: Exception) -> None:
        """Count a failure, log it unless it is the same as before, and set the time to retry."""
        self.failures[way] += 1
        self._retry[way] = time.monotonic() + RETRY_SECONDS
        if repr(error) == self._logged[way]:
            return
        self._logged[way] = repr(error)
        if isinstance(error, BrokenPipeError):
            self._retry[way] = float("inf")
            _log.error("nobody reads standard output any more: the tee has ended")
        else:
            _log.error("%s: %s; trying again", WAYS[way], error)
