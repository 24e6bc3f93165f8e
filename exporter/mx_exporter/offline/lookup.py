"""Records to what they hold, many at a time where they are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from mx_log.schema import MAX_LINE_BYTES

from ..core.decode import Decoder, Event, Rejected, ended
from .find import Finder
from .parts import Seams
from .records import AROUND, Run
from .shapes import Shape, plain, shape_of
from .signs import may_hold_event, may_hold_part
from .tally import Tally

#: What consecutive lines gave: the number of the first line (from 1), then one entry a line.
Batch: TypeAlias = tuple[int, list[Event | Rejected]]

#: Records at a file's beginning that may be the rest of what the file before it ends with.
_FIRST = 8


class Lookup:
    """Finds what the records of one file hold, and counts it.

    :param numbered: the numbers of lines are needed. Without them many lines are given at a time,
        and the number of a batch is that of a line near it.
    """

    def __init__(self, decoder: Decoder, tally: Tally, *, numbered: bool) -> None:
        self._decoder = decoder
        self._tally = tally
        self._numbered = numbered
        self._finder = Finder(decoder)
        self._shape: Shape | None = plain
        self._met = 0

    def batches(self, run: Run, *, last: bool = False) -> Iterator[Batch]:
        """What records hold.

        :param last: they end the file, and the last of them has no end.
        """
        numbers, records = run
        quick = self._by_shape(records)
        if quick is not None and None not in quick:
            self._met += len(records)
            self._tally.add_entries(quick)  # type: ignore[arg-type]  # none of them is None
            if isinstance(numbers, range) or not self._numbered:
                yield numbers[0], quick  # type: ignore[misc]
            else:
                yield from ((n, [entry]) for n, entry in zip(numbers, quick, strict=True))  # type: ignore[misc]
            return
        if self._all_foreign(records):
            return
        found = self._one_by_one(numbers, records, quick)
        for number, entries in found if self._numbered else _together(found):
            if last:
                entries = [ended(entry) for entry in entries]
            self._tally.add_entries(entries)
            if self._numbered:
                yield from ((number, [entry]) for entry in entries)
            else:
                yield number, entries

    def close(self, path: str, seams: Seams) -> None:
        """Hand over what waits for its rest, or may be one."""
        parts = self._finder.parts
        seams.add(path, dict(parts.heads), parts.rest())

    def _by_shape(self, records: list[bytes]) -> list[Event | None] | None:
        """The events of records that have the shape in hand; None: few have."""
        if self._shape is None:
            return None
        lines = self._shape(records)
        if lines is None:
            return None
        if sum(map(len, records)) >= MAX_LINE_BYTES:
            lines = [line if line and len(line) < MAX_LINE_BYTES else None for line in lines]
        if None not in lines:
            events = self._decoder.decode(lines)  # type: ignore[arg-type]
            if len(events) != len(lines):
                return None
        else:
            decoded = iter(self._decoder.decode([line for line in lines if line]))
            events = [next(decoded) if line else None for line in lines]  # type: ignore[misc]
        return [None if isinstance(event, Rejected) else event for event in events]

    def _all_foreign(self, records: list[bytes]) -> bool:
        if self._finder.parts or self._met < _FIRST:
            return False
        block = b"\n".join(records)
        if may_hold_event(block) or may_hold_part(records, block):
            return False
        self._tally.add_foreign([record for record in records if record.strip(AROUND)])
        return True

    def _one_by_one(
        self, numbers: Sequence[int], records: list[bytes], quick: list[Event | None] | None
    ) -> Iterator[Batch]:
        finder, tally = self._finder, self._tally
        worth = [at for at, record in enumerate(records) if _may_hold(record)]
        if quick is None:
            # Lines of others among them may be all that kept the shape from fitting.
            events = self._by_shape([records[at] for at in worth]) if worth else None
            quick = [None] * len(records)
            for at, event in zip(worth, events or (), strict=False):
                quick[at] = event
        looked_at = set(worth)
        learned: bytes | None = None
        fitting = 0
        for at, (number, record, event) in enumerate(zip(numbers, records, quick, strict=True)):
            self._met += 1
            if event is not None:
                fitting += 1
                yield number, [event]
                continue
            if at not in looked_at and not finder.parts and self._met > _FIRST:
                if record.strip(AROUND):
                    tally.add_foreign([record])
                continue
            entries = finder.find(record, number)
            if entries is None:
                tally.add_foreign([record])
            elif entries:
                if len(entries) == 1 and isinstance(entries[0], Event):
                    learned = record
                yield number, entries
        if learned is not None and 2 * fitting < len(worth):
            self._shape = shape_of(learned.strip(AROUND))


def close_seams(
    seams: Seams, decoder: Decoder, tally_of: Callable[[str], Tally]
) -> Iterator[tuple[str, int, list[Event | Rejected]]]:
    """What lines that were cut at the end of a file are, with the path and number of each.

    :param tally_of: the tally of the file of a path.
    """
    finder = Finder(decoder)
    for path, number, text, joined in seams.close():
        tally = tally_of(path)
        entries = finder.finish(text, torn=not joined)
        if entries is None:
            tally.add_foreign([text])
            continue
        tally.add_entries(entries)
        yield path, number, entries


def _may_hold(record: bytes) -> bool:
    return may_hold_event(record) or may_hold_part([record], record)


def _together(found: Iterator[Batch]) -> Iterator[Batch]:
    """All at once: what is folded one by one takes several times as long."""
    first, entries = 0, []
    for number, each in found:
        first = first or number
        entries += each
    if entries:
        yield first, entries
