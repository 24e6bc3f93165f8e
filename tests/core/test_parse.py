"""Lines to events: types, reasons, and blocks that equal single lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_emitter.events import EVENTS, TIMESTAMP
from mx_exporter import parse
from mx_exporter.parse import Rejected, parse_line, parse_lines
from support import Lines


def good(**changed):
    record = Lines().record("source_attempted", policy="random", result="success")
    return {**record, **changed}


def line(record) -> bytes:
    return json.dumps(record).encode()


def test_a_good_line_is_its_event():
    assert parse_line(line(good())) == good()


@pytest.mark.parametrize("blank", [b"", b"  ", b"\r", b"\0\0\0", b"\xef\xbb\xbf", b"\t\r"])
def test_a_blank_line_is_nothing(blank):
    assert parse_line(blank) is None
    assert parse_lines([blank]) == []


@pytest.mark.parametrize(
    "dressed",
    [
        b"\0" * 4096 + line(good()),
        b"\xef\xbb\xbf" + line(good()),
        line(good()) + b"\r",
        b"\0\xef\xbb\xbf " + line(good()) + b" \r",
    ],
    ids=["zero bytes", "byte order mark", "carriage return", "all of them"],
)
def test_a_good_line_in_padding_is_recovered(dressed):
    assert parse_line(dressed) == good()
    assert parse_lines([line(good()), dressed]) == [good(), good()]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{", "not_json"),
        (b"nope", "not_json"),
        (b'{"event":"x"}{"event":"y"}', "not_json"),
        (line(good()) + b"," + line(good()), "not_json"),
        (b"\xff\xfe", "not_json"),
        (b'{"a":"\\ud800"}', "not_json"),
        (b'{"a":NaN}', "not_json"),
        (b'{"a":1e400}', "not_json"),
        (b"[" * 2000, "not_json"),
        (b"[]", "not_object"),
        (b"3", "not_object"),
        (b"null", "not_object"),
        (b'"text"', "not_object"),
        (b"{}", "wrong_type"),
        (line(good(event=3)), "wrong_type"),
        (line(good(seq=-1)), "wrong_type"),
        (line(good(seq=True)), "wrong_type"),
        (line(good(seq=1.0)), "wrong_type"),
        (line(good(seq="1")), "wrong_type"),
        (line(good(proc=None)), "wrong_type"),
        (line(good(proc="")), "wrong_type"),
        (line(good(rank="0")), "wrong_type"),
        (line(good(rank=True)), "wrong_type"),
        (line(good(scheme=None)), "wrong_type"),
        (line(good(policy=None)), "wrong_type"),
        (line(good(policy=["random"])), "wrong_type"),
        (line(good(load_id=7)), "wrong_type"),
        (line(good(timestamp="2026-01-01T00:00:00Z")), "wrong_type"),
        (line(good(timestamp="2026-01-01T00:00:00.000000+00:00")), "wrong_type"),
        (line(good(timestamp="2026-13-01T00:00:00.000000Z")), "wrong_type"),
        (line(good(timestamp="0000-01-01T00:00:00.000000Z")), "wrong_type"),
        (line({k: v for k, v in good().items() if k != "result"}), "wrong_type"),
        (line(Lines().record("candidate_loads_seen", loads={})), "wrong_type"),
        (line(Lines().record("candidate_loads_seen", loads=[1])), "wrong_type"),
        (line(Lines().record("candidate_loads_seen", loads=[{"load": 1}])), "wrong_type"),
    ],
)
def test_what_gives_no_event(bad, reason):
    rejected = parse_line(bad)
    assert isinstance(rejected, Rejected)
    assert rejected.reason == reason
    assert reason in parse.REASONS
    assert parse_lines([line(good()), bad, line(good())])[1].reason == reason


def test_the_reason_names_field_value_and_what_was_expected():
    rejected = parse_line(line(good(policy=3)))
    assert rejected.detail == '"policy" of source_attempted is an integer (3); expected text'


def test_unknown_events_and_fields_pass():
    record = good(event="of_the_future", policy=3, shape={"of": ["things"]})
    assert parse_line(line(record)) == record
    record = good(of_the_future=[1, {"a": None}])
    assert parse_line(line(record)) == record


@pytest.mark.parametrize("name", list(EVENTS))
def test_what_may_be_missing_may_be_missing(name):
    """A line with just the required fields of its event is good."""
    values = {"text": "x", "text or null": None, "integer": 1, "list of candidates": []}
    fields = {f.name: values[f.kind] for f in EVENTS[name].fields if f.required}
    assert isinstance(parse_line(line(Lines().record(name, **fields))), dict)


# Lines that look like events only when they stand beside others.
whole = st.sampled_from([line(good(seq=seq)) for seq in range(3)])
halves = st.sampled_from(
    [
        line(good()) + b"," + line(good()),
        b'{"event":"a","list":[{"x":1}',
        b'{"y":1}]}',
        b'{"event":"a","list":[[{"x":1}',
        b'{"y":1}]]}',
        b'{"event":"a',
        b'b","timestamp":1}',
        b'{"a":1}],[{"b":2}',
        b"],[",
        b"1],[1",
        b"{},0,{}",
        b",",
        b"",
        b"\0" + line(good()),
        b"{}",
        b'"',
        b"[" * 250 + b"]" * 250,
        b"[" * 254 + b"]" * 254,
        b'{"a":' * 250 + b"1" + b"}" * 250,
    ]
)


@given(st.lists(st.one_of(whole, halves, st.binary(max_size=12)), max_size=12))
def test_a_block_gives_what_its_lines_give(lines):
    lines = [text.replace(b"\n", b"") for text in lines]
    single = [record for record in map(parse_line, lines) if record is not None]
    block = parse_lines(lines)
    assert [type(record) for record in block] == [type(record) for record in single]
    for one, other in zip(block, single, strict=True):
        if isinstance(one, Rejected):
            assert one.reason == other.reason
        else:
            assert one == other


def test_lines_that_only_fit_together_are_each_bad():
    """One line of two objects and two lines of one object: the number of objects is right."""
    lines = [line(good(seq=1)) + b"," + line(good(seq=2)), b'{"a":[{"b":1}', b'{"c":1}]}']
    assert [type(record) for record in parse_lines(lines)] == [Rejected] * 3


def test_every_timestamp_that_passes_can_be_turned_into_seconds():
    from mx_exporter.exposition import seconds

    for stamp in ("0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"):
        assert TIMESTAMP.fullmatch(stamp)
        seconds(stamp)
    assert seconds("2026-02-31T00:00:00.500000Z") == seconds("2026-03-03T00:00:00.500000Z")
