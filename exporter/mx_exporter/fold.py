"""The fold: events into state. It knows no file, no clock, no thread and no metrics library.

What it gives depends on which events it was fed and on nothing else: not on their order, not on
how they were split, not on whether some came twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .books import Book
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
        given: list[Any] = list(events)
        book = self._book_of_run(given)
        in_order = book is not None and not self._plans.touched
        try:
            if book is not None:
                self._lay(given)
                self._enter_run(given, book)
            else:
                self._lay(event for each in given if (event := self._enter(each)) is not None)
        finally:
            refused = self._plans.carry_out(in_order=in_order)
        return refused

    def _book_of_run(self, given: list[Any]) -> Book | None:
        """The book that all go on together: they are events of one process, with its next numbers,
        in order of their stamps. So they mostly are.
        """
        try:
            proc = given[0].proc
            book = self.state.books.get(proc) or Book()
            seq, last = book.end, ""
            for event in given:
                timestamp = event.timestamp
                if event.proc != proc or event.seq != seq or timestamp < last:
                    return None
                seq, last = seq + 1, timestamp
        except (AttributeError, IndexError):  # there are others among them, or none
            return None
        return self.state.books.setdefault(proc, book)

    def _enter_run(self, run: list[Any], book: Book) -> None:
        """Enter what goes on a book."""
        book.end += len(run)
        self.state.logged += len(run)
        self.state.last_event = max(self.state.last_event, run[-1].timestamp)

    def _enter(self, given: Event | Record | Rejected) -> Event | None:
        """Enter what a line gave; the event, if it is one that was not met before."""
        state = self.state
        if isinstance(given, Rejected):
            self.reject(given.reason)
            return None
        event = event_of(given) if isinstance(given, dict) else given
        book = state.books.get(event.proc) or state.books.setdefault(event.proc, Book())
        if book.knows(event.seq):
            state.duplicates += 1
            return None
        before = book.end
        book.enter(event.seq)
        grown = book.end - before
        state.logged += grown
        state.lost += grown - 1
        state.last_event = max(state.last_event, event.timestamp)
        return event

    def _lay(self, events: Iterable[Event]) -> None:
        """Lay each event with its plan."""
        shapes, touched = self._plans.shapes, self._plans.touched
        for event in events:
            try:
                says, plans = shapes[type(event)]
                plan = plans[says(event)]
            except KeyError:  # what was not said before
                plan = self._plans.find(event)
            waiting = plan.events
            if not waiting:
                touched.append(plan)
            waiting.append(event)

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
