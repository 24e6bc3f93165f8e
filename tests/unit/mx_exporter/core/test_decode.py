"""Lines to events: types, reasons, and blocks that equal single lines.

The decoder is held to a reference of its own: `orjson` and the schema, key by key.
"""

from __future__ import annotations

import itertools
import json
import re

import msgspec
import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import (
    NOBODY,
    REASONS,
    Candidate,
    Event,
    Rejected,
    Unknown,
    _tens_of_seconds,
    ended,
    name_of,
)
from mx_log.schema import EVENTS, TIMESTAMP
from tests.support import Lines

decode, decode_line = CATALOG.decoder.decode, CATALOG.decoder.decode_line


def good(**changed):
    record = Lines().record("source_attempted", policy="random", result="success")
    return {**record, **changed}


def line(record) -> bytes:
    return json.dumps(record).encode()


def fields(event) -> dict:
    """What an event says, as the line has it."""
    assert isinstance(event, Event), event
    found = msgspec.to_builtins(event)
    return {"event": name_of(event), **found}


def test_a_good_line_is_its_event():
    assert fields(decode_line(line(good()))) == good()


@pytest.mark.parametrize("blank", [b"", b"  ", b"\r", b"\0\0\0", b"\xef\xbb\xbf", b"\t\r"])
def test_a_blank_line_is_nothing(blank):
    assert decode_line(blank) is None
    assert decode([blank]) == []


@pytest.mark.parametrize(
    "dressed",
    [
        b"\0" * 4096 + line(good()),
        b"\xef\xbb\xbf" + line(good()),
        line(good()) + b"\r",
        line(good()) + b"\0\0",
        b"\0\xef\xbb\xbf " + line(good()) + b" \r",
    ],
    ids=["zero bytes", "byte order mark", "carriage return", "zero bytes behind", "all of them"],
)
def test_a_good_line_in_padding_is_recovered(dressed):
    event = decode_line(line(good()))
    assert decode_line(dressed) == event
    assert decode([line(good()), dressed]) == [event, event]


def test_a_line_of_byte_order_marks():
    marks = b"\xef\xbb\xbf" * 100_000
    assert decode_line(marks) is None
    assert decode_line(marks + line(good())) == decode_line(line(good()))
    assert decode_line(marks + b"x").reason == "not_json"


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
        (line(good(event=["source_attempted"])), "wrong_type"),
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
def test_bad_lines_are_rejected_with_a_reason(bad, reason):
    rejected = decode_line(bad)
    assert isinstance(rejected, Rejected)
    assert rejected.reason == reason
    assert reason in REASONS
    assert decode([line(good()), bad, line(good())])[1].reason == reason


