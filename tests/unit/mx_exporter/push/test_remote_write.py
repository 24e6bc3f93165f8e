"""Remote write: what goes over the wire, and what becomes of it when something is in the way."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.cli.main import main
from mx_exporter.errors import MxError
from mx_exporter.push import remote_write
from mx_exporter.push.post import target
from mx_exporter.push.remote_write import (
    RemoteWriter,
    compress,
    encode_run,
    encode_series,
    encode_time,
)
from tests import support


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protobuf."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            number, at = read_varint(data, at)
            yield tag >> 3, number
        elif tag & 7 == 1:
            yield tag >> 3, struct.unpack("<d", data[at : at + 8])[0]
            at += 8
        else:
            size, at = read_varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size


def read_series(data: bytes) -> list[tuple[list[tuple[str, str]], list[tuple[float, int]]]]:
    found = []
    for _, series in fields(data):
        labels, samples = [], []
        for number, inner in fields(series):
            values = dict(fields(inner))
            if number == 1:
                labels.append((values[1].decode(), values[2].decode()))
            else:
                samples.append((values[1], values[2]))
        found.append((labels, samples))
    return found


def inflate(data: bytes) -> bytes:
    size, at = read_varint(data, 0)
    found = b""
    while at < len(data):
        assert data[at] == 0xF4  # a literal whose length is in two bytes
        length = struct.unpack("<H", data[at + 1 : at + 3])[0] + 1
        found += data[at + 3 : at + 3 + length]
        at += 3 + length
    assert len(found) == size
    return found


@given(
    st.dictionaries(st.text("abz_", min_size=1), st.text(max_size=300)),
    st.floats(allow_nan=False),
    st.lists(st.integers(0, 2**62), max_size=5),
)
def test_what_is_written_is_read_back(labels: Any, value: float, times: list[int]) -> None:
    series = encode_series(labels.items(), encode_run(value, map(encode_time, times)))
    ((found, samples),) = read_series(series)
    assert found == sorted((k, v) for k, v in labels.items() if v)
    assert samples == [(value, time) for time in times]


def test_a_time_before_1970_is_negative_in_64_bits() -> None:
    assert encode_time(-1) == b"\x10" + b"\xff" * 9 + b"\x01"


@given(st.binary(max_size=200) | st.integers(0, 200_000).map(bytes))
def test_snappy_reads_it(data: bytes) -> None:
    assert inflate(compress(data)) == data


SERIES = encode_series([("__name__", "x")], encode_run(1.0, [encode_time(1)]))


def test_it_is_tried_again_with_pauses_that_grow(receive: Any) -> None:
    server = receive(503, 500, 429, 204)
    pauses: list[float] = []
    writer = RemoteWriter(target(server.url), pauses.append)
    writer.add(SERIES, 1)
    writer.flush()
    assert writer.sent == 1
    assert pauses == [7, 7, 7]
    assert [read_series(inflate(body)) for _, body in server.requests] == [
        [([("__name__", "x")], [(1, 1)])]
    ] * 4
    headers = server.requests[0][0]
    assert headers["Content-Encoding"] == "snappy"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    assert "Authorization" not in headers


def test_what_is_refused_is_not_tried_again(receive: Any) -> None:
    server = receive(204, 400)
    writer = RemoteWriter(target(server.url), lambda _: pytest.fail("a pause"))
    writer.add(SERIES, 1)
    writer.flush()
    writer.add(SERIES, 1)
    with pytest.raises(MxError) as error:
        writer.flush()
    assert str(error.value) == (
        f"{server.url}: it answered 400 Bad Request: so it is; 1 samples were sent before, and "
        "nothing is doubled when it is run again"
    )


def test_nobody_is_there() -> None:
    pauses: list[float] = []
    url = f"http://127.0.0.1:{support.free_port()}/write"
    writer = RemoteWriter(target(url), pauses.append)
    writer.add(SERIES, 1)
    with pytest.raises(MxError, match=r"Connection refused, 6 times; 0 samples were sent before"):
        writer.flush()
    assert pauses == [0.5, 1, 2, 4, 8]


def test_requests_have_some_size(receive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "BATCH", 3)
    server = receive(204)
    writer = RemoteWriter(target(server.url))
    for _ in range(7):
        writer.add(SERIES, 1)
    writer.flush()
    assert [len(read_series(inflate(body))) for _, body in server.requests] == [3, 3, 1]


def test_a_password_and_a_token(tmp_path: Path, receive: Any) -> None:
    server = receive(204)
    (tmp_path / "token").write_text("secret\n")
    named = server.url.replace("//", "//me:p%40ss@")
    for to, shown in (
        (target(named), "Basic " + base64.b64encode(b"me:p@ss").decode()),
        (target(server.url, str(tmp_path / "token")), "Bearer secret"),
    ):
        assert to.shown == server.url
        writer = RemoteWriter(to)
        writer.add(SERIES, 1)
        writer.flush()
        assert server.requests[-1][0]["Authorization"] == shown
    with pytest.raises(MxError, match="none: the token cannot be read: No such file"):
        target(server.url, str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["backfill"], "-o and --remote-write: give one of them"),
        (["backfill", "-o", "x", "--remote-write", "http://x"], "-o and --remote-write: give one"),
        (
            ["backfill", "--remote-write", "x:9090"],
            "--remote-write: bad value 'x:9090': exp",
        ),
        (
            ["push", "--remote-write", "http://x", "--pushgateway", "x"],
            "--pushgateway and --remote-write: give only one of them",
        ),
    ],
)
def test_bad_options(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
