"""What became of the lines of a file: each is an event, a fault, or somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.decode import Event, Rejected

#: Of a line that is shown no more than this.
_SHOWN = 60


@dataclass
class Tally:
    """Counts of lines. A line that holds several events counts once for each, and one that was cut
    into parts counts once. Blank lines are none."""

    lines: int = 0
    #: Lines that gave an event, doubles and events without an observation included.
    events: int = 0
    #: Lines that gave none, and ought to.
    rejected: int = 0
    #: Lines of somebody else.
    foreign: int = 0
    #: The first of these.
    first: bytes = b""

    def add_foreign(self, lines: list[bytes]) -> None:
        """Count lines of somebody else."""
        self.lines += len(lines)
        self.foreign += len(lines)
        if lines and not self.first:
            self.first = lines[0][: 4 * _SHOWN]

    def add_entries(self, entries: Sequence[Event | Rejected]) -> None:
        """Count what lines gave."""
        rejected = list(map(type, entries)).count(Rejected)
        self.lines += len(entries)
        self.rejected += rejected
        self.events += len(entries) - rejected

    def add(self, other: Tally) -> None:
        """Count what another one counted."""
        self.lines += other.lines
        self.events += other.events
        self.rejected += other.rejected
        self.foreign += other.foreign
        self.first = self.first or other.first

    @property
    def shown(self) -> str:
        """The first line of somebody else, shortened and harmless."""
        text = self.first.decode("utf-8", "replace").strip("\ufeff\0 \t\r\n")
        text = text if text.isprintable() else text.encode("unicode_escape").decode()
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