@pytest.mark.parametrize(
    ("bad", "who"),
    [
        (line(good(seq=7, policy=5)), (Lines().proc, 7)),
        (line(good(seq=7, event=None)), (Lines().proc, 7)),
        (line(good(seq=7, timestamp="today")), (Lines().proc, 7)),
        (line(good(seq=7, event="of_the_future", scheme=5)), (Lines().proc, 7)),
        # What is not looked into is no fault of the number.
        (line(good(seq=7, rank="X")).replace(b'"X"', b"1e999"), (Lines().proc, 7)),
        (line(good(seq=-1)), ("", -1)),
        (line(good(seq=1.0)), ("", -1)),
        (line(good(proc="")), ("", -1)),
        (line({k: v for k, v in good().items() if k != "seq"}), ("", -1)),
        # A key that comes twice must be good twice.
        (line(good(seq="X")).replace(b"{", b'{"seq":7,'), ("", -1)),
        (line(good())[:-1] + b"]", ("", -1)),
        (b"[" + line(good()) + b"]", ("", -1)),
    ],
)
def test_a_rejected_line_says_whose_number_it_is_if_it_can(bad, who):
    rejected = decode_line(bad)
    assert isinstance(rejected, Rejected)
    assert (rejected.proc, rejected.seq) == who


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (3, "an integer (3)"),
        (1.5, "a number (1.5)"),
        (True, "a boolean"),
        (None, "null"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_the_reason_names_field_value_and_what_was_expected(given, named):
    rejected = decode_line(line(good(policy=given)))
    assert rejected.detail == f'"policy" of source_attempted is {named}; expected text'


@pytest.mark.parametrize(
    ("given", "named"),
    [("x" * 38, f"text ({'x' * 38!r})"), ("x" * 39, "text")],
    ids=["forty with its marks", "one more"],
)
def test_the_reason_quotes_a_value_of_up_to_40_characters(given, named):
    rejected = decode_line(line(good(seq=given)))
    assert rejected.detail == f'"seq" of source_attempted is {named}; expected an integer from 0'


def test_the_reason_names_what_is_missing_and_what_nobody_knows():
    record = good()
    del record["result"]
    rejected = decode_line(line(record))
    assert rejected.detail == '"result" of source_attempted is missing; expected text'
    rejected = decode_line(line(good(event="of_the_future", scheme=None)))
    assert rejected.detail == '"scheme" of of_the_future is null; expected text'
    rejected = decode_line(line(good(event=None)))
    assert rejected.detail == '"event" is null; expected text'


def test_what_may_be_missing_may_not_be_null_unless_the_schema_says_so():
    assert decode_line(Lines().header(pid=None)).reason == "wrong_type"
    record = json.loads(Lines().header())
    del record["pid"]
    assert decode_line(line(record)).pid is None


def test_what_is_remembered_of_timestamps_is_bounded(monkeypatch):
    monkeypatch.setattr("mx_exporter.core.decode._MAX_KNOWN", 3)
    log = Lines(start=946_684_800, step=10)
    for _ in range(20):
        decode_line(log("source_attempted", policy="random", result="success"))
        assert 0 < len(_tens_of_seconds) <= 4


def test_unknown_events_and_fields_pass():
    unknown = decode_line(line(good(event="of_the_future", policy=3, shape={"of": ["things"]})))
    assert isinstance(unknown, Unknown)
    assert (name_of(unknown), unknown.proc, unknown.seq) == ("of_the_future", "aaaaaaaaaaaa", 0)
    assert decode_line(line(good(of_the_future=[1, {"a": None}]))) == decode_line(line(good()))


def test_what_unknown_fields_hold_is_passed_over():
    """It is not decoded: what could not be in a field that is known may be there."""
    bare = line(good())[:-1]
    for value in (b"1e400", b'"\xff"', b"123456789012345678901234567890", b"[[[{}]]]"):
        assert decode_line(bare + b',"more":' + value + b"}") == decode_line(line(good())), value
    for value in (b"NaN", b'"\\ud800"', b"01", b'"\x01"', b""):
        assert decode_line(bare + b',"more":' + value + b"}").reason == "not_json", value


@pytest.mark.parametrize("levels", [255, 256, 900, 1400, 5000, 100_000])
def test_how_deep_a_line_may_nest_is_the_same_with_each_python(levels):
    bare = line(good())[:-1]
    texts = b'"' + rb"[{\"" * 300 + b'"'
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}")):
        value = begin * levels + texts + end * levels
        found = decode_line(bare + b',"more":' + value + b"}")
        if levels <= 255:  # beside the line's own level
            assert found == decode_line(line(good()))
        else:
            assert (found.reason, found.proc) == ("not_json", "")
            assert "deeper than 256 levels" in found.detail


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        (nested(256), False),
        (nested(257), True),
        (b"[" + nested(255) + b"," + nested(255) + b"]", False),
        (b"[" + nested(3) + b"," + nested(256) + b"]", True),
    ],
)
def test_levels_are_those_that_are_open_at_a_time(text, deep):
    expected = ("not_json", "deeper than 256") if deep else ("not_object", "a list")
    found = decode_line(text)
    assert found.reason == expected[0]
    assert expected[1] in found.detail


@pytest.mark.parametrize("text", [b"[" * 300, b"[" * 300 + b"x" * 212, b"[" * 257 + b"]" * 256])
def test_why_a_line_is_rejected_is_the_same_beside_a_long_one(text):
    """Also of brackets without an end, which are no JSON anyway."""
    long = line(good(policy="x" * 600))
    assert decode([text, long]) == [decode_line(text), decode_line(long)]


