"""What stands out in loads, in sentences: the ones that a colleague would say first."""

from __future__ import annotations

from collections.abc import Iterator

from mx_log.words import counted

from ..loads.model import Load
from ..loads.parts import ALONE, parts
from ..loads.quantiles import median
from ..loads.why import where
from . import shown
from .sums import Sums

#: Sentences of one kind, and what a loss is worth a word from: seconds, and its share of the load.
_MOST, _SECONDS, _SHARE = 3, 1.0, 0.2

#: A node is slow from so many times the median of all, where it and the others have so many loads.
_SLOW, _ENOUGH = 1.5, 4


def standing_out(sums: Sums) -> list[str]:
    """Sentences, the gravest first; none where nothing stands out."""
    return [*_unfinished(sums), *_losses(sums), *_alone(sums), *_nodes(sums), *_peers(sums)]


def _who(load: Load) -> str:
    place = shown.visible(load.process.place, 80)
    return place if load.rank is None else f"rank {load.rank} of {place}"


def _unfinished(sums: Sums) -> Iterator[str]:
    bad = [load for load in sums.worst if load.outcome in ("killed", "error")]
    for load in bad[:_MOST]:
        after = f" after {shown.seconds(load.elapsed)} s"
        if load.outcome == "killed":
            yield f"{_who(load)} was killed {shown.visible(where(load), 120)}{after}."
        else:
            yield f"{_who(load)} failed{after}: {load.error_type or 'no error was logged'}."
    if len(bad) > _MOST:
        rest = sums.outcomes["killed"] + sums.outcomes["error"] - _MOST
        yield f"{counted(rest, 'more load')} failed or {'was' if rest == 1 else 'were'} killed."


def _losses(sums: Sums) -> Iterator[str]:
    found = []
    for load in sums.worst:
        failed = [one for one in load.attempts if not one.succeeded and one.seconds is not None]
        lost = sum(one.seconds or 0.0 for one in failed)
        if lost >= max(_SECONDS, _SHARE * load.elapsed):
            found.append((lost, len(failed), load))
    found.sort(key=lambda item: -item[0])
    for lost, tries, load in found[:_MOST]:
        attempts = counted(tries, "failed attempt")
        yield f"{_who(load)} lost {shown.seconds(lost)} s to {attempts}."
    if len(found) > _MOST:
        total = shown.seconds(sum(lost for lost, _, _ in found[_MOST:]))
        yield f"{counted(len(found) - _MOST, 'more load')} lost {total} s to failed attempts."


def _alone(sums: Sums) -> Iterator[str]:
    """Loads that went on without a peer."""
    spent = [
        sum(part.seconds for part in parts(load) if part.kind == ALONE)
        for load in sums.worst
        if load.outcome == "success"
    ]
    long = [seconds for seconds in spent if seconds >= _SECONDS]
    if long:
        loads = counted(len(long), "load that succeeded", "loads that succeeded")
        yield f"{loads} went on without a peer, for {shown.seconds(sum(long))} s in all."


def _nodes(sums: Sums) -> Iterator[str]:
    found = []
    usual = median(sums.seconds) or 0.0
    for node, values in sums.by_node.items():
        if node and len(values) >= _ENOUGH and len(sums.seconds) >= _ENOUGH + len(values):
            here = median(values) or 0.0
            if usual > 0 and here >= _SLOW * usual:
                found.append((here / usual, node, here, len(values)))
    for times, node, here, loads in sorted(found, reverse=True)[:_MOST]:
        yield (
            f"{shown.visible(node, 80)} is slow: a median of {shown.seconds(here)} s over "
            f"{counted(loads, 'load')}, {times:.1f} times that of all."
        )


def _peers(sums: Sums) -> Iterator[str]:
    bad = [(name, peer) for name, peer in sums.peers.items() if peer.good < peer.attempts]
    bad.sort(key=lambda item: (-item[1].lost, item[0]))
    for name, peer in bad[:_MOST]:
        lost = f", {shown.seconds(peer.lost)} s lost" if peer.lost >= _SECONDS else ""
        attempts = counted(peer.attempts, "attempt")
        yield f"{shown.visible(name, 80)}: {peer.good} of {attempts} succeeded{lost}."
