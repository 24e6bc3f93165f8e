"""The fold: events into state. It knows no file, no clock, no thread and no metrics library.

What it gives depends on which events it was fed and on nothing else: not on their order, not on
how they were split, not on whether some came twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from mx_emitter.events import TIMESTAMP

from .books import Book
from .parse import Rejected, check, load_lines
from .plans import Plan, Plans
from .state import State


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
        self.feed(load_lines(lines))

    def feed(self, values: Iterable[Any]) -> None:
        """Fold the values of lines, checked or not: events by what they say, rejected lines by
        reason."""
        touched: list[Plan] = []
        try:
            self._tell_apart(values, touched)
        finally:
            self._plans.carry_out(touched)

    def _tell_apart(self, values: Iterable[Any], touched: list[Plan]) -> None:
        """Enter events in the books, and lay each that was not met before with its plan."""
        state, exact, books = self.state, self._plans.exact, self.state.books
        is_timestamp = TIMESTAMP.fullmatch
        proc: Any = object()  # equal to nothing
        book = Book()
        for value in values:
            # A line just as the emitter writes it, that says what was said before, needs no
            # check of each of its fields. All else takes the long way, to the same plan.
            try:
                said, plans, in_load = exact[len(value)][value["event"]]
                plan = plans[said(value)]
                timestamp, seq, rank = value["timestamp"], value["seq"], value["rank"]
                if value["proc"] != proc:
                    book = books[value["proc"]]
                    proc = value["proc"]
                good = (
                    seq == book.end
                    and type(seq) is int
                    and (type(rank) is int or rank is None)
                    and (not in_load or type(value["load_id"]) is str)
                    and is_timestamp(timestamp) is not None
                )
            except (KeyError, TypeError):
                good = False
            if good:
                book.end = seq + 1
                state.logged += 1
            else:
                event = check(value)
                if isinstance(event, Rejected):
                    self.reject(event.reason)
                    continue
                timestamp, seq, proc = event["timestamp"], event["seq"], event["proc"]
                book = books.setdefault(proc, Book())
                if not self._enter(book, seq):
                    continue
                plan = self._plans.find(event)
            if timestamp > state.last_event:
                state.last_event = timestamp
            if timestamp < plan.oldest:
                plan.oldest = timestamp
            events = plan.events
            if not events:
                touched.append(plan)
            events.append(value)

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