def test_a_line_of_many_brackets_that_is_not_deep():
    wide = b"[" + b",".join([b"[{}]"] * 5000) + b"]"
    good_line = line(good())
    lines = [good_line, good_line[:-1] + b',"more":' + wide + b"}", good_line]
    assert decode(lines) == decode([good_line] * 3)


@pytest.mark.parametrize(
    ("twice", "kept"),
    [
        (b'"policy":"a","policy":"b"', "b"),
        (b'"policy":3,"policy":"b"', None),
        (b'"policy":"a","policy":3', None),
        (b'"policy":"a","event":"sources_listed"', None),
    ],
)
def test_a_key_that_comes_twice_must_be_good_twice(twice, kept):
    """The last one counts. An event that is named in two ways is none."""
    found = decode_line(line(good()).replace(b'"policy": "random"', twice))
    if kept is None:
        assert found.reason == "wrong_type"
    else:
        assert found.policy == kept


@pytest.mark.parametrize("name", list(EVENTS))
def test_optional_fields_may_be_missing(name):
    """A line with just the required fields of its event is good."""
    values = {"text": "x", "text or null": None, "integer": 1, "list of candidates": []}
    fields = {f.name: values[f.kind] for f in EVENTS[name].fields if f.required}
    assert name_of(decode_line(line(Lines().record(name, **fields)))) == name


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


def shown(event) -> object:
    """What an event holds, with 1, 1.0 and true told apart, and 0.0 and -0.0."""
    if isinstance(event, Rejected):
        return event.reason
    return type(event), repr(msgspec.structs.asdict(event))


def one_by_one(lines):
    return [event for event in map(decode_line, lines) if event is not None]


@given(st.lists(st.one_of(whole, halves, st.binary(max_size=12)), max_size=12))
def test_a_block_gives_what_its_lines_give(lines):
    lines = [text.replace(b"\n", b"") for text in lines]
    assert list(map(shown, decode(lines))) == list(map(shown, one_by_one(lines)))


def test_lines_that_only_fit_together_are_each_bad():
    """One line of two objects and two lines of one object: the number of objects is right."""
    lines = [line(good(seq=1)) + b"," + line(good(seq=2)), b'{"a":[{"b":1}', b'{"c":1}]}']
    assert [type(event) for event in decode(lines)] == [Rejected] * 3


STAMPS = ["2026-01-01T12:00:00.000000Z", "2026-12-31T23:59:59.999999Z"]
NO_STAMPS = [
    "2026-01-01T12:00:60.000000Z", "2026-01-01T12:60:00.000000Z", "2026-01-01T24:00:00.000000Z",
    "2026-13-01T12:00:00.000000Z", "2026-00-01T12:00:00.000000Z", "2026-01-32T12:00:00.000000Z",
    "0000-01-01T12:00:00.000000Z", "2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000000z",
    "2026-01-01 12:00:00.000000Z", "2026-01-01T12:00:00.00000Z\\n",
    "\u0662026-01-01T12:00:00.000000Z",
    "2026-01-01T12:00:00.000000Z\\n2026-01-01T12:00:00.000000Z", "", "Z",
]  # fmt: skip
NUMBERS = [
    "0", "-0", "1", "1.0", "-0.0", "0.1", "1e5", "1E+5", "1e-400", "5e-324", "1e400", "-1e400",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551615", "18446744073709551616", "123456789012345678901234567890",
    "9007199254740993.0", "2.2250738585072011e-308", "1.7976931348623157e308",
    "0.1234567890123456789012345678901234567890", "01", "1.", ".5", "+1", "1_0", "0x1", "1e", "NaN",
    "Infinity", "-Infinity", "true", "false", "null", '"1"', '"nan"', "[]", "{}", "",
]  # fmt: skip
TEXTS = [
    '"x"', '""', '"\\u0061"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00x"', '"\x01"', '"\x7f"',
    '"\\q"', '"\\u00"',
    '"é\U0001f600"', '"a\\nb"', '"\\u0000"', '"x', "'x'", "null", "1", "true", "[]",
]  # fmt: skip

