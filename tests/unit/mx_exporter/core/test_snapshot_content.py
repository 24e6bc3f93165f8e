"""A snapshot whose seal is good and whose values are not: it is refused, or every page of it can be
shown, it can be folded on from, and it can be written again."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mx_exporter.core import snapshot_codec
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.snapshot_seal import BadSnapshot
from mx_exporter.core.state import State
from mx_exporter.exposition.json_lines import json_lines
from mx_exporter.exposition.samples import derived_families
from tests.support import ROOT, Lines, load_logs
from tests.support.folding import classic_page, pages, settle
from tests.support.snapshots import as_json, content_of, sealed

FORMAT_1 = ROOT / "tests" / "golden" / "snapshot_of_format_1" / "mx-metrics.snapshot"


def lines() -> list[bytes]:
    """Something of everything that a snapshot holds."""
    first, second = Lines(), Lines("b" * 12, rank=None)
    rng = random.Random(3)
    found = [first.header(), *load_logs.loads(first, 2, rng), second.header(locked=False)]
    found += load_logs.loads(second, 1, rng, end=False)
    found.append(first("sources_ordered", policy="p", seconds=-0.25))
    found.append(first("sources_ordered", policy="p", seconds=None))
    found.append(first("artifact_extracted", artifact="cubin", archive="a", bytes=2**62))
    found.append(first("of_the_future"))
    found.append(first("recorder_called", recorder="record_atempt", args=[1], kwargs={}))
    first.seq += 2
    found += [first("nixl_received", result=3), first("sources_listed", policy=3)]
    return [
        *found,
        first("nixl_received", result="complete"),
        b"junk",
        Lines("c" * 12)("nixl_received", result="complete"),
    ]


def some_snapshot() -> bytes:
    whole = Fold(CATALOG)
    whole.feed_lines(lines())
    for proc in ("a" * 12, "c" * 12):
        whole.writer_gone(proc)
    assert list(whole.state.books.closed) == ["c" * 12]
    return snapshot_codec.dump(
        CATALOG, whole.state, {"a" * 12: 0, "c" * 12: 3}, {"events-aaaaaaaaaaaa-1.jsonl": 5}
    )


def use(state: State) -> None:
    """All that may be done with a state that was read. Raises whatever goes wrong."""
    pages(state)
    classic_page(state)
    list(json_lines(derived_families(CATALOG, state)))
    onward = Fold(CATALOG, state)
    onward.feed_lines(lines())
    settle(onward)
    pages(state)
    assert snapshot_codec.load(CATALOG, snapshot_codec.dump(CATALOG, state, {}))


#: What is made of one value.
CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda _: None,
    lambda _: True,
    lambda _: -1,
    lambda _: -2,
    lambda _: 0,
    lambda _: 7,
    lambda _: 2**63,
    lambda _: 2**80,
    lambda _: 0.5,
    lambda _: 1e300,
    lambda _: "",
    lambda _: "\0",
    lambda _: "2026-02-31T00:00:00.000000Z",
    lambda _: "2026-01-01T00:00:00.20c781Z",
    lambda _: "-0x1",
    lambda _: "0x" + "f" * 5000,
    lambda _: [],
    lambda _: {},
    lambda value: [value],
    lambda value: value + value[:1] if isinstance(value, (list, str)) else not value,
    lambda value: value[1:] if isinstance(value, (list, str)) else value,
    lambda value: {**value, "more": 1} if isinstance(value, dict) else value,
    lambda value: dict(list(value.items())[1:]) if isinstance(value, dict) else value,
    lambda value: value + 1 if isinstance(value, (int, float)) else value,
    lambda value: -value if isinstance(value, (int, float)) else value,
)

Path = tuple[Any, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where there are values, at every depth."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def kind(path: Path) -> Path:
    """What a place has in common with others: all but which process, series and load it is."""
    if path[:1] == ("families",) and len(path) > 3:
        measure = CATALOG.by_name[path[1]].measure
        return (*path[:1], measure, path[2], "*", *path[4:6], *("*" for _ in path[6:7]), *path[7:])
    if path[:1] == ("families",):
        return ("families", "*", *path[2:])
    return (*path[:1], *("*" if isinstance(step, str) else step for step in path[1:]))


def changed(content: dict[str, Any], path: Path, change: Callable[[Any], Any]) -> dict[str, Any]:
    """The content with another value at one place."""
    if not path:
        return change(content)
    found = copy.copy(content)
    outer: Any = found
    for step in path[:-1]:
        outer[step] = copy.copy(outer[step])
        outer = outer[step]
    outer[path[-1]] = change(outer[path[-1]])
    return found


@pytest.mark.long
def test_each_change_of_a_value_is_refused_or_can_be_shown() -> None:
    content = content_of(some_snapshot())
    by_kind = {kind(path): path for path in places(content)}
    assert len(by_kind) > 60
    outcomes, rng = {"refused": 0, "shown": 0}, random.Random(1)
    for path in by_kind.values():
        for number, change in rng.sample(list(enumerate(CHANGES)), 10):
            other = changed(content, path, change)
            if other == content:
                continue
            try:
                taken = snapshot_codec.load(CATALOG, sealed(other))
            except BadSnapshot:
                outcomes["refused"] += 1
                continue
            try:
                use(taken.state)
            except Exception as error:
                raise AssertionError(f"{path}, change {number}") from error
            outcomes["shown"] += 1
    assert min(outcomes.values()) > 50, outcomes


@pytest.mark.long
def test_without_the_seal_each_change_is_refused() -> None:
    data = some_snapshot()
    seal, _, body = data.partition(b"\n")
    content = content_of(data)
    for path in random.Random(1).sample(list(places(content)), 200):
        for change in CHANGES:
            other = as_json(changed(content, path, change)) + b"\n"
            if other != body:
                with pytest.raises(BadSnapshot):
                    snapshot_codec.load(CATALOG, seal + b"\n" + other)


@pytest.mark.long
def test_each_byte_of_format_1_is_good_or_refused_or_can_be_shown() -> None:
    data, rng = FORMAT_1.read_bytes(), random.Random(1)
    for _ in range(150):
        at = rng.randrange(len(data))
        other = data[:at] + bytes([rng.choice(b'0123456789abcz"[]{},: \xff\n')]) + data[at + 1 :]
        try:
            taken = snapshot_codec.load(CATALOG, other)
        except BadSnapshot:
            continue
        use(taken.state)


def test_format_1_is_read_and_written_again_as_format_2() -> None:
    before = snapshot_codec.load(CATALOG, FORMAT_1.read_bytes())
    data = snapshot_codec.dump(CATALOG, before.state, before.segments, before.shipped)
    assert data.startswith(b'{"format":2,')
    after = snapshot_codec.load(CATALOG, data)
    assert pages(after.state) == pages(before.state)
    assert (after.segments, after.shipped) == (before.segments, before.shipped)
    amended = snapshot_codec.amend(FORMAT_1.read_bytes(), {"x": 1})
    assert amended.startswith(b'{"format":2,')
    assert snapshot_codec.load(CATALOG, amended).shipped == {"x": 1}
    assert pages(snapshot_codec.load(CATALOG, amended).state) == pages(before.state)


NOW = "2026-01-01T00:00:00.000000Z"


def series(family: str, at: int = 0) -> Path:
    return ("families", family, "series", at)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("skipped",), 1.5, r"damaged: Expected `int`, got `float` - at `\$\.skipped`"),
        (("last_event",), "2026", r"damaged: Expected `str` of the right form - at"),
        (("books", "a" * 12, 1), [[3, 3]], "ranges of numbers in their order"),
        (("books", "a" * 12, 1), [[3, 5], [5, 6]], "ranges of numbers in their order"),
        (("books", "a" * 12, 1), [[499, 500]], "below the end"),
        (("books", "b" * 12, 1), [[3, 7]], "the highest number to be met"),
        (("books", "a" * 12, 6), {"torn": [[3, 5], [5, 6]]}, "ranges of numbers in their order"),
        (("books", "a" * 12, 6), {"torn": [[3, 5]], "wrong_type": [[4, 5]]}, "for one reason"),
        (("books", "a" * 12, 6), {"torn": [[3, 5]]}, "as many rejected lines"),
        (("books", "a" * 12, 2), 500, "as many events"),
        (("closed", "refused", 0), 2, "as many events"),
        (("closed", "ends", 0), 2**63 + 1, "as many events"),
        (("closed", "locked"), [], "columns of one length"),
        (("segments", "c" * 12), 0, "each process in one place"),
        (("closed", "procs", 0), "a" * 12, "each process in one place"),
        (("loads", "open", "d" * 12), {}, "books of each process"),
        (("loads", "series"), [[["e", "m", "", ""], NOW]] * 2, "label values that differ"),
        ((*series("mx_nixl_receive_total"), 0), ["one"], "mx_nixl_receive_total: .* length"),
        ((*series("mx_load_seconds"), 1, 1), [1], "mx_load_seconds: .* length"),
        ((*series("mx_load_seconds"), 1, 3, 0), [NOW, "p", 1, 99.0, 0, ""], "in their buckets"),
        (("families", "mx_load_seconds", "detail"), [[["e"] * 5, []]], "mx_load_seconds: "),
    ],
)
def test_what_is_wrong_is_said(path: Path, value: Any, why: str) -> None:
    content = content_of(some_snapshot())
    outer: Any = content
    for step in path[:-1]:
        outer = outer[step]
    outer[path[-1]] = value
    with pytest.raises(BadSnapshot, match=why):
        snapshot_codec.load(CATALOG, sealed(content))


def test_one_series_is_there_once() -> None:
    content = content_of(some_snapshot())
    table = content["families"]["mx_nixl_receive_total"]["series"]
    table.append(table[0])
    with pytest.raises(BadSnapshot, match=r"mx_nixl_receive_total: .* that differ"):
        snapshot_codec.load(CATALOG, sealed(content))
