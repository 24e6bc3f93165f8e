"""The fold: events into state. It knows no file, no clock, no thread and no metrics library.

What it gives depends on which events it was fed and on nothing else: not on their order, not on
how they were split, not on whether some came twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .catalog import Catalog
from .decode import Event, Rejected
from .handlers import Handler, Handlers
from .ledger import Book
from .reducers import SKIPPED, Refused, Target
from .series import stamp
from .state import State, add_to

#: See `Fold`.
Tap = Callable[[list[Event | Rejected], int], None]


class Fold:
    """Folds events into `state`.

    :param catalog: the events there are, and the families derived from them.
    :param state: the state to go on from, of the same catalogue; None: an empty one.
    :param max_series: most series of a family that a page is to show: of those that come past it,
        some are held (`series_cap`), which bounds memory. None: all are held.
    :param tap: given what lines gave once it is folded, doubles included, and the size of those
        lines in bytes.
    """

    def __init__(
        self,
        catalog: Catalog,
        state: State | None = None,
        max_series: int | None = None,
        tap: Tap | None = None,
    ) -> None:
        self.catalog = catalog
        self.state = state if state is not None else State(catalog)
        self._cap = max_series
        self._tap = tap
        self._handlers = Handlers(catalog, self.state, max_series)
        #: Handlers with events that wait for `_flush`. Should a flush fail, those that are left go
        #: on waiting here.
        self._touched: deque[Handler] = deque()

    def fresh(self, state: State) -> Fold:
        """A fold of the same kind that goes on from another state."""
        return Fold(self.catalog, state, self._cap, self._tap)

    def targets(self, event: Event) -> Iterator[Target]:
        """The series that an event feeds, each as the family's name and the label values."""
        return self._handlers.find(event).targets(event)

    def feed_lines(self, lines: Iterable[bytes], procs: set[str] | None = None) -> None:
        """Decode lines, each without its newline, and fold what they give, as `feed` does."""
        lines = list(lines)
        self.feed_found(self.catalog.decoder.decode(lines), sum(map(len, lines)), procs)

    def feed_found(
        self, found: list[Event | Rejected], size: int, procs: set[str] | None = None
    ) -> None:
        """Fold what lines gave, as `feed` does, and hand it on to the tap.

        :param size: of the lines, in bytes.
        """
        self.feed(found, procs)
        if self._tap is not None:
            self._tap(found, size)

    def feed(self, events: Iterable[Event | Rejected], procs: set[str] | None = None) -> Refused:
        """Fold what lines gave: events by what they say, rejected lines by reason.

        :param procs: where the processes that they name are noted.

        Returns the events that were refused, and why (`reducers.REFUSALS`).
        """
        in_order = False
        try:
            in_order = self._enter_all(events, set() if procs is None else procs)
        finally:
            refused = self._flush(in_order=in_order)
            self.state.books.close_again()
        return refused

    def reject(self, reason: str, count: int = 1) -> None:
        """Count lines that give no event (`decode.REASONS`)."""
        if count:
            self.state.rejected[reason] += count

    def writer_gone(self, proc: str) -> None:
        """A process lives no more: its loads that run were abandoned, also those that it is only
        found to have started later on."""
        book = self.state.books.get(proc)
        if book is not None and not book.gone:
            self.state.gone += 1
            book.gone = True
            self.state.loads.leave(proc, complete=book.complete == book.end)
            self.state.books.close(proc)

    def writer_alive(self, proc: str) -> None:
        """A process that was taken for gone lives: its loads that run are in progress."""
        book = self.state.books.get(proc)
        if book is not None and book.gone:
            self.state.gone -= 1
            self.state.books.open(proc).gone = False
            self.state.loads.come_back(proc)

    def settle(self, gone: set[str]) -> None:
        """Of all processes, these are gone and the others live."""
        books = self.state.books
        for proc in books.alive() & gone:
            self.writer_gone(proc)
        for proc in books.gone() - gone:
            self.writer_alive(proc)

    def _enter_all(self, events: Iterable[Event | Rejected], procs: set[str]) -> bool:
        """Enter events in the books, and leave each that was not met before with its handler.

        Returns whether they lie there in order of their stamps: the next of one process, none
        older than the one before.
        """
        state, by_type, books = self.state, self._handlers.by_type, self.state.books
        touched = self._touched
        in_order = not touched
        proc, book = "", Book()
        newest, logged = "", 0
        event: Any
        try:
            for event in events:
                try:
                    labels_of, handlers = by_type[type(event)]
                    handler = handlers[labels_of(event)]
                except (
                    KeyError
                ):  # the first of its kind, one that the schema does not know, or none
                    if isinstance(event, Rejected):
                        self._reject(event)
                        if event.proc:
                            procs.add(event.proc)
                        continue
                    handler = self._handlers.find(event)
                if event.proc != proc:
                    in_order = in_order and not proc
                    proc = event.proc
                    book = books.open(proc)
                    procs.add(proc)
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
                pending = handler.pending
                if not pending:
                    touched.append(handler)
                pending.append(event)
        finally:
            state.logged += logged
            state.last_event = max(state.last_event, newest)
        return in_order

    def _enter(self, book: Book, seq: int) -> bool:
        """Enter the number of an event; False when an event of that number was met before."""
        if self._enter_new(book, seq):
            return True
        reason = book.rejection(seq)
        if reason is None:
            return False
        self._take_back(book, seq, reason)
        return True

    def _reject(self, line: Rejected) -> None:
        """Count a line that gives no event, and enter its number if it says one."""
        reason, seq = line.reason, line.seq
        if line.proc:
            book = self.state.books.open(line.proc)
            if not self._enter_new(book, seq):
                known = book.rejection(seq)
                # Of two reasons the same one stays, whichever line came first.
                if known is None or known <= reason:
                    return
                self._take_back(book, seq, known)
            # Counted before it is in the book, which never holds more than is counted.
            self.reject(reason)
            book.reject(seq, reason)
            self.state.rejected_numbers += 1
        else:
            self.reject(reason)

    def _take_back(self, book: Book, seq: int, reason: str) -> None:
        """The line that a number was rejected for does not count."""
        book.take_back(seq, reason)
        self.state.rejected_numbers -= 1
        add_to(self.state.rejected, {reason: -1})

    def _enter_new(self, book: Book, seq: int) -> bool:
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

    def _flush(self, *, in_order: bool) -> list[tuple[Event, str]]:
        """Fold the events that wait, and enter what became of them; return those refused."""
        state, touched = self.state, self._touched
        all_refused = []
        while touched:
            handler = touched.popleft()
            events = handler.pending
            handler.pending = []
            if not in_order:
                events.sort(key=stamp)
            if events[0].timestamp < handler.oldest:
                handler.oldest = events[0].timestamp
                for zeros in handler.zeros:
                    zeros.make(events[0])
            refused: Refused = ()
            for reducer in handler.reducers:
                more = reducer.apply(events)
                refused = _either(refused, more) if refused and more else more or refused
            for event, reason in refused:
                book = state.books.open(event.proc)
                if reason == SKIPPED:
                    book.skipped += 1
                    state.skipped += 1
                else:
                    book.refused += 1
                    state.refused[reason] += 1
                    all_refused.append((event, reason))
            folded = len(events) - len(refused)
            if folded:
                state.events[handler.event] += folded
        # Not before the other events of the same load were met.
        ended = self._handlers.ended
        for event in ended:
            proc = event.proc
            state.loads.forget(proc, event.load_id, state.books[proc].complete)
        ended.clear()
        for proc in state.loads.stirred:
            book = state.books[proc]
            if book.gone:
                state.loads.leave(proc, complete=book.complete == book.end)
        state.loads.stirred.clear()
        return all_refused


def _either(refused: Refused, more: Refused) -> Refused:
    """Events that one or the other family refused, each with its first reason."""
    known = {(event.proc, event.seq) for event, _ in refused}
    return [*refused, *(each for each in more if (each[0].proc, each[0].seq) not in known)]