CANDIDATES = [
    '"source_worker_id":"w"',
    '"load":1',
    '"load":null',
    '"load":1e400',
    '"more":"\\ud800"',
]
ANYTHING = ["true", "false", "null", "0", '"x"', "[1e400]", '["\\ud800"]', "[[1]]"]
ODD = {
    "timestamp": [f'"{each}"' for each in NO_STAMPS] + ["null", "1"],
    "seq": NUMBERS,
    "rank": NUMBERS,
    "text": TEXTS,
    "text or null": TEXTS,
    "integer": NUMBERS,
    "number": NUMBERS,
    "any": ANYTHING,
    "list of candidates": [
        f"[{{{','.join(parts)}}}]"
        for count in range(4)
        for parts in itertools.product(CANDIDATES, repeat=count)
    ],
}
GOOD = {
    "text": '"chain"',
    "text or null": "null",
    "integer": "3",
    "number": "0.5",
    "any": "false",
    "list of candidates": '[{"source_worker_id":"w","load":0.5},{"source_worker_id":"v"}]',
}
EVERY = {
    "timestamp": f'"{STAMPS[1]}"',
    "level": '"info"',
    "proc": '"aaaaaaaaaaaa"',
    "seq": "7",
    "rank": "0",
    "scheme": '"s"',
    "load_id": '"l"',
}


@st.composite
def raw_lines(draw):
    """Good lines of which two values may be odd, and a key missing, out of order, twice there or
    unknown: what two parsers may take differently."""
    event = draw(st.sampled_from(list(EVENTS.values())))
    kinds = {field.name: field.kind for field in event.fields}
    parts = EVERY | {name: GOOD[kind] for name, kind in kinds.items()}
    for key in draw(st.sets(st.sampled_from(list(parts)), max_size=2)):
        kind = kinds.get(key, key if key in ODD else "text")
        parts[key] = draw(st.sampled_from(ODD[kind]))
    parts = {"event": f'"{event.name}"', **parts}
    pairs = [f'"{key}":{value}' for key, value in parts.items()]
    change = draw(st.sampled_from(["none"] * 4 + ["order", "less", "twice", "more", "blanks"]))
    at = draw(st.integers(0, len(pairs) - 1))
    if change == "order":
        pairs.insert(0, pairs.pop(at))
    elif change == "less":
        del pairs[at]
    elif change == "twice":
        key = list(parts)[at]
        pairs.append(f'"{key}":{draw(st.sampled_from([*TEXTS, *NUMBERS]))}')
    elif change == "more":
        pairs.append(
            f'"{draw(st.sampled_from(["trace_id", "more"]))}":{draw(st.sampled_from(ANYTHING))}'
        )
    joint = " , " if change == "blanks" else ","
    return f"{{{joint.join(pairs)}}}".encode()


# --------------------------------------------------------------------------------------
# The reference: orjson, then the schema key by key

TYPES = {
    "text": (str,),
    "text or null": (str, type(None)),
    "integer": (int,),
    "list of candidates": (list,),
}


def reference(text: bytes) -> object:
    """What a line gives by the schema: a reason, or its event's name and fields."""
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return "not_json"
    if type(record) is not dict:
        return "not_object"
    name = record.get("event")
    if type(name) is not str:
        return "wrong_type"
    kinds = {field.name: field for field in EVENTS[name].fields} if name in EVENTS else {}
    right = (
        type(record.get("timestamp")) is str
        and TIMESTAMP.fullmatch(record["timestamp"])
        and type(record.get("proc")) is str
        and record["proc"]
        and type(record.get("seq")) is int
        and 0 <= record["seq"] < 2**63
        and type(record.get("scheme")) is str
        and type(record.get("rank")) in (int, type(None))
        and type(record.get("level", "")) is str
        and type(record.get("load_id")) in (str, type(None))
        and all(
            (type(record[key]) in TYPES[field.kind] if key in record else not field.required)
            for key, field in kinds.items()
            if field.kind in TYPES
        )
        and all(
            type(each) is dict and type(each.get("source_worker_id")) is str
            for each in record.get("loads", [])
            if "loads" in kinds
        )
    )
    if not right:
        return "wrong_type"
    known = {key: record[key] for key in (*EVERY, *kinds) if key in record}
    if "loads" in kinds:
        known["loads"] = [
            Candidate(each["source_worker_id"], each.get("load")) for each in known["loads"]
        ]
    return name, {key: repr(value) for key, value in known.items()}


