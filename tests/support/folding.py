"""Logs that are folded in this process, and the pages of what comes of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_exporter.exposition.fold_metrics import state_families
from mx_exporter.exposition.samples import derived_families
from mx_exporter.exposition.text import render
from mx_exporter.offline.fold_logs import fold_logs
from tests.support import Lines
from tests.support.pages import Samples, parse


def fold(lines: Iterable[bytes], gone: bool = True, **options: Any) -> Fold:
    """Fold lines; afterwards the writers are ``gone`` or still live."""
    whole = Fold(CATALOG, **options)
    whole.feed_lines(lines)
    if gone:
        settle(whole)
    return whole


def some_state() -> State:
    """A state with a counter, two histograms and a header."""
    log = Lines()
    return fold(
        [
            log.header(),
            log("sources_ordered", policy="p", seconds=0.5),
            log("transfer_finished", policy="p", outcome="success", seconds=3),
        ]
    ).state


def settle(whole: Fold) -> None:
    """Fold the end of every writer."""
    for proc in list(whole.state.books):
        whole.writer_gone(proc)


def follow(directory: Path) -> Follower:
    """A fresh follower of a directory, after its first drain."""
    follower = Follower(str(directory), Fold(CATALOG))
    follower.drain()
    return follower


def page_of(state: State, *, source_id_label: bool = True) -> bytes:
    """The page of a state in OpenMetrics, the opt-in label included."""
    families = derived_families(CATALOG, state, source_id_label=source_id_label)
    return render(families, openmetrics=True)


def whole_page(state: State) -> bytes:
    """The same, with the books."""
    families = derived_families(CATALOG, state, source_id_label=True)
    return render([*families, *state_families(state)], openmetrics=True)


def classic_page(state: State) -> bytes:
    """The classic page with the books, without the opt-in label."""
    return render([*derived_families(CATALOG, state), *state_families(state)])


def derived_page(state: State, *, source_id_label: bool = False) -> bytes:
    """The classic page without the books: what a replay prints."""
    return render(derived_families(CATALOG, state, source_id_label=source_id_label))


def pages(state: State) -> tuple[bytes, bytes]:
    """The whole page in OpenMetrics, and the classic one without books and opt-in label."""
    return whole_page(state), derived_page(state)


def live_page(directory: Path, *, source_id_label: bool = True) -> bytes:
    """What the live exporter serves of a directory."""
    return page_of(follow(directory).fold.state, source_id_label=source_id_label)


def replayed_page(*logs: Path | str, jobs: int = 1) -> bytes:
    """What a replay of logs gives, folded in this process and ``jobs`` workers."""
    return page_of(fold_logs(CATALOG, tuple(map(str, logs)), jobs=jobs)[2].state)


def samples(state: State, **options: Any) -> Samples:
    """The samples of a state's page, read back by the client library's parser."""
    return parse(derived_page(state, **options).decode())


def value(state: State, name: str, **labels: str) -> float | None:
    """A sample's value; None when there is no such series. ``scheme`` is empty if not given."""
    wanted = {"scheme": "", **labels}
    return samples(state).get((name, tuple(sorted(wanted.items()))))


def compact(directory: Path, retain: int = 1) -> Follower:
    """What an owning exporter does until its bounds are kept; returns its follower."""
    live = Follower(str(directory), Fold(CATALOG))
    live.drain()
    compactor = Compactor(retain, 10**9, min_age=0)
    done = -1
    while compactor.compactions > done:
        done = compactor.compactions
        compactor.compact(live)
        live.drain()
    assert not compactor.trouble
    return live
