"""Line numbers hold through blocks, blank lines, over-long lines and envelopes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Event, Rejected
from mx_exporter.offline import reader
from mx_exporter.offline.sources import Source
from mx_log.files import parse_segment_name
from tests.support import Lines, envelopes

LIMIT = 400

KINDS = {
    "event": lambda number: Lines(seq=number)("source_attempted", policy="p", result="ok").strip(),
    "blank": lambda _: b"",
    "spaces": lambda _: b" \t",
    "junk": lambda number: b"junk %d" % number,
    "comma": lambda _: b"{},{}",
    "list": lambda _: b"[1]",
    "long": lambda _: b"x" * LIMIT,
    "longer": lambda _: b"x" * (3 * LIMIT),
    "fits": lambda _: b'"' + b"x" * (LIMIT - 3) + b'"',
}


def numbered(source: Source) -> list[tuple[int, Event | Rejected]]:
    return [
        (first + at, record)
        for first, records in reader.read(source, CATALOG.decoder, numbered=True)
        for at, record in enumerate(records)
    ]


def expected(lines: list[bytes]) -> list[tuple[int, Event | Rejected]]:
    found: list[tuple[int, Event | Rejected]] = []
    for number, line in enumerate(lines, 1):
        record = CATALOG.decoder.decode_line(line)
        if len(line) >= LIMIT:
            record = Rejected("too_long", "the line is longer than 1 MiB")
        if record is not None:
            found.append((number, record))
    return found


@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=25), block=st.integers(1, 900))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_numbers_are_those_of_the_file(kinds: list[str], block: int, tmp_path: Path) -> None:
    name = "events-aaaaaaaaaaaa-0.jsonl"
    lines = [Lines().header().strip()]
    lines += [KINDS[kind](number) for number, kind in enumerate(kinds, 1)]
    path = tmp_path / name
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", block)
        patch.setattr(reader, "MAX_LINE_BYTES", LIMIT)
        source = Source(str(path), parse_segment_name(name))
        found = numbered(source)
        unnumbered = [
            event for _, events in reader.read(source, CATALOG.decoder) for event in events
        ]
    assert found == expected(lines)
    assert sorted(map(repr, unnumbered)) == sorted(repr(record) for _, record in found)


def test_lines_that_hold_nothing_do_not_take_the_others_apart(tmp_path: Path) -> None:
    """Who needs no numbers gets many lines at a time, also where others are mixed in."""
    said = b"2026-01-01T00:00:00Z stderr F something\n"
    good = [KINDS["event"](number) for number in range(300)]
    path = tmp_path / "collected.log"
    path.write_bytes(b"".join(envelopes.cri([line]) + said + b"\n" for line in good))
    batches = [values for _, values in reader.read(Source(str(path)), CATALOG.decoder)]
    assert len(batches) <= 2
    assert [event.seq for values in batches for event in values] == list(range(300))


def test_numbers_of_envelopes_are_those_of_their_lines(tmp_path: Path) -> None:
    good = KINDS["event"](0)
    path = tmp_path / "collected.log"
    path.write_bytes(
        b"starting\n"
        + envelopes.cri([good, b"", b"junk"])
        + envelopes.cri([good], part=80)
        + envelopes.loki_api([good, b"junk", good])
        + envelopes.docker([good[:-1]])
    )
    parts = len(envelopes.cri([good], part=80).splitlines())
    found = [
        (number, record.reason if isinstance(record, Rejected) else "good")
        for number, record in numbered(Source(str(path)))
    ]
    after = 4 + parts
    assert found == [
        (2, "good"),
        (after, "good"),
        (after + 1, "good"),
        (after + 1, "good"),
        (after + 2, "not_json"),
    ]


@pytest.mark.parametrize(
    ("tail", "reasons"),
    [
        (b'{"event":', ["torn"]),
        (b"2026-01-01T00:00:00Z stdout F " + b'{"event":', ["torn"]),
        (b"2026-01-01T00:00:00Z stdout P " + b'{"event":', ["torn"]),
        (b'{"log":"{\\"event\\":', ["torn"]),
        (b'{"log":"junk', []),
        (b"[1]", []),
        (b"12", []),
        (b"{}", []),
        (b" ", []),
    ],
)
def test_a_stream_that_ends_in_the_middle(tail: bytes, reasons: list[str], tmp_path: Path) -> None:
    path = tmp_path / "collected.log"
    path.write_bytes(b"\n" + tail)
    found = numbered(Source(str(path)))
    assert found == [(2, record) for _, record in found]
    assert [record.reason for _, record in found if isinstance(record, Rejected)] == reasons


def test_an_over_long_line_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "events-aaaaaaaaaaaa-0.jsonl"
    good = KINDS["event"](0)
    with path.open("wb") as file:
        file.truncate(200 << 20)
        file.seek(0, 2)
        file.write(b"\n" + good + b"\n")
    source = Source(str(path), parse_segment_name(path.name))
    tracemalloc.start()
    try:
        found = numbered(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [number for number, _ in found] == [1, 2]
    assert isinstance(found[0][1], Rejected)
    assert found[1][1] == CATALOG.decoder.decode_line(good)
    assert peak < 16 << 20
