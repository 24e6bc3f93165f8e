"""Bytes to lines: carry-over, joined blocks and the limit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core.lines import LineSplitter

LIMIT = 12


def model(text: bytes, limit: int) -> tuple[list[bytes], int, bytes]:
    """What a splitter has to give for a whole text: lines, how many were too long, the rest."""
    *whole, rest = text.split(b"\n")
    fitting = [line for line in whole if len(line) < limit]
    too_long = len(whole) - len(fitting)
    if len(rest) >= limit:
        return fitting, too_long + 1, b""
    return fitting, too_long, rest


@given(
    st.lists(
        st.sampled_from([b"a", b"bcd", b"\n", b"0123456789", b"\n\n", b"x" * 30]), max_size=30
    ),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_any_cut_gives_the_same_lines(parts, cuts):
    text = b"".join(parts)
    splitter = LineSplitter(LIMIT)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    lines = []
    for start, end in itertools.pairwise(places):
        lines += splitter.feed(text[start:end])
    expected, too_long, rest = model(text, LIMIT)
    assert lines == expected
    assert splitter.too_long == too_long
    assert splitter.rest() == rest


@given(
    st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"0123456789", b"x" * 30]), max_size=30),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_lines_that_are_measured_make_up_the_stream(parts, cuts):
    """Also those that are dropped for their length: an empty line stands for each."""
    text = b"".join(parts)
    splitter = LineSplitter(LIMIT)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    found = []
    for start, end in itertools.pairwise(places):
        found += splitter.measure(text[start:end])
    *whole, rest = text.split(b"\n")
    lines = [line if len(line) < LIMIT else b"" for line in whole]
    assert found == [(line, len(raw) + 1) for line, raw in zip(lines, whole, strict=True)]
    assert splitter.rest() == (rest if len(rest) < LIMIT else b"")


@pytest.mark.parametrize(
    ("length", "kept"), [(LIMIT - 1, True), (LIMIT, False)], ids=["at the limit", "above"]
)
def test_the_limit_counts_the_newline(length, kept):
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"x" * length + b"\n") == ([b"x" * length] if kept else [])
    assert splitter.too_long == (not kept)


def test_an_endless_line_is_not_held_and_its_tail_is_no_line():
    splitter = LineSplitter(LIMIT)
    for _ in range(1000):
        assert splitter.feed(b"x" * 10) == []
        assert splitter.carried < LIMIT
    assert splitter.feed(b'{"a":1}\ngood\n') == [b"good"]
    assert splitter.too_long == 1


@pytest.mark.parametrize(("tail", "rest"), [(b"half", b"half"), (b"x" * LIMIT, b"")])
def test_rest_forgets_what_it_gave(tail, rest):
    splitter = LineSplitter(LIMIT)
    for feed, line in ((splitter.feed, b"a"), (splitter.measure, (b"a", 2))):
        splitter.feed(tail)
        assert splitter.rest() == rest
        assert splitter.rest() == b""
        assert feed(b"a\n") == [line]
