"""Two sets of loads, compared: what became slower, where the time went, what fails now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..loads.compare import LEAST_STARTS, QUANTILES, Difference, Figure, difference, figures, series
from ..loads.measured import Measured
from ..loads.parts import KINDS

#: What loads can be compared by, group by group.
KEYS: dict[str, Callable[[Measured], str]] = {
    "model": lambda load: load.model or "unknown",
    "engine": lambda load: load.engine or "unknown",
    "node": lambda load: load.node or "unknown",
    "scheme": lambda load: load.scheme or "none",
    "version": lambda load: load.version or "unknown",
}


class Side(NamedTuple):
    """One of the two sets."""

    name: str
    loads: list[Measured]

    @property
    def outcomes(self) -> Counter[str]:
        """How many loads came to what."""
        return Counter(load.outcome for load in self.loads)

    @property
    def well(self) -> list[Measured]:
        """Those that ended well."""
        return [load for load in self.loads if load.outcome == "success" and load.seconds]

    @property
    def starts(self) -> int:
        """How many starts of pods they are."""
        return len(series(self.loads, Figure("", 0, lambda _: (0.0,))).by_start)

    def tags(self, of: Callable[[Measured], str | None]) -> str:
        """What they have in common, or how many there are."""
        found = sorted({of(load) or "" for load in self.loads} - {""})
        return found[0] if len(found) == 1 else f"{len(found)} of them" if found else ""


class Row(NamedTuple):
    """A figure, and how its quantiles differ."""

    figure: Figure
    differences: tuple[Difference, ...]


class Share(NamedTuple):
    """What a kind of part adds to the mean of a load that ended well."""

    kind: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """Seconds that it added to the mean."""
        return self.after - self.before


class Peer(NamedTuple):
    """Attempts at a peer and how many gave the weights, on either side."""

    name: str
    attempts: tuple[int, int]
    succeeded: tuple[int, int]


class Comparison(NamedTuple):
    """All that is said of two sets."""

    before: Side
    after: Side
    rows: list[Row]
    #: Those that changed most first; together they are the change of the mean.
    shares: list[Share]
    #: Texts of errors, with how many loads ended in each.
    errors: list[tuple[str, int, int]]
    peers: list[Peer]

    def mean(self, side: Side) -> float | None:
        """The mean of the loads that ended well."""
        well = side.well
        return sum(load.seconds or 0.0 for load in well) / len(well) if well else None


def compare(before: Side, after: Side, *, seed: int = 0, least: int = LEAST_STARTS) -> Comparison:
    """Compare two sets.

    :param seed: of the draws that the intervals come from.
    :param least: fewest starts of pods of which an interval is given.
    """
    rows = []
    for figure in figures(before.loads, after.loads):
        ours, theirs = series(before.loads, figure), series(after.loads, figure)
        rows.append(
            Row(
                figure,
                tuple(difference(ours, theirs, q, seed=seed, least=least) for q in QUANTILES),
            )
        )
    return Comparison(
        before, after, rows, _shares(before, after), _errors(before, after), _peers(before, after)
    )


def groups(before: Side, after: Side, key: str) -> Iterable[tuple[str, Side, Side]]:
    """The two sets, cut into groups of a key of `KEYS`; a group may be empty on one side."""
    of = KEYS[key]
    for name in sorted({of(load) for side in (before, after) for load in side.loads}):
        ours, theirs = (
            Side(side.name, [load for load in side.loads if of(load) == name])
            for side in (before, after)
        )
        yield name, ours, theirs


def _shares(before: Side, after: Side) -> list[Share]:
    found = []
    for kind in KINDS:
        means = []
        for side in (before, after):
            well = side.well
            spent = sum(load.parts.get(kind, 0.0) for load in well)
            means.append(spent / len(well) if well else 0.0)
        if any(means):
            found.append(Share(kind, means[0], means[1]))
    return sorted(found, key=lambda share: -abs(share.change))


def _errors(before: Side, after: Side) -> list[tuple[str, int, int]]:
    ours, theirs = (Counter(_texts(side.loads)) for side in (before, after))
    found = [(text, ours[text], theirs[text]) for text in {*ours, *theirs}]
    return sorted(found, key=lambda each: (-(each[1] + each[2]), each[0]))


def _texts(loads: Sequence[Measured]) -> list[str]:
    return [load.error for load in loads if load.error is not None]


def _peers(before: Side, after: Side) -> list[Peer]:
    counts = []
    for side in (before, after):
        tried: Counter[str] = Counter()
        well: Counter[str] = Counter()
        for load in side.loads:
            for peer, succeeded in load.attempts:
                if peer is not None:
                    tried[peer] += 1
                    well[peer] += succeeded
        counts.append((tried, well))
    (tried, well), (tried_after, well_after) = counts
    found = [
        Peer(name, (tried[name], tried_after[name]), (well[name], well_after[name]))
        for name in {*tried, *tried_after}
    ]
    return sorted(found, key=lambda peer: (-sum(peer.attempts), peer.name))