def held(event) -> object:
    """The same of an event; what was missing in the line is left out."""
    if isinstance(event, Rejected):
        return event.reason
    given = {key: getattr(event, key) for key in event.__struct_fields__ if key != "event"}
    return name_of(event), {key: repr(value) for key, value in given.items()}


#: Where the decoder differs on purpose from a reader of all values: an integer beyond 64 bits
#: keeps all its digits, or is none where an integer is wanted; what no field of the schema wants
#: is passed over, also a number that is too large for a float; a key that comes twice must be good
#: twice.
DIFFERENT = re.compile(rb"\d{19,}|1e400")


OF_CANDIDATES = {b"source_worker_id", b"load", b"more"}


@given(raw_lines())
@settings(max_examples=30 * settings().max_examples)
def test_the_decoder_agrees_with_the_schema(text):
    keys = [key for key in re.findall(rb'"(\w+)":', text) if key not in OF_CANDIDATES]
    assume(len(keys) == len(set(keys)) and not DIFFERENT.search(text))
    expected, found = reference(text), held(decode_line(text))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    (name, given), (kept_name, kept) = expected, found
    assert name == kept_name
    assert given.items() <= kept.items()
    missing = {value for key, value in kept.items() if key not in given}
    assert missing <= {"None", "''"}


@given(st.lists(raw_lines(), min_size=1, max_size=3))
@settings(max_examples=5 * settings().max_examples)
def test_hostile_lines_side_by_side_give_what_each_gives(lines):
    assert list(map(shown, decode(lines))) == list(map(shown, one_by_one(lines)))


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("seconds", "9223372036854775808", 2**63),
        ("seconds", "123456789012345678901234567890", 123456789012345678901234567890),
        ("seconds", "1" + "0" * 400, 10**400),
        ("seq", "9223372036854775808", None),
        ("rank", "18446744073709551615", None),
        ("seconds", "1e400", None),
    ],
)
def test_numbers_beyond_64_bits(field, given, kept):
    record = Lines().record("transfer_finished", policy="p", outcome="ok", seconds="X")
    text = line({**record, field: "X"}).replace(b'"X"', given.encode())
    event = decode_line(text)
    if kept is None:
        assert event.reason == ("not_json" if given == "1e400" else "wrong_type")
    else:
        assert getattr(event, field) == kept


@pytest.mark.parametrize(
    ("field", "lowest"), [("seq", 0), ("rank", -(2**63)), ("pid", -(2**63))], ids=str
)
def test_integers_are_whole_from_their_lowest_to_their_highest(field, lowest):
    def header(value: int) -> bytes:
        return Lines().header(**{field: value})

    for value in (lowest, lowest + 1, 2**63 - 1):
        assert getattr(decode_line(header(value)), field) == value
    for value in (lowest - 1, 2**63):
        assert decode_line(header(value)).reason == "wrong_type"


def test_an_id_of_one_character_is_one():
    assert decode_line(line(good(proc="a"))).proc == "a"


def test_a_rejection_without_a_process_is_nobodys():
    assert Rejected("torn", "") == Rejected("torn", "", *NOBODY)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b'{"event":"sour', "torn"), (b"[1]", "torn"), (line(good(seq=None)), "wrong_type")],
)
def test_the_last_line_of_a_finished_file_is_torn_where_it_is_no_object(text, reason):
    found = decode_line(text)
    torn = ended(found)
    assert torn.reason == reason
    assert torn == (found if reason != "torn" else Rejected("torn", REASONS["torn"]))


def test_the_last_line_of_a_finished_file_may_be_whole():
    event = decode_line(line(good()))
    assert ended(event) is event


def test_what_a_line_leaves_out_a_line_that_is_made_of_its_event_leaves_out():
    record = good()
    del record["level"], record["rank"]
    assert json.loads(msgspec.json.encode(decode_line(line(record)))) == record


def test_every_timestamp_that_passes_can_be_turned_into_seconds():
    from mx_exporter.exposition.samples import seconds

    for stamp in ("0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"):
        assert TIMESTAMP.fullmatch(stamp)
        seconds(stamp)
    assert seconds("2026-02-31T00:00:00.500000Z") == seconds("2026-03-03T00:00:00.500000Z")
