"""Calls of recorders that no family answers: those of a newer client, and misspelt ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .catalog import RECORDER_CALLED, Label
from .series_cap import is_full

#: The event that the emitter logs for such a call.
EVENT = RECORDER_CALLED

#: Names that are shown; others are shown as one.
MOST_SHOWN = 50

#: The name of the others.
OTHER = "other"

_NAME = Label("recorder", "name of the recorder", max_length=100)


class Calls:
    """How often each was called. All names are kept, so that those that are shown do not depend on
    the order in which events are met; all states merge."""

    __slots__ = ("by_name",)

    def __init__(self) -> None:
        #: name -> calls, smallest timestamp of one
        self.by_name: dict[str, tuple[int, str]] = {}

    def note(self, events: Iterable[Any], cap: int | None) -> None:
        """Count calls. A name for which there is no room any more is counted as `OTHER`.

        :param cap: as for series (`series_cap`).
        """
        for event in events:
            name = _NAME.resolve(event.recorder) or ""
            if is_full(self.by_name, cap) and name not in self.by_name:
                name = OTHER
            self._add(name, 1, event.timestamp)

    def merge(self, other: Calls) -> None:
        """Take over the calls of other processes."""
        for name, (count, first) in other.by_name.items():
            self._add(name, count, first)

    def shown(self) -> dict[str, int]:
        """Calls by name: those that were called first, and all others as one."""
        by_age = sorted(self.by_name, key=lambda name: (self.by_name[name][1], name))
        found = {name: self.by_name[name][0] for name in by_age[:MOST_SHOWN]}
        rest = sum(self.by_name[name][0] for name in by_age[MOST_SHOWN:])
        if rest:
            found[OTHER] = found.get(OTHER, 0) + rest
        return found

    def _add(self, name: str, count: int, first: str) -> None:
        known, earliest = self.by_name.get(name, (0, first))
        self.by_name[name] = (known + count, min(earliest, first))
