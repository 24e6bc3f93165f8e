"""From events to loads: the timeline.

Events of a process may come in any order, from any number of files, and more than once. A load is
what its process logged under its id between its start and its end. It is given as soon as each
number between the two was met and the process has said who it is, so that what is kept grows with
the loads that run, not with the log. The same events give the same loads, whatever their order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import groupby
from operator import attrgetter

from ..core.decode import Event, Rejected
from ..core.ranges import Ranges
from .model import Load
from .track import Idle, Track

_proc = attrgetter("proc")


class Timeline:
    """Gathers events, and gives the loads that are complete."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}
        #: Processes of which nothing is left to be told, and that may log on.
        self.idle: dict[str, Idle] = {}

    def feed(self, events: Iterable[Event | Rejected], procs: set[str] | None = None) -> list[Load]:
        """Take events, and give the loads that are complete by them.

        :param procs: where the processes that they name are noted.
        """
        procs = set() if procs is None else procs
        given: list[Load] = []
        good = [event for event in events if type(event) is not Rejected]
        for proc, some in groupby(good, _proc):
            track = self._track(proc)
            procs.add(proc)
            track.take(some)
            given += self._leave(track)
        return given

    def know(self, proc: str, met: Ranges) -> None:
        """Take these numbers of a process as met: what was logged under them is of no load that
        is to be given here."""
        self._track(proc).know(met)

    def running(self) -> list[Load]:
        """The loads that have not ended, as far as they went; all else stays as it is."""
        return [
            load
            for track in self.tracks.values()
            for load in track.unfinished(lambda _: "running")
            if not load.done
        ]

    def finish(self, alive: Container[str], gone: Container[str]) -> list[Load]:
        """All that is left, when there are no more events.

        :param alive: processes that live.
        :param gone: processes that do not. Of others nobody knows, unless a later process of the
            same pod and rank logged.
        """
        replaced = self._replaced()

        def outcome(proc: str) -> str:
            if proc in alive:
                return "running"
            return "killed" if proc in gone or proc in replaced else "unknown"

        left = [load for track in self.tracks.values() for load in track.unfinished(outcome)]
        self.tracks.clear()
        self.idle.clear()
        return left

    def merge(self, other: Timeline) -> list[Load]:
        """Take over what another one gathered, and give what is complete by it."""
        given: list[Load] = []
        known = self.tracks.keys() | self.idle.keys()
        for proc in [*other.tracks, *other.idle]:
            if proc in known:
                track = self._track(proc)
                track.merge(other._track(proc))
                given += self._leave(track)
            elif proc in other.idle:
                self.idle[proc] = other.idle[proc]
            else:
                self.tracks[proc] = other.tracks[proc]
        return given

    def _track(self, proc: str) -> Track:
        track = self.tracks.get(proc)
        if track is None:
            idle = self.idle.pop(proc, None)
            track = self.tracks[proc] = Track(proc) if idle is None else idle.track(proc)
        return track

    def _leave(self, track: Track) -> list[Load]:
        """What is complete of a process, which logs nothing for the moment."""
        given = track.complete()
        idle = track.idle()
        if idle is not None:
            self.idle[track.proc] = idle
            del self.tracks[track.proc]
        return given

    def _replaced(self) -> set[str]:
        """Processes after which another one of the same pod and rank began."""
        newest: dict[tuple[str, int | None], tuple[str, str]] = {}
        places: dict[str, tuple[tuple[str, int | None], str]] = {}
        for proc in [*self.tracks, *self.idle]:
            track = self.tracks.get(proc) or self.idle[proc].track(proc)
            place = track.place
            if place:
                key = (place, track.rank)
                places[proc] = (key, track.header)
                newest[key] = max(newest.get(key, ("", "")), (track.header, proc))
        return {proc for proc, (key, header) in places.items() if newest[key] > (header, proc)}
