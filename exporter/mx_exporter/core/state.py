"""The fold's state: a value that merges.

Merging the states of disjoint processes is associative and commutative, bit for bit, so a
replay may be spread over many workers and still equal what one exporter serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from .catalog import Catalog
from .ledger import Ledger
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
    """Two states that are to be merged know events of the same process."""


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
        """Take over the state of other processes; ``other`` is used up.

        Raises `Overlap` when both know the same process; nothing is changed then.
        """
        shared = self.books.keys() & other.books.keys()
        if shared:
            raise Overlap(f"process {min(shared)} is in both states")
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
