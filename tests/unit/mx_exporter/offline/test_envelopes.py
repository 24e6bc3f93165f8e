"""Envelopes, on bytes in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.core.decode import Rejected
from mx_exporter.offline.envelopes import Opened, Unwrapper
from mx_log.schema import MAX_LINE_BYTES
from tests.support import envelopes, load_logs
from tests.support.envelopes import ENVELOPES

LINE = b'{"event":"x","proc":"a","seq":0,"text":"\\"quoted\\" \\\\ \xc3\xbc"}'


def opened(data: bytes) -> list[Opened]:
    unwrapper = Unwrapper()
    found = [line for each in data.splitlines() for line in unwrapper.open(each)]
    return [line for line in found + unwrapper.rest() if line != b""]


def reasons(data: bytes) -> list[str]:
    return [line.reason for line in opened(data) if isinstance(line, Rejected)]


@pytest.mark.parametrize("name", [name for name in ENVELOPES if name != "logcli, newest first"])
def test_gives_back_the_lines_in_order(name: str, tmp_path: Path) -> None:
    lines = load_logs.lines_of(load_logs.ranks(tmp_path))
    found = opened(ENVELOPES[name](lines))
    assert [json.loads(line) for line in found] == [json.loads(line) for line in lines]
    if name not in ("crlf", "parsed by the collector"):
        assert found == lines


@given(st.binary(max_size=200))
def test_never_raises_and_passes_on_what_is_no_envelope(line: bytes) -> None:
    line = line.replace(b"\n", b"")
    assert Unwrapper().open(line) == [line]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "log",
                        "message",
                        "line",
                        "status",
                        "data",
                        "result",
                        "values",
                        "stream",
                        "streams",
                        "labels",
                        "event",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_never_raises_for_json_of_any_shape(value: object) -> None:
    unwrapper = Unwrapper()
    for line in unwrapper.open(json.dumps(value).encode()) + unwrapper.rest():
        assert isinstance(line, bytes | Rejected)


def test_parts_of_two_streams_are_kept_apart() -> None:
    ours = envelopes.cri([LINE], part=20).splitlines()
    theirs = LINE.replace(b'"seq":0', b'"seq":1')
    chatter = envelopes.cri([theirs], part=30, stream="stderr").splitlines()
    mixed = [line for pair in zip(ours, chatter, strict=False) for line in pair]
    mixed += ours[len(chatter) :] + chatter[len(ours) :]
    assert sorted(map(bytes, opened(b"\n".join(mixed)))) == sorted(  # type: ignore[arg-type]
        [LINE, theirs]
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line, stream: envelopes.cri([line], stream=stream),
        lambda line, stream: envelopes.cri([line], stream=stream, part=7),
        lambda line, stream: envelopes.vector(envelopes.cri([line], stream=stream).splitlines()),
        lambda line, stream: envelopes.docker([line], stream=stream),
        lambda line, stream: envelopes.docker([line], stream=stream, part=7),
        lambda line, stream: envelopes.logcli([line], stream=stream),
        lambda line, stream: envelopes.loki_api([line], stream=stream),
        lambda line, stream: envelopes.loki_push([line], stream=stream),
    ],
)
def test_lines_of_standard_error_are_left_out(
    wrap: Callable[[bytes, str], bytes],
) -> None:
    for said in (b"2026-01-02T03:04:05Z INFO listening", b"12", b"[1]", b"{not json}"):
        assert opened(wrap(said, "stderr")) == []
        assert opened(wrap(said, "stdout")) == [said]
    for kept in (LINE, b'{"seq": 1}', LINE[:40]):
        assert opened(wrap(kept, "stderr")) == [kept]


def test_an_over_long_message_on_standard_error_is_left_out_as_well() -> None:
    message = b"x" * (2 * MAX_LINE_BYTES)
    assert reasons(envelopes.cri([message], stream="stdout", part=16384)) == ["too_long"]
    assert opened(envelopes.cri([message], stream="stderr", part=16384)) == []
    assert opened(envelopes.cri([message, LINE], stream="stderr")) == [LINE]


def test_a_partial_line_is_given_up_at_the_end() -> None:
    data = envelopes.cri([LINE], part=20).splitlines()
    unwrapper = Unwrapper()
    assert [unwrapper.open(line) for line in data[:2]] == [[], []]
    assert unwrapper.rest() == [LINE[:40]]
    assert unwrapper.rest() == []


def test_log_lines_of_fluent_bit_do_not_swallow_the_next_event() -> None:
    lines = [{"log": "no newline here"}, {"log": LINE.decode()}]
    assert opened(b"\n".join(json.dumps(line).encode() for line in lines)) == [
        b"no newline here",
        LINE,
    ]


def test_several_lines_in_one_message() -> None:
    assert opened(envelopes.vector([LINE + b"\n" + LINE + b"\n"])) == [LINE, LINE]


def test_our_own_event_may_have_fields_that_look_like_an_envelope() -> None:
    line = b'{"log":"x","message":"y","event":"z","proc":"a","seq":0}'
    assert opened(line) == [line]


@pytest.mark.parametrize(
    "value",
    [
        {"log": 5},
        {"message": None},
        {"line": ["x"]},
        {"status": "error", "data": {}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}},
        {"status": "success", "data": {"result": [{"stream": {}, "values": [["1"]]}]}},
        {"streams": [{"stream": {}, "values": [["1"]]}]},
        {"streams": [{"values": [["1", "x"]]}]},
    ],
)
def test_an_envelope_that_cannot_be_opened_is_rejected(value: object) -> None:
    assert reasons(json.dumps(value).encode()) == ["bad_envelope"]


@pytest.mark.parametrize("wrap", ["plain", "cri", "cri in parts", "docker", "vector"])
def test_the_line_limit_is_that_of_the_line_inside(wrap: str) -> None:
    def padded(length: int) -> bytes:
        start = b'{"event":"x","proc":"a","seq":0,"pad":"'
        return start + b"x" * (length - len(start) - 2) + b'"}'

    part = 16384 if "parts" in wrap else 0
    envelope = {"cri in parts": lambda lines: envelopes.cri(lines, part=part)}.get(
        wrap, ENVELOPES[wrap]
    )
    fits, too_long = padded(MAX_LINE_BYTES - 1), padded(MAX_LINE_BYTES)
    assert opened(envelope([fits, too_long, LINE])) == [
        fits,
        Rejected("too_long", "the line is longer than 1 MiB"),
        LINE,
    ]


def test_a_line_in_parts_that_never_ends_is_not_held() -> None:
    unwrapper = Unwrapper()
    part = envelopes.cri([b"x" * 65536]).replace(b" F ", b" P ").strip()
    found = [line for _ in range(100) for line in unwrapper.open(part)]
    assert [line.reason for line in found if isinstance(line, Rejected)] == ["too_long"]
    assert unwrapper.rest() == []
    assert unwrapper.open(envelopes.cri([LINE]).strip()) == [LINE]
