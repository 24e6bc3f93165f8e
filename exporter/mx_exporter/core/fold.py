"""The fold: events into state. It knows no file, no clock, no thread and no metrics library.

What it gives depends on which events it was fed and on nothing else: not on their order, not on
how they were split, not on whether some came twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .ledger import Book
from .parse import Record, Rejected, parse_events
from .plans import Plans
from .state import State
from .typed import Event, event_of


class Fold:
    """Folds events into `state`.

    ``max_series`` bounds the series of each family: past it new label sets are refused and
    counted. It protects a live exporter; without it (a replay) nothing is left out.
    """

    def __init__(self, state: State | None = None, max_series: int | None = None) -> None:
        self.state = state if state is not None else State()
        self._cap = max_series
        self._plans = Plans(self.state, max_series)

    def fresh(self, state: State) -> Fold:
        """A fold of the same kind that goes on from another state.

        It goes on counting what the cap refused, too: events that are met again count again.
        """
        again = Fold(state, self._cap)
        again._plans.take_over_refusals(self._plans)
        return again

    def capped(self, *, opt_in: bool = False) -> dict[str, int]:
        """Families that refused a new label set because of ``max_series``, and how many
        observations found no series for it.

        Those of series with opt-in labels count where the label is shown: no event is refused
        for them.
        """
        found: Counter[str] = Counter()
        for name, refused in self._plans.capped(opt_in=opt_in):
            found[name] += refused
        return dict(found)

    def feed_lines(self, lines: Iterable[bytes]) -> None:
        """Parse lines and fold what they give."""
        self.feed(parse_events(lines))

    def feed(self, events: Iterable[Event | Record | Rejected]) -> list[tuple[Event, str]]:
        """Fold what lines gave: events, or records, by what they say, rejected lines by reason.

        Returns the events that were refused, and why (`steps.REFUSALS`).
        """
        in_order = False
        try:
            in_order = self._tell_apart(events)
        finally:
            refused = self._plans.carry_out(in_order=in_order)
        return refused

    def _tell_apart(self, events: Iterable[Event | Record | Rejected]) -> bool:
        """Enter events in the books, and lay each that was not met before with its plan.

        Returns whether they lie there in order of their stamps: the next of one process, none
        older than the one before.
        """
        state, shapes, books = self.state, self._plans.shapes, self.state.books
        touched = self._plans.touched
        in_order = not touched
        proc, book = "", Book()
        newest, logged = "", 0
        given: Any
        try:
            for given in events:
                event = given
                try:
                    says, plans = shapes[type(event)]
                    plan = plans[says(event)]
                except KeyError:  # what was not said before, or no event
                    if isinstance(given, Rejected):
                        self.reject(given.reason)
                        continue
                    if isinstance(given, dict):
                        event = event_of(given)
                    plan = self._plans.find(event)
                if event.proc != proc:
                    in_order = in_order and not proc
                    proc = event.proc
                    book = books.get(proc) or books.setdefault(proc, Book())
                seq = event.seq
                if seq == book.end:
                    book.end = seq + 1
                    logged += 1
                elif self._enter(book, seq):
                    in_order = False
                else:
                    continue
                timestamp = event.timestamp
                if timestamp >= newest:
                    newest = timestamp
                else:
                    in_order = False
                waiting = plan.events
                if not waiting:
                    touched.append(plan)
                waiting.append(event)
        finally:
            state.logged += logged
            state.last_event = max(state.last_event, newest)
        return in_order

    def reject(self, reason: str, count: int = 1) -> None:
        """Count lines that give no event (`parse.REASONS`)."""
        if count:
            self.state.rejected[reason] += count

    def writer_gone(self, proc: str) -> None:
        """A process lives no more and all it wrote was fed: its open loads were abandoned."""
        book = self.state.books.get(proc)
        if book is not None:
            self.state.gone += not book.gone
            book.gone = True
            self.state.loads.settle(proc)

    def _enter(self, book: Book, seq: int) -> bool:
        """Enter a number; False when it was met before."""
        state = self.state
        if book.knows(seq):
            state.duplicates += 1
            return False
        before = book.end
        book.enter(seq)
        grown = book.end - before
        state.logged += grown
        state.lost += grown - 1
        return True
