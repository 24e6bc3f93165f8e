"""Folding by group: each group's state is what a fold of its processes alone gives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mx_exporter.core import grouped, series_cap
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.grouped import HEADER_LABELS, Group, GroupedFold, group_of
from mx_exporter.core.state import State
from mx_log.schema import EVENTS, HEADERS
from tests.support import Lines
from tests.support.folding import fold, whole_page

A, B, C = "a" * 12, "b" * 12, "c" * 12
LOAD = {"engine": "vllm", "model": "m", "model_role": "main", "load_id": "l"}


def test_labels_of_groups_are_fields_of_every_header() -> None:
    envelope = {"rank", "proc"}
    for header in HEADERS:
        fields = {field.name for field in EVENTS[header].fields}
        assert set(HEADER_LABELS.values()) - envelope <= fields, header


def test_the_group_of_a_header() -> None:
    header = SimpleNamespace(pod_name="p\0q", rank=3, node_name=None)
    assert group_of(header, ["pod", "rank", "node", "namespace"]) == ("p\ufffdq", "3", "", "")


def header(proc: str, pod: str | None, seq: int = 0) -> bytes:
    return Lines(proc, seq=seq).header(seq, pod_name=pod)


def event(proc: str, seq: int, policy: str = "p") -> bytes:
    start = Lines.START + seq
    return Lines(proc, seq=seq, start=start)("sources_ordered", policy=policy, seconds=1)


class Groups:
    """A fold by pod that is fed lines."""

    def __init__(self, base: State | None = None, max_series: int | None = None) -> None:
        self.fold = GroupedFold(CATALOG, ["pod"], base, max_series)
        self.procs: set[str] = set()

    def feed(self, *lines: bytes) -> Groups:
        """As whoever reads a log does."""
        self.meet(*lines)
        self.fold.feed(CATALOG.decoder.decode(lines), self.procs)
        return self

    def meet(self, *lines: bytes) -> Groups:
        self.fold.meet(CATALOG.decoder.decode(lines))
        return self

    def settle(self, *alive: str) -> dict[Group, bytes]:
        return {group: whole_page(state) for group, state in self.fold.settle(set(alive)).items()}


def alone(*lines: bytes) -> bytes:
    return whole_page(fold(lines).state)


def test_each_group_is_folded_by_itself() -> None:
    ours = [header(A, "x"), event(A, 1), header(C, "x"), event(C, 1, "q")]
    theirs = [header(B, "y"), event(B, 1)]
    groups = Groups().feed(*ours, *theirs, b"no JSON")
    assert groups.procs == {A, B, C}
    assert groups.settle() == {("x",): alone(*ours), ("y",): alone(*theirs), ("",): alone(b"{")}


@pytest.mark.parametrize("late", [False, True])
def test_what_was_folded_before_a_header_goes_where_its_process_does(late: bool) -> None:
    lines = [event(A, 1), header(A, "x"), event(A, 2)]
    groups = Groups()
    if late:
        groups.fold.feed(CATALOG.decoder.decode(lines), set())
        groups.meet(event(B, 0), lines[0], lines[1])
    else:
        for line in lines:
            groups.feed(line)
    assert groups.settle() == {("x",): alone(*lines), ("",): alone()}


def test_a_process_without_a_header_is_of_no_group() -> None:
    lines = [event(A, 1), event(A, 2)]
    assert Groups().feed(lines[0]).feed(lines[1]).settle() == {("",): alone(*lines)}


def test_the_first_header_says_the_group() -> None:
    lines = [event(A, 0), header(A, "x", 1), header(A, "y", 2)]
    assert list(Groups().feed(*lines).feed(header(A, "z", 3)).settle()) == [("x",), ("",)]


def test_a_header_beside_events_of_a_known_process_is_met() -> None:
    groups = Groups().feed(header(A, "x")).feed(event(A, 1), header(B, "y"))
    assert list(groups.settle()) == [("x",), ("y",), ("",)]


def test_who_does_not_live_is_gone() -> None:
    lines = [header(proc, "x") for proc in (A, B)]
    lines += [Lines(proc, seq=1)("load_started", **LOAD) for proc in (A, B)]
    state = Groups().feed(*lines).fold.settle({A})["x",]
    assert sum(state.loads.in_progress().values()) == state.loads.abandoned.total() == 1
    assert state.books.gone() == {B}


@pytest.mark.parametrize("pod", ["x", None])
def test_events_that_a_base_holds_are_known_to_the_group(pod: str | None) -> None:
    """What follows is folded there; what the base holds is of nobody."""
    before = [event(A, 0), event(A, 2), event(B, 0)]
    groups = Groups(fold(before, gone=False).state)
    groups.feed(header(A, pod, 3), event(A, 0), event(A, 1))
    group = (pod or "",)
    states = groups.fold.settle(set())
    assert states[group].books[A].end == 4
    assert B in states[("",)].books
    assert sum(state.duplicates for state in states.values()) == 1
    assert states[group].events["sources_ordered"] == (1 if pod else 4)
    assert states[("",)].events["sources_ordered"] == (3 if pod else 4)


def test_a_header_that_is_met_late_moves_what_a_base_holds() -> None:
    groups = Groups(fold([event(A, 0)], gone=False).state)
    groups.feed(event(A, 1)).feed(header(A, "x", 2), event(A, 0))
    states = groups.fold.settle(set())
    book = states["x",].books[A]
    assert (book.end, book.lost, states["x",].duplicates) == (3, 0, 1)
    assert {group: list(state.books) for group, state in states.items()} == {("x",): [A], ("",): []}


def test_folds_that_are_kept_are_few_and_any_other_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouped, "_FOLDS", 2)
    procs = [f"{n:012x}" for n in range(4)]
    logs = {proc: [header(proc, proc), event(proc, 1), event(proc, 2)] for proc in procs}
    groups = Groups()
    made = []
    for at in range(3):
        for proc in procs:
            groups.feed(logs[proc][at])
            made.append(len(groups.fold._folds))
    assert made == [1, 2, *[2] * 10]
    pages = groups.settle()
    assert {proc: pages[proc,] for proc in procs} == {proc: alone(*logs[proc]) for proc in procs}


def test_the_fold_that_was_used_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "_FOLDS", 2)
    groups = Groups().feed(header(A, "x"), header(B, "y"))
    first, *_ = kept = [groups.fold._fold(groups.fold._state_of(proc)) for proc in (B, A)]
    groups.feed(header(C, "z"))
    assert first not in groups.fold._folds.values()
    assert [fold.state for fold in groups.fold._folds.values()] == [
        kept[1].state,
        groups.fold._state_of(C),
    ]


def test_series_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_cap, "SPARE", 1)
    lines = [header(A, "x"), header(B, "x")]
    lines += [event(proc, n, f"{proc}{n}") for n in range(1, 9) for proc in (A, B)]
    state = Groups(max_series=1).feed(*lines).fold.settle(set())["x",]
    assert 1 <= len(state.series["mx_p2p_source_selection_seconds"]) <= 3
