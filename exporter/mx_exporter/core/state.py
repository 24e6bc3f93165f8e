"""The fold's state: a value that merges.

Merging the states of disjoint events is associative and commutative, bit for bit, so a replay may
be spread over many workers, and put together from files, and still equal what one exporter serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from . import ranges
from .catalog import Catalog
from .ledger import Book, Ledger
from .load_tracker import Loads
from .series import Series
from .unanswered import Calls

SeriesByLabels = dict[tuple[str, ...], Series]


def add_to(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add to counts that may fall, and leave out what becomes 0."""
    for name, count in more.items():
        counts[name] += count
        if not counts[name]:
            del counts[name]


class Overlap(ValueError):
    """Two states that are to be merged hold the same event."""


class State:
    """Everything that was derived from the events met so far. Picklable.

    :param catalog: the families that there are series of.
    """

    def __init__(self, catalog: Catalog) -> None:
        #: family -> label values (opt-in labels left out) -> series
        self.series: dict[str, SeriesByLabels] = {family.name: {} for family in catalog.families}
        #: The same with opt-in labels, for the families that have one. Always kept, so that
        #: asking for the label later loses nothing.
        self.detail: dict[str, SeriesByLabels] = {
            family.name: {} for family in catalog.families if family.has_opt_in
        }
        self.loads = Loads()
        self.calls = Calls()
        #: proc -> its book
        self.books = Ledger()
        #: Events folded, by event.
        self.events: Counter[str] = Counter()
        #: Events refused, by reason: an observation that was none, or a label that drops it.
        self.refused: Counter[str] = Counter()
        #: Lines rejected, by reason (`decode.REASONS`). Those of a number that the books know count
        #: once, and not at all once a good line of that number was met.
        self.rejected: Counter[str] = Counter()
        #: Events that the schema does not know.
        self.skipped = 0
        #: Lines whose (proc, seq) was met before.
        self.duplicates = 0
        #: Sums over all books, kept along so that no scrape walks through the processes.
        self.logged = 0
        self.rejected_numbers = 0
        self.lost = 0
        #: Processes known to live no more.
        self.gone = 0
        #: Timestamp of the latest event; empty before the first.
        self.last_event = ""

    def split_off(self, catalog: Catalog, procs: Iterable[str]) -> State:
        """Move what events of some processes are compared with into a state of its own.

        To fold on from it, and to merge it back, gives what folding on from the whole gives.
        """
        part = State(catalog)
        for proc in procs:
            book = self.books.take(proc)
            if book is None:
                continue
            part.books.put(proc, book)
            self.loads.split_off(proc, part.loads)
            part.logged += book.end
            part.rejected_numbers += book.rejected
            part.lost += book.lost
            part.gone += book.gone
        self.logged -= part.logged
        self.rejected_numbers -= part.rejected_numbers
        self.lost -= part.lost
        self.gone -= part.gone
        return part

    def merge(self, other: State) -> None:
        """Take over the state of other events; ``other`` is used up.

        Raises `Overlap` when both hold an event; nothing is changed then.
        """
        joined: dict[str, Book] = {}
        for proc in sorted(self.books.keys() & other.books.keys()):
            book = self.books[proc].joined(other.books[proc])
            if book is None:
                raise Overlap(f"events of process {proc} are in both states")
            joined[proc] = book
        for proc, book in joined.items():
            self._join(proc, book, other)
        for mine, theirs in ((self.series, other.series), (self.detail, other.detail)):
            for name, table in theirs.items():
                into = mine[name]
                for labels, series in table.items():
                    known = into.get(labels)
                    if known is None:
                        into[labels] = series
                    else:
                        known.merge(series)  # type: ignore[arg-type]
        self.loads.merge(other.loads)
        self.calls.merge(other.calls)
        self.books.merge(other.books)
        self.events.update(other.events)
        self.refused.update(other.refused)
        add_to(self.rejected, other.rejected)
        self.skipped += other.skipped
        self.duplicates += other.duplicates
        self.logged += other.logged
        self.rejected_numbers += other.rejected_numbers
        self.lost += other.lost
        self.gone += other.gone
        self.last_event = max(self.last_event, other.last_event)

    def holds(self, other: State) -> bool:
        """Whether all events of another state are in this one too."""
        return all(
            proc in self.books and self.books[proc].holds(book)
            for proc, book in other.books.items()
        )

    def _join(self, proc: str, book: Book, other: State) -> None:
        """Give a process that is in both states the one book, and take it out of the other."""
        for state in (self, other):
            given = state.books.take(proc)
            assert given is not None
            self._count(given, -1)
            self.duplicates += given.met
        self._count(book, 1)
        self.duplicates -= book.met
        self.loads.join(proc, other.loads)
        if book.gone:
            self.loads.leave(proc, complete=book.complete == book.end)
        else:
            self.loads.close(proc, book.complete)
        self.books.put(proc, book)

    def _count(self, book: Book, by: int) -> None:
        """Count what is in a book, once more or not any more."""
        self.logged += by * book.end
        self.rejected_numbers += by * book.rejected
        self.lost += by * book.lost
        self.gone += by * book.gone
        for reason, numbers in book.rejections.items():
            add_to(self.rejected, {reason: by * ranges.count(numbers)})
